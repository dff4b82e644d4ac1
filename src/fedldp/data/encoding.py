"""Turns a table's columns into features, and its labels into classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataError, Noted
from fedldp.data.columns import (
    INEXACT,
    Columns,
    identity,
    is_missing,
    numbers,
    of_each,
    places_in,
    tell_owner,
    tell_spellings,
    value,
)
from fedldp.data.people import as_numbers, check_sites
from fedldp.data.rules import class_of
from fedldp.data.tables import Table

_LARGEST = float(np.finfo(np.float32).max)
_SHOWN = 5

FOLDED_WEIGHT, FOLDED_AT = 0.5, 0.8
"""A folded column is 0.5 (|z| - 0.8): about the mean of |z|, and half the weight of z, so that a
table without a U loses little."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A model's input from a table, and the strings in its other columns.

    Attributes:
        table: the source.
        features: float32 of shape (n, d).
        names: the names of the d features; for a category, "column=string".
        labels: n labels as they stand in the table, or numbers of a declared range; "0" if labels
            are not read.
        clients: n strings with one spelling for each client, or None.
        people: n strings with one spelling for each person, or None.
        bad: for each column, which rows of the table were left out because of it. Like what
            follows from it, only the owner of the table may see this.
        why: for each column of features, what is wrong with the cell of a row, and the remedy.
        where: the location and the content of a row's label; None if labels are not read.
    """

    table: Table
    features: NDArray[np.float32]
    names: tuple[str, ...]
    labels: list[Any]
    clients: list[str] | None
    people: list[str] | None
    bad: Mapping[str, NDArray[np.bool_]]
    why: Mapping[str, Callable[[int], str]]
    where: Callable[[int], str] | None

    def problems(self) -> dict[int, str]:
        """Return what is wrong with the features of each row that was left out, by its place."""
        found: dict[int, list[str]] = {}
        for name, why in self.why.items():
            for row in np.flatnonzero(self.bad[name]).tolist():
                found.setdefault(row, []).append(f"{self.table.cell(row, name)}, {why(row)}")
        return {row: "; ".join(told) for row, told in found.items()}


def encode(
    table: Table,
    columns: Columns,
    *,
    leave_out: bool = False,
    quiet: bool = False,
    features: Sequence[str] | None = None,
) -> Encoded:
    """Return the features, labels, clients and people of a table.

    Labels are refused by ``rules``, which sees those of the whole data set; but a row whose label
    is no class may be left out here.

    Args:
        table: the table as it was read.
        columns: the meaning of its columns.
        leave_out: whether rows with a missing or an undeclared value are left out; if not, the
            first such row is refused.
        quiet: whether to skip checks whose result only the table's owner may learn, as a round of
            training does.
        features: the names of the features in the required order, that of the table that the model
            is trained on. None means the file's own order.

    Raises:
        ConfigError: a column is missing, occurs twice, or makes a feature that is not wanted.
        DataError: a cell holds an invalid value.
        SeveralErrors: there are several such errors; one line for each.
    """
    noted = Noted()
    if features is not None:
        _check_features(table, columns, features)
    _check_columns(table, columns, noted)
    if features is not None:
        noted.refuse()
    blocks: list[NDArray[np.float32]] = []
    names: list[str] = []
    declared = features is not None  # so the meaning of the columns can no longer be changed
    bad_rows: dict[str, NDArray[np.bool_]] = {}  # by column
    whys: dict[str, Callable[[int], str]] = {}
    for name in table.names:
        if not columns.is_feature(name):
            continue
        with noted.check():
            if not quiet:
                _refuse_two_signs(table, columns, name)
            block, bad = _feature(table, columns, name)
            whys[name] = partial(_problem, table, columns, name, declared=declared)
            if not leave_out:
                _note_cells(noted, table, name, bad, whys[name], texts=name in columns.categories)
            bad_rows[name] = bad
            blocks.append(block)
            names += columns.made(name)
    if not blocks and columns.only is not None:  # labels and people are read, and no other column
        blocks, names = [np.zeros((len(table), 1), np.float32)], ["nothing"]
    given: Sequence[Any] = ()
    if columns.label is None:
        given = ["0"] * len(table)  # nobody reads them
    elif columns.label in table.names:
        given, bad = _labels(table, columns, columns.label, leave_out=leave_out)
        if leave_out:
            bad_rows[columns.label] = bad
    owners = None
    if columns.client in table.names:
        with noted.check():
            owners = _identities(table, columns.client, "client")
    persons = None
    if columns.person in table.names:
        with noted.check():
            persons = _identities(table, columns.person, "person", leave_out=leave_out)
            bad_rows[columns.person] = np.array([not name for name in persons], np.bool_)
    if owners is not None and persons is not None:
        with noted.check():
            sites, whose = as_numbers(owners), as_numbers(persons)
            check_sites(whose, sites, columns.persons_at_sites, f"{table.path}:")
    noted.refuse()
    if not quiet:
        _tell_others(table, columns)
    rows = np.flatnonzero(~np.any([np.zeros(len(table), np.bool_), *bad_rows.values()], axis=0))
    found = np.concatenate(blocks, axis=1) if blocks else np.empty((len(table), 0), np.float32)
    if columns.centres or columns.spreads:
        found -= np.array([columns.centred(name) for name in names], np.float32)
    if features is not None:  # find each column by name, whatever its position
        found = found[:, [names.index(name) for name in features]]
        names = list(features)
    return Encoded(
        table=table,
        features=found[rows],
        names=tuple(names),
        labels=[given[row] for row in rows.tolist()] if given else [],
        clients=None if owners is None else [owners[row] for row in rows],
        people=None if persons is None else [persons[row] for row in rows],
        bad=bad_rows,
        why=whys,
        where=None if columns.label is None else partial(table.where, column=columns.label),
    )


def check_people(table: Table, columns: Columns) -> None:
    """Refuse a table that does not name the person of every row.

    The log tells how many persons have several spellings; see ``tell_spellings``.

    Raises:
        ConfigError: the person column is missing.
        DataError: a cell of this column is empty, or is a number that may have lost digits.
    """
    encode(table, Columns(label=None, person=columns.person, only=()))


def _identities(
    table: Table, name: str, what: Literal["client", "person"], *, leave_out: bool = False
) -> list[str]:
    """Return the clients or persons that a column names, one spelling for each.

    If invalid rows are left out, they have the name "".
    """
    texts = table.texts(name)
    found = of_each(texts, identity)
    if leave_out:
        return [each or "" for each in found]
    if "" in found:
        where = table.where(found.index(""), name)
        raise DataError(f"{where}, a missing value; every row needs its {what}")
    if None in found:
        raise DataError(f"{table.path}: column {name!r} {INEXACT}")
    tell_spellings(texts, identity, f"{table.path}: column {name!r}:", what)
    return [each for each in found if each]


def undeclared(table: Table, columns: Columns) -> list[str]:
    """Return the columns that become features as they are, without a range or categories."""
    known = {*columns.scaled, *columns.spreads, *columns.categories}
    return [name for name in table.names if columns.is_feature(name) and name not in known]


def _feature(
    table: Table, columns: Columns, name: str
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return a column's features, shape (n, k), and a mask of invalid cells.

    If people are asked for columns, numbers that are missing or infinite have a cell of their own,
    and so have all strings that are not declared: they are not invalid.
    """
    if name in columns.categories:
        values = columns.categories[name]
        places = np.array(of_each(table.texts(name), columns.place_in(name)))
        block = (places[:, None] == np.arange(len(values))).astype(np.float32)
        return block, (places < 0) & (columns.only is None)
    found, gaps = table.numbers(name), table.missing(name)
    if columns.only is not None:
        gaps = gaps | (np.abs(found) > _LARGEST)
    if columns.marks_missing(name):
        found = np.where(gaps, float(columns.filled.get(name, 0)), found)
    bad = ~(np.abs(found) <= _LARGEST)
    if name in columns.scaled:
        low, high = columns.scaled[name]
        found = np.clip((np.where(bad, low, found) - low) / (high - low), 0.0, 1.0)
    if name in columns.spreads:
        typical, spread = columns.spreads[name]
        with np.errstate(over="ignore"):
            found = np.clip((np.where(bad, typical, found) - typical) / spread, -3.0, 3.0)
    block = np.where(bad, 0.0, found).astype(np.float32)[:, None]
    if columns.marks_missing(name):
        block = np.concatenate([block, gaps[:, None].astype(np.float32)], axis=1)
    if name in columns.folded:
        fold = np.where(bad, 0.0, FOLDED_WEIGHT * (np.abs(found) - FOLDED_AT))
        block = np.concatenate([block, fold.astype(np.float32)[:, None]], axis=1)
    return block, bad


