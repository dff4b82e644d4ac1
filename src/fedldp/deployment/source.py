"""A site's data file, as stored on disk and as examples in the form that an agreement requires."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedldp.core.errors import DataError, DataMissing
from fedldp.data import (
    Columns,
    Examples,
    check_columns,
    check_people,
    encode_examples,
    is_table,
    load_examples,
    read_table,
    rows_left_out,
    undeclared,
)
from fedldp.data.people import count_of
from fedldp.data.tables import Table


@dataclass(frozen=True, eq=False)
class SiteData:
    """Examples, or a table from whose agreed columns examples are made.

    Attributes:
        found: the content of the file.
        label_column: the label column of a table.
        digest: see ``digest_of_data``.
        person_column: the person column of a table, if the site's name for it differs from the name
            in the agreement.
    """

    found: Examples | Table
    label_column: str
    digest: str
    person_column: str | None = None

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        if isinstance(self.found, Examples):
            people = self.found.people
            whose = "" if people is None else f" of {count_of(people)} people"
            return f"{len(self)} examples{whose} of shape {self.found.features.shape[1:]}"
        return f"{len(self)} rows of {len(self.found.names)} columns"

    def examples(
        self, agreed: Columns, features: Sequence[str] | None = None, *, leave_out: bool = True
    ) -> Examples:
        """Return the examples; a table is encoded with the agreed ranges, categories and classes.

        Args:
            agreed: the agreement's columns; each site names its own label and person columns.
            features: the agreed names of a table's features, in order. None: no names are agreed,
                and the features keep the order of the file, which must be the same at all sites.
            leave_out: whether to leave out incompatible examples, so that a refusal cannot reveal
                them; if false, such examples are refused.

        Raises:
            DataError, ConfigError: the table does not contain what was agreed.
        """
        if isinstance(self.found, Examples):
            return self.found
        columns = self._columns(agreed)
        if features is None and not leave_out:  # only the site's operator sees this refusal
            check_columns(undeclared(self.found, columns), f"{self.found.path}:")
        return encode_examples(self.found, columns, leave_out=leave_out, names=features)

    def left_out(
        self, agreed: Columns, features: Sequence[str] | None, num_classes: int
    ) -> tuple[int, Mapping[str, int]]:
        """Return how many rows do not fit what was agreed, and how many by reason.

        A row may have several reasons. Only the site's operator may see this.

        Args:
            agreed: see ``examples``.
            features: see ``examples``.
            num_classes: the agreed number of classes.

        Raises:
            DataError, ConfigError: see ``examples``.
        """
        found = self.examples(agreed, features)
        beyond = int((found.labels >= num_classes).sum())
        reasons: dict[str, int] = {}
        if not isinstance(self.found, Examples):
            reasons |= rows_left_out(self.found, self._columns(agreed), names=features)
        if beyond:
            reasons[f"a label above {num_classes - 1}"] = beyond
        return len(self) - len(found) + beyond, reasons

    def people_are_said(self, agreed: Columns) -> bool:
        """Return whether the file says to which person each row belongs."""
        if isinstance(self.found, Examples):
            return self.found.people is not None
        return self._columns(agreed).person is not None

    def check_people(self, agreed: Columns) -> None:
        """Refuse invalid entries in the person column; only the site's operator sees the refusal.

        A round leaves out rows with invalid entries instead: a refusal would reveal them to others.

        Raises:
            DataError, ConfigError: a row has no person, or the person column is missing.
        """
        if not isinstance(self.found, Examples):  # Examples were checked when they were read
            check_people(self.found, self._columns(agreed))

    def _columns(self, agreed: Columns) -> Columns:
        person = self.person_column or agreed.person
        return replace(
            agreed,
            label=self.label_column,
            client=None,
            person=person,
            ignored=tuple(name for name in agreed.ignored if name != person),
        )


def open_source(path: Path, label_column: str, person_column: str | None = None) -> SiteData:
    """Read a site's data file.

    Args:
        path: the path of the file.
        label_column: the label column of a table.
        person_column: the person column of a table. None: the one that the agreement names.

    Raises:
        FedldpError: the file cannot be read, or changes while it is read, or a .npz file holds no
            examples.
    """
    digest = digest_of_data(path, label_column, person_column)
    if is_table(path.name):
        found = SiteData(read_table(path), label_column, digest, person_column)
    else:
        examples = load_examples(path, columns=Columns(label=label_column))
        found = SiteData(examples, label_column, digest)
    if digest_of_data(path, label_column, person_column) != digest:
        raise DataError(f"data {path}: it changed while it was read; try again once it is complete")
    return found


def digest_of_data(path: Path, label_column: str, person_column: str | None) -> str:
    """Return what identifies a site's data: 64 hexadecimal digits.

    They stand for the file's bytes and for the columns that the site's policy names.

    Raises:
        DataMissing: the file cannot be read.
    """
    found = hashlib.sha256(json.dumps([label_column, person_column]).encode())
    try:
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise DataMissing(f"data {path}: {error.strerror}; check the path") from error
    return found.hexdigest()
