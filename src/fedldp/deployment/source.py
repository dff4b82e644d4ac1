"""A site's data file, as stored on disk and as examples in the form that an agreement requires.

Examples may be left out or added, and examples that are randomised only once must not change during
a run. Nothing here may reveal which examples a site has, or how many.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataError, DataMissing, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data import (
    Columns,
    Examples,
    check_people,
    is_table,
    read_table,
    standardised,
    undeclared,
)
from fedldp.data.adapters import Gathered
from fedldp.data.custom import encode_examples, read_arrays, rows_left_out
from fedldp.data.examples import as_examples
from fedldp.data.people import count_of, few_of_each
from fedldp.data.rules import check_column
from fedldp.data.tables import Table
from fedldp.deployment.agreement import Agreement
from fedldp.protocol.client_store import LedgerStore

_END_OF_CLASSES = 2**31
_NAMED = 20
"""How many rows a message names."""
NO_CLASS = 2**62
"""The label of an example in a .npz file whose label is no integer from 0; no agreement has it."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """Examples, or a table from whose agreed columns examples are made.

    Attributes:
        found: the content of the file.
        label_column: the label column of a table.
        content: SHA-256 of the file's bytes, 32 bytes.
        person_column: the person column of a table, if the site's name for it differs from the name
            in the agreement.
        numbers: the labels of examples as they stand in the file, shape (N,). Those that are no
            class are ``NO_CLASS`` among the labels of the examples.
    """

    found: Examples | Table
    label_column: str
    content: bytes
    person_column: str | None = None
    numbers: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.found)

    @property
    def digest(self) -> str:
        """What identifies the data; see ``digest_of_data``."""
        return _digest_of(self.content, self.label_column, self.person_column)

    def labelled(self, column: str) -> SiteData:
        """Return the same data with another label column."""
        return replace(self, label_column=column)

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
            if self.numbers is None or agreed.label_range is None:
                return self.found
            return replace(self.found, labels=agreed.label_range.steps(self.numbers))
        columns = self._columns(agreed)
        if features is None and not leave_out:  # only the site's operator sees this refusal
            for name in undeclared(self.found, columns):
                check_column(name, self.found.numbers(name), f"{self.found.path}:")
        return encode_examples(self.found, columns, leave_out=leave_out, names=features)

    def left_out(
        self, agreed: Columns, features: Sequence[str] | None, end_of_labels: int
    ) -> tuple[int, Mapping[str, NDArray[np.int64]]]:
        """Return how many rows do not fit what was agreed, and which, from 0, by reason.

        A row may have several reasons. Only the site's operator may see this.

        Args:
            agreed: see ``examples``.
            features: see ``examples``.
            end_of_labels: one more than the largest agreed label.

        Raises:
            DataError, ConfigError: see ``examples``.
        """
        labels = self.examples(agreed, features).labels
        bad: Mapping[str, NDArray[np.bool_]] = {}
        if not isinstance(self.found, Examples):
            bad = rows_left_out(self.found, self._columns(agreed), names=features)
        kept = np.flatnonzero(~np.any([np.zeros(len(self), np.bool_), *bad.values()], axis=0))
        unknown = labels == NO_CLASS
        beyond = (labels >= end_of_labels) & ~unknown
        reasons = {column: np.flatnonzero(rows) for column, rows in bad.items()}
        reasons[f"a label above {end_of_labels - 1}"] = kept[beyond]
        reasons["a label that is no integer from 0"] = kept[unknown]
        count = len(self) - len(labels) + int((beyond | unknown).sum())
        return count, {why: rows for why, rows in reasons.items() if rows.size}

    def named(self, rows: NDArray[np.int64]) -> str:
        """Return in words where some rows are in the file; of very many, the first."""
        what, places = "row", rows + 1
        if not isinstance(self.found, Examples):
            what, places = self.found.unit, np.array(self.found.places)[rows]
        shown, more = ", ".join(map(str, places[:_NAMED].tolist())), rows.size - _NAMED
        return f"{what}{'s' * (rows.size > 1)} {shown}{f' and {more:,} more' * (more > 0)}"

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
        agreed = agreed.without("person")
        return replace(
            agreed,
            label=agreed.label and self.label_column,
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
    content = _content(path)
    if is_table(path.name):
        found = SiteData(read_table(path), label_column, content, person_column)
    else:
        examples, numbers = _of_arrays(read_arrays(path))
        found = SiteData(examples, label_column, content, person_column, numbers)
    if _content(path) != content:
        raise DataError(f"data {path}: it changed while it was read; try again once it is complete")
    return found


def _of_arrays(read: Gathered) -> tuple[Examples, NDArray[np.float64]]:
    """Return the examples of a .npz file, and their labels as they stand there.

    Which agreements the labels fit is not known yet: finite numbers fit one about numbers, and
    integers from 0 also one about classes.

    Raises:
        DataError: the examples are malformed, or a label is neither.
    """
    labels = np.asarray(read.labels)
    if labels.ndim != 1 or labels.dtype.kind not in "uif" or not np.isfinite(labels).all():
        found = as_examples(read, None)
        return found, found.labels.astype(np.float64)
    numbers = labels.astype(np.float64)
    is_class = (numbers == np.rint(numbers)) & (numbers >= 0) & (numbers < _END_OF_CLASSES)
    classes = np.where(is_class, numbers, 0).astype(np.int64)
    found = as_examples(replace(read, labels=classes), None)
    return replace(found, labels=np.where(is_class, classes, NO_CLASS)), numbers


def digest_of_data(path: Path, label_column: str, person_column: str | None) -> str:
    """Return what identifies a site's data: 64 hexadecimal digits.

    They stand for the file's bytes and for the columns that the site's policy names.

    Raises:
        DataMissing: the file cannot be read.
    """
    return _digest_of(_content(path), label_column, person_column)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataMissing(f"data {path}: {error.strerror}", "check the path") from error


def _digest_of(content: bytes, label_column: str, person_column: str | None) -> str:
    columns = json.dumps([label_column, person_column]).encode()
    return hashlib.sha256(columns + content).hexdigest()


log = logging.getLogger("fedldp.site")

_NOTED = "examples"


def examples_for(
    agreement: Agreement,
    source: SiteData,
    place: Path,
    most: int | None,
    kept: Callable[[str], Stream],
) -> Examples:
    """Return a site's examples in the form that the agreement requires.

    Whether a site takes part must not reveal its examples, so incompatible examples are left out
    instead of causing a refusal. If a site's answers are charged for a fixed number of examples,
    they must not reveal how many examples it has either, so missing examples are replaced by zeros.
    (A demo adds no examples, because its randomness protects nothing and because it repeats a
    simulation, whose shares may differ in size by one example.)

    Args:
        agreement: the agreement of the run.
        source: the site's data.
        place: the path of the data, for error messages.
        most: the number of examples for which the site's answers are charged. None: the charge does
            not depend on the number of examples.
        kept: returns the random stream for a purpose, which is the same throughout the run; if a
            person has too many rows, such a stream decides which rows to use.

    Raises:
        ConfigError: see ``agreed_examples``.
    """
    config, problem = agreement.config, agreement.problem
    found = agreed_examples(agreement, source, place)
    rows = None
    if config.rows_per_person is not None:
        rows = few_of_each(
            found.people, config.rows_per_person, lambda: kept("rows of a person").generator()
        )
    if rows is not None:
        found = found.taken(rows)
    found = found.taken(np.flatnonzero(found.labels < problem.end_of_labels)[:most])
    if len(found) < len(source):
        log.warning(
            "run %s uses %d of %d examples, as the agreement says%s; accept and --check name those "
            "that do not fit",
            *(agreement.run[:8], len(found), len(source)),
            "" if most is None else f" (at most {most} per site)",
        )
    if most is not None and len(found) < most and agreement.test_seed is None:
        log.warning(
            "%d examples of zeros are added for run %s, which uses %d examples per site; "
            "otherwise the site's answers would reveal how many examples it has",
            most - len(found),
            agreement.run[:8],
            most,
        )
        found = _filled(found, most, problem.num_classes)
    return standardised(found, config.dataset) if config.standardise else found


def agreed_examples(agreement: Agreement, source: SiteData, place: Path) -> Examples:
    """Return the examples that fit the agreed columns; see ``SiteData.examples``.

    Raises:
        ConfigError: the examples have the wrong shape, or do not say to which person they belong
            although the run requires it; neither reveals anything about the file's rows.
    """
    found = source.examples(agreement.config.columns, agreement.problem.features)
    if (shape := found.features.shape[1:]) != agreement.problem.input_shape:
        raise ConfigError(
            f"data {place}: an example has the shape {shape}, but the run takes "
            f"{agreement.problem.input_shape}; reshape the examples"
        )
    if is_about_people(agreement) and found.people is None:
        raise ConfigError(
            f"data {place}: run {agreement.run[:8]} is about people, but the file does not say "
            "which rows belong to the same person; set person_column in the policy, or add "
            "groups to the .npz file"
        )
    return found


def is_about_people(agreement: Agreement) -> bool:
    """Return whether sites must say which person each row belongs to."""
    config = agreement.config
    return (agreement.problem.people, config.person_column, config.rows_per_person) != (None,) * 3


def check_unchanged(
    examples: Examples, store: LedgerStore, place: Path, *, begun: bool, charged_once: bool
) -> bool | None:
    """Refuse examples that differ, even only in order, from those for which something was drawn.

    Otherwise, an example that is randomised once and charged once could be randomised twice, and
    one that is used in one round could be used in another.

    Args:
        examples: the present examples.
        store: what the site stores for the run.
        place: the path of the data, for error messages.
        begun: whether the site released something in the run.
        charged_once: whether something about an example is charged once, in the first round.

    Returns:
        Whether the examples are the recorded ones; None if none are recorded.

    Raises:
        PrivacyError: something was released, and the examples differ or the record is gone.
    """
    noted = store.known(_NOTED)
    if noted is not None and np.array_equal(noted["digest"], _digest(examples)):
        return True
    if noted is not None and begun:
        raise PrivacyError(
            f"data {place}: the examples or their order changed since the run began, in which "
            "something was drawn only once, by the place of each; restore the old file, or retire "
            "the run's agreement and take part in a new run"
        )
    if begun and charged_once:
        raise PrivacyError(
            f"data {place}: the record of the examples that the run began with is missing from "
            "the site's state; restore that folder from a copy, or take part in new runs only"
        )
    return None if noted is None else False


def note(examples: Examples, store: LedgerStore) -> None:
    """Record the examples for which something is drawn once, unless some are recorded.

    Raises:
        StoreUnusable: the record cannot be written.
    """
    store.arrays(_NOTED, lambda: {"digest": _digest(examples)})


def _filled(examples: Examples, count: int, num_classes: int) -> Examples:
    """Return ``count`` examples; missing ones are replaced by zeros, with labels that cycle from 0.

    Each added example belongs to a separate person.
    """
    missing = count - len(examples)
    zeros = np.zeros((missing, *examples.features.shape[1:]), examples.features.dtype)
    labels = np.arange(missing, dtype=examples.labels.dtype) % num_classes
    people = examples.people
    if people is not None:
        more = np.arange(missing, dtype=people.dtype) + people.max(initial=-1) + 1
        people = np.concatenate([people, more])
    return Examples(
        np.concatenate([examples.features, zeros]),
        np.concatenate([examples.labels, labels]),
        people,
    )


def _digest(examples: Examples) -> NDArray[np.uint8]:
    """Return a digest of examples in their order, shape (32,)."""
    found = hashlib.sha256()
    people = () if examples.people is None else (examples.people,)
    for array in (examples.features, examples.labels, *people):
        found.update(str((array.shape, array.dtype)).encode())
        found.update(np.ascontiguousarray(array).data)
    return np.frombuffer(found.digest(), np.uint8)