def _note_cells(
    noted: Noted,
    table: Table,
    name: str,
    bad: NDArray[np.bool_],
    why: Callable[[int], str],
    *,
    texts: bool,
) -> None:
    """Note the first missing cell of a column's invalid cells, and the first of the others.

    If a column without categories holds strings, only a string is noted: it needs categories first.

    Args:
        noted: where they are noted.
        table: the table.
        name: the column.
        bad: which cells are invalid, shape (n,).
        why: returns what is wrong with a row's cell, and the remedy.
        texts: whether strings are declared for the column.
    """
    if not bad.any():
        return
    gaps = bad & table.missing(name)
    others = bad & ~gaps
    if gaps.any() and (texts or not others.any()):
        row = int(gaps.argmax())
        noted.note(DataError(f"{table.where(row, name)}, {why(row)}"))
    if others.any():
        row, cells = int(others.argmax()), table.texts(name)
        more = list(dict.fromkeys(cells[each] for each in np.flatnonzero(others).tolist()))[1:]
        shown = f" (other rows: {_few(more)})" if more else ""
        noted.note(DataError(f"{table.where(row, name)}{shown}, {why(row)}"))


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(map(repr, texts[:_SHOWN])) + (f" and {more} others" if more > 0 else "")


def _refuse_two_signs(table: Table, columns: Columns, name: str) -> None:
    """Refuse a column with decimal commas and points, one of which may separate thousands.

    Only the table's owner is told. A site's row is read in the same way whatever other rows hold.
    """
    if not table.comma or name in columns.categories:
        return
    together = "".join(table.texts(name))
    if "," in together and "." in together:
        raise DataError(
            f"{table.path}: column {name!r} has numbers with commas and numbers with points; use "
            "only one of the two, as the decimal sign, and no sign between thousands"
        )


