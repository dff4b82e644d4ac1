"""A site's file of examples: as it is on disk, and as an agreement wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedldp.data import (
    Columns,
    Examples,
    check_people,
    encode_examples,
    is_table,
    load_examples,
    read_table,
)
from fedldp.data.people import count_of
from fedldp.data.tables import Table


@dataclass(frozen=True, eq=False)
class Source:
    """Examples, or a table of which an agreement's columns make examples.

    Attributes:
        found: what is on disk.
        label_column: of a table.
        person_column: of a table, where the site calls it otherwise than the agreement.
    """

    found: Examples | Table
    label_column: str
    person_column: str | None = None

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        if isinstance(self.found, Examples):
            people = self.found.people
            whose = "" if people is None else f" of {count_of(people)} persons"
            return f"{len(self)} examples{whose} of shape {self.found.features.shape[1:]}"
        return f"{len(self)} rows of {len(self.found.names)} columns"

    def examples(
        self, agreed: Columns, features: Sequence[str] | None = None, *, leave_out: bool = True
    ) -> Examples:
        """Return the examples; of a table, by the agreed ranges, categories and classes.

        Args:
            agreed: the agreement's; what the columns of labels and people are called is the
                site's own matter.
            features: the agreed names of a table's features, in their order; None where none are
                agreed: the order of the file, which then must be that of all sites.
            leave_out: what does not fit is left out: whether a site takes part must not tell what
                examples it has. Else it is refused.

        Raises:
            DataError, ConfigError: the table cannot be what was agreed.
        """
        if isinstance(self.found, Examples):
            return self.found
        columns = self._columns(agreed)
        return encode_examples(self.found, columns, leave_out=leave_out, names=features)

    def people_are_said(self, agreed: Columns) -> bool:
        """Return whether the file says whose its rows are."""
        if isinstance(self.found, Examples):
            return self.found.people is not None
        return self._columns(agreed).person is not None

    def check_people(self, agreed: Columns) -> None:
        """Refuse what is amiss with whose rows are, for the site's operator alone.

        In a round such rows are left out: a refusal would tell others of them.

        Raises:
            DataError, ConfigError: a row does not say whose it is, or the person column is missing.
        """
        if not isinstance(self.found, Examples):  # of which that was checked when they were read
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


def open_source(path: Path, label_column: str, person_column: str | None = None) -> Source:
    """Read a site's file.

    Args:
        path: of the file.
        label_column: of a table.
        person_column: of a table; None: the agreement's.

    Raises:
        FedldpError: it cannot be read, or a .npz file holds no examples.
    """
    if is_table(path.name):
        return Source(read_table(path), label_column, person_column)
    return Source(load_examples(path, columns=Columns(label=label_column)), label_column)
