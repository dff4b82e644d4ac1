"""Turns a table's columns into features, and its labels into classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataError
from fedldp.data.columns import Columns
from fedldp.data.tables import Table, is_missing

_LARGEST = float(np.finfo(np.float32).max)
_EXACT = 2.0**53
"""Float64 represents every integer below this number, but not every larger integer."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """A model's input from a table, and the strings in its other columns.

    Attributes:
        table: the source.
        features: float32 of shape (n, d).
        names: the names of the d features; for a category, "column=string".
        labels: n strings; empty if labels were not requested.
        clients: n strings, or None.
        people: n strings, or None.
        left_out: the number of rows that were left out for a reason; a row may have several. Only
            the owner of the table may see these counts.
    """

    table: Table
    features: NDArray[np.float32]
    names: tuple[str, ...]
    labels: list[str]
    clients: list[str] | None
    people: list[str] | None
    left_out: Mapping[str, int]


def encode(
    table: Table,
    columns: Columns,
    *,
    leave_out: bool = False,
    clients: bool = True,
    people: bool = True,
    labels: bool = True,
    features: Sequence[str] | None = None,
) -> Encoded:
    """Return the features, labels, clients and people of a table.

    Args:
        table: the table as it was read.
        columns: the meaning of its columns.
        leave_out: whether rows with a missing or an undeclared value are left out; if not, the
            first such row is refused.
        clients: whether the client column, if one is declared, is required and read.
        people: whether the person column, if one is declared, is required and read.
        labels: whether the label column is required and read.
        features: the names of the features in the required order, that of the table that the model
            is trained on. None means the file's own order.

    Raises:
        ConfigError: a column is missing, occurs twice, or makes a feature that is not wanted.
        DataError: a cell holds an invalid value.
    """
    aside = {columns.label, columns.client, columns.person, *columns.ignored}
    if features is not None:
        _check_there(table, columns, features)
    _check_columns(table, columns, clients=clients, people=people, labels=labels)
    if features is not None:
        _check_features(table, columns, aside, features)
    blocks: list[NDArray[np.float32]] = []
    names: list[str] = []
    declared = features is not None  # so the meaning of the columns can no longer be changed
    kept = np.ones(len(table), np.bool_)
    bad_rows: dict[str, NDArray[np.bool_]] = {}  # by column
    for name in table.names:
        if name in aside:
            continue
        block, bad, why = _feature(table, columns, name, declared=declared)
        if bad.any() and not leave_out:
            row = int(bad.argmax())
            raise DataError(f"{table.where(row, name)}, {why(row)}")
        kept &= ~bad
        bad_rows[name] = bad
        blocks.append(block)
        names += columns.made(name)
    classes = None
    if labels:
        labelled = np.ones(len(table), np.bool_)
        classes = _kept_labels(table, columns, labelled, leave_out=leave_out, declared=declared)
        kept &= labelled
        bad_rows[columns.label] = ~labelled
    owners = None
    if clients and columns.client is not None:
        owners = table.texts(columns.client)
        _refuse_missing(table, columns.client, owners, "its client")
    persons = None
    if people and columns.person is not None:
        if not leave_out:
            check_people(table, columns)
        persons = table.texts(columns.person)
        bad_rows[columns.person] = np.array([is_missing(text) for text in persons], np.bool_)
        kept &= ~bad_rows[columns.person]
    rows = np.flatnonzero(kept)
    found = np.concatenate(blocks, axis=1) if blocks else np.empty((len(table), 0), np.float32)
    _centre(found, names, table, columns)
    if features is not None:  # find each column by name, whatever its position
        found = found[:, [names.index(name) for name in features]]
        names = list(features)
    return Encoded(
        table=table,
        features=found[rows],
        names=tuple(names),
        labels=[] if classes is None else [classes[row] for row in rows],
        clients=None if owners is None else [owners[row] for row in rows],
        people=None if persons is None else [persons[row] for row in rows],
        left_out={name: int(bad.sum()) for name, bad in bad_rows.items() if bad.any()},
    )


def check_people(table: Table, columns: Columns) -> None:
    """Refuse a table that does not name the person of every row.

    Raises:
        ConfigError: the person column is missing.
        DataError: a cell of this column is empty, or cannot be read exactly.
    """
    name = columns.person
    if name is None:
        return
    if name not in table.names:
        raise _lacks(table, name, "person_column")
    _refuse_missing(table, name, table.texts(name), "its person")
    cells = table.columns[name]
    if not isinstance(cells, list) and (np.abs(cells) >= _EXACT).any():
        raise DataError(
            f"{table.path}: column {name!r} has numbers of {_EXACT:.0f} or more, which lose digits "
            "when they are read, so two people could become one; save the column as strings"
        )


def _centre(
    found: NDArray[np.float32], names: Sequence[str], table: Table, columns: Columns
) -> None:
    """Subtract the declared centres from the features, in place."""
    if unknown := sorted(set(columns.centres) - set(names)):
        raise ConfigError(
            f"centre_columns names {unknown[0]!r}, but {table.path} has no such feature; its "
            f"features are {', '.join(names)}"
        )
    if columns.centres:
        found -= np.array([columns.centred(name) for name in names], np.float32)


def numbered(
    parts: Sequence[Encoded], columns: Columns
) -> tuple[tuple[str, ...] | None, list[NDArray[np.int64]]]:
    """Return the names of the classes, if they have names, and the labels of each part.

    Raises:
        DataError: labels are numbers but not integers.
    """
    if columns.classes is not None:
        return columns.classes, [labels_of(part, columns) for part in parts]
    texts = [text for part in parts for text in part.labels]
    if all(_parses(int, text) for text in texts):
        if (least := min(map(int, texts), default=0)) > 0:
            found = ", ".join(f'"{each}"' for each in sorted(set(texts), key=int)[:3])
            raise DataError(
                f"{parts[0].table.path}: the labels are integers from {least}; give integers from "
                f"0, or list the classes in order: classes = [{found}, ...]"
            )
        return None, [labels_of(part, columns) for part in parts]
    if all(_parses(float, text) for text in texts):
        raise DataError(
            f"{parts[0].table.path}: the labels are numbers but not integers; give integers from "
            "0, or list the classes: classes = [...]"
        )
    classes = tuple(sorted(set(texts)))
    place = {text: number for number, text in enumerate(classes)}
    return classes, [np.array([place[text] for text in part.labels]) for part in parts]


def labels_of(found: Encoded, columns: Columns) -> NDArray[np.int64]:
    """Return labels as classes: positions in the declared list, or the integers themselves."""
    if columns.classes is None:
        return np.array([int(text) for text in found.labels])
    place = {text: number for number, text in enumerate(columns.classes)}
    return np.array([place[text] for text in found.labels], dtype=np.int64)


def _feature(
    table: Table, columns: Columns, name: str, *, declared: bool
) -> tuple[NDArray[np.float32], NDArray[np.bool_], Callable[[int], str]]:
    """Return a column's features, a mask of invalid cells, and the wording of a cell's problem.

    The features have shape (n, k). The last value is a function that returns, for an invalid row,
    what is wrong with the cell and a suggested fix. If the columns are ``declared``, that is, can
    no longer be changed, the fix changes only the table's cells.
    """
    if name in columns.categories:
        values, found = columns.categories[name], table.texts(name)
        if name in columns.filled:
            stands = str(columns.filled[name])
            found = [stands if _is_gap(text, values) else text for text in found]
        texts = np.array(found)
        block = (texts[:, None] == np.array(values)).astype(np.float32)

        def why(row: int) -> str:
            return _no_category(texts[row], name, values, declared=declared)

        return block, block.sum(1) == 0, why
    numbers = table.numbers(name)
    if name in columns.filled:
        missing = np.array([is_missing(text) for text in table.texts(name)], np.bool_)
        numbers = np.where(missing, float(columns.filled[name]), numbers)
    bad = ~(np.abs(numbers) <= _LARGEST)
    if name in columns.scaled:
        low, high = columns.scaled[name]
        numbers = np.clip((np.where(bad, low, numbers) - low) / (high - low), 0.0, 1.0)
    block = np.where(bad, 0.0, numbers).astype(np.float32)[:, None]
    if name in columns.filled:
        block = np.concatenate([block, missing[:, None].astype(np.float32)], axis=1)
    return block, bad, lambda row: _no_number(table, name, row, declared=declared)


def _is_gap(text: str, values: Sequence[str]) -> bool:
    """Return whether a cell is missing and its string is not the name of a category."""
    return is_missing(text) and text not in values


def _no_category(text: str, name: str, values: Sequence[str], *, declared: bool) -> str:
    if declared:
        what = "a missing value" if is_missing(text) else "which is not a category"
        return f"{what}; write one of its categories ({', '.join(values)}), or drop the row"
    if is_missing(text):
        return (
            f'a missing value; declare a category for it: add "unknown" to categories.{name}, and '
            f'fill_columns.{name} = "unknown"; or drop the row'
        )
    return (
        f"which is not one of its declared categories ({', '.join(values)}); add it to "
        f"categories.{name}, or drop the row"
    )


def _no_number(table: Table, name: str, row: int, *, declared: bool) -> str:
    text = table.texts(name)[row]
    if declared and is_missing(text):
        return (
            "a missing value, for which fill_columns declares no replacement; write a number, or "
            "drop the row"
        )
    if declared and not _parses(float, text):
        return "which is not a number; write one, or drop the row"
    if is_missing(text):
        what = "a missing value (NaN)" if text.lower() == "nan" else "a missing value"
        return (
            f"{what}; declare a public number for it, as fill_columns.{name} = 0, drop the row, or "
            "put the column into ignore_columns"
        )
    if _parses(float, text):
        return "which is infinite or too large for float32; repair it, or drop the row"
    return (
        "which is not a number; if the column holds strings, declare its public categories: "
        f'categories = {{{name} = ["{text}", ...]}}; if it names each row\'s person or client, '
        "set person_column or client_column to it; or put it into ignore_columns"
    )


def _kept_labels(
    table: Table,
    columns: Columns,
    kept: NDArray[np.bool_],
    *,
    leave_out: bool,
    declared: bool,
) -> list[str]:
    """Return the labels as strings, and remove rows with an invalid label from ``kept``."""
    found = table.texts(columns.label)
    classes = None if columns.classes is None else set(columns.classes)
    for row, text in enumerate(found):
        if classes is not None:
            fits = text in classes
        else:
            fits = text.isdecimal() if leave_out else not is_missing(text)
        if fits:
            continue
        if not leave_out:
            where = table.where(row, columns.label)
            if is_missing(text):
                raise DataError(f"{where}, an empty label; fill it in or drop the row")
            known = ", ".join(columns.classes or ())
            remedy = "write one of them" if declared else "add it to classes"
            raise DataError(
                f"{where}, which is not one of classes ({known}); {remedy}, or drop the row"
            )
        kept[row] = False
    return found


def _refuse_missing(table: Table, name: str, texts: Sequence[str], what: str) -> None:
    for row, text in enumerate(texts):
        if is_missing(text):
            raise DataError(f"{table.where(row, name)}, a missing value; every row needs {what}")


def _check_columns(
    table: Table, columns: Columns, *, clients: bool, people: bool, labels: bool
) -> None:
    header = f"its columns are {', '.join(table.names)}"
    if labels and table.names.count(columns.label) != 1:
        raise ConfigError(
            f"label_column is {columns.label!r}, which {table.path} has "
            f"{table.names.count(columns.label)} times; name another, or rename one; {header}"
        )
    for name, setting in columns.named.items():
        wanted = {"ignore_columns": False, "client_column": clients, "person_column": people}
        if name not in table.names and wanted.get(setting, True):
            raise _lacks(table, name, setting)
    twice = [name for name in table.names if table.names.count(name) > 1]
    if twice:
        raise ConfigError(f"{table.path} has the column {twice[0]!r} twice; rename one; {header}")


def _check_there(table: Table, columns: Columns, features: Sequence[str]) -> None:
    """Refuse a table that lacks a column that the model needs."""
    shown = f"the columns of {table.path} are {', '.join(table.names)}"
    for name in (*columns.scaled, *columns.categories, *columns.filled):
        if name not in table.names and set(columns.made(name)) <= set(features):
            raise ConfigError(
                f"the model needs the column {name!r}, which is missing; rename a column to this "
                f"name, or add it; {shown}"
            )


def _lacks(table: Table, name: str, setting: str) -> ConfigError:
    return ConfigError(
        f"{setting} names {name!r}, which {table.path} does not have; name one of its columns, or "
        f"rename one; its columns are {', '.join(table.names)}"
    )


def _check_features(
    table: Table, columns: Columns, aside: Set[str | None], features: Sequence[str]
) -> None:
    made = {name: columns.made(name) for name in table.names if name not in aside}
    there = {feature for names in made.values() for feature in names}
    if lacking := [feature for feature in features if feature not in there]:
        raise ConfigError(
            f"{table.path} has no column for the feature {lacking[0]!r}; the model takes "
            f"{', '.join(features)}, and the columns are {', '.join(table.names)}"
        )
    if more := [name for name, names in made.items() if not set(names) <= set(features)]:
        raise ConfigError(
            f"{table.path} has the column {more[0]!r}, which the model does not take; remove it; "
            f"the model takes {', '.join(features)}"
        )


def _parses(kind: type[int] | type[float], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