def _tell_others(table: Table, columns: Columns) -> None:
    """Tell the owner of a table, in the log, how many cells count as the declared others."""
    for name in filter(columns.is_feature, columns.others):
        place_of = places_in(columns.categories[name])
        unknown = [
            text for text in table.texts(name) if place_of(text) < 0 and not is_missing(text)
        ]
        if unknown:
            tell_owner(
                "%s: column %r: %d cells are none of its categories, and count as %r",
                table.path,
                name,
                len(unknown),
                columns.others[name],
            )


def _problem(table: Table, columns: Columns, name: str, row: int, *, declared: bool) -> str:
    """Return what is wrong with a feature's cell, and a remedy.

    If the columns are ``declared``, that is, can no longer be changed, the remedy changes only the
    table's cells.
    """
    text, values = table.texts(name)[row], columns.categories.get(name)
    right = "a number" if values is None else f"one of its categories ({', '.join(values)})"
    if is_missing(text):
        what, more = (
            "a missing value",
            (
                f"declare a public number for it, as fill_columns.{name} = 0, put the column into "
                "ignore_columns"
                if values is None
                else f'add "unknown" to categories.{name}, and set fill_columns.{name} = "unknown"'
            ),
        )
    elif values is not None:
        what = "which is not a category"
        more = (
            f"add it to categories.{name}, name the category that stands for all others "
            f'(other_columns.{name} = "other")'
        )
    elif not np.isnan(table.numbers(name)[row]):
        what, more = "which is infinite or too large for float32", ""
    else:
        commas = (
            ", because decimal commas are read only in .csv files that are separated by semicolons"
        )
        what = "which is not a number"
        what += "" if np.isnan(numbers([text], comma=True)[0]) else commas
        more = (
            f"leave it empty and declare fill_columns.{name} = 0; for strings, declare "
            f'categories = {{{name} = ["{text}", ...]}}; if they name persons or clients, set '
            "person_column or client_column to it; or put the column into ignore_columns"
        )
    told = ", ".join([right, *([more] if more and not declared else [])])
    return f"{what}; write {told}, or drop the row"


def _labels(
    table: Table, columns: Columns, name: str, *, leave_out: bool
) -> tuple[Sequence[Any], NDArray[np.bool_]]:
    """Return the label of each row as it stands in the table, and a mask of invalid labels.

    If no classes are declared, a party, whose invalid rows are left out, has integers from 0.
    """
    if columns.label_range is not None:
        cells = table.numbers(name)
        return cells.tolist(), ~np.isfinite(cells)
    texts = table.texts(name)
    if columns.classes is None and not leave_out:
        tell_spellings(texts, value, f"{table.path}: column {name!r}:", "class")
    known = of_each(texts, class_of(columns.classes))
    return texts, np.array([each is None for each in known], np.bool_)


def _check_columns(table: Table, columns: Columns, noted: Noted) -> None:
    """Note every column that is declared but missing, and every name that occurs twice."""
    for name, setting in columns.needed.items():
        if name not in table.names:
            noted.note(_lacks(table, name, setting))
    for name in dict.fromkeys(table.names):
        if table.names.count(name) > 1:
            noted.note(
                ConfigError(
                    f"{table.path} has the column {name!r} twice; rename one; its columns are "
                    f"{table.listed}"
                )
            )
    features = filter(columns.is_feature, table.names)
    names = [made for name in features for made in columns.made(name)]
    for name in sorted(set(columns.centres) - set(names)):
        noted.note(
            ConfigError(
                f"centre_columns names {name!r}, but {table.path} has no such feature; its "
                f"features are {', '.join(names)}"
            )
        )


def _lacks(table: Table, name: str, setting: str) -> ConfigError:
    return ConfigError(
        f"{setting} names {name!r}, which {table.path} does not have; name one of its columns, or "
        f"rename one; its columns are {table.listed}"
    )


def _check_features(table: Table, columns: Columns, features: Sequence[str]) -> None:
    """Refuse a table that lacks a column that the model needs, or has one that it does not take."""
    made = {name: columns.made(name) for name in filter(columns.is_feature, table.names)}
    there = {feature for names in made.values() for feature in names}
    if lacking := [feature for feature in features if feature not in there]:
        declared = (*columns.scaled, *columns.spreads, *columns.categories, *columns.filled)
        of = (name for name in declared if lacking[0] in columns.made(name))
        raise ConfigError(
            f"the model needs the column {next(of, lacking[0])!r}, which is missing; rename a "
            f"column to this name, or add it; the columns of {table.path} are {table.listed}"
        )
    if more := [name for name, names in made.items() if not set(names) <= set(features)]:
        raise ConfigError(
            f"{table.path} has columns that the model does not take: {', '.join(more)}; remove "
            f"them; the model takes {', '.join(features)}"
        )
