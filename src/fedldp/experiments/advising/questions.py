"""The questions that only the owner of a table can answer, as a TOML file to fill in.

The file follows from the names and the kinds of the columns alone. What the rows hold is told to
the owner, on the terminal: a range, a string or a count in the file would be a release.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tomli_w

from fedldp.core.errors import ConfigError, DataError, Noted, RunError
from fedldp.data import is_table, read_table
from fedldp.data.rules import is_row_number
from fedldp.data.tables import Table
from fedldp.reporting.record import replace_file

OPEN = "?"
"""The value of a question that is not answered yet."""

Kind = Literal["numbers", "truths", "strings", "dates", "other"]

ROLES = {
    "client_column": "The column with each row's site or device.",
    "person_column": "The column with each row's person. Remove this line if no person has two "
    "rows.",
    "label_column": "The column with the classes that a model is to predict.",
}
"""The questions about what a column is for, by setting; each must be answered."""

_OF_THE_TABLE = {
    "people": "How many people the rows are about: a number that may be published, rounded up. "
    "May stay open; but the answer sets delta.",
    "sites": "How many sites have rows. May stay open.",
    "persons_at_sites": "The largest number of sites that may have rows of one person. May stay "
    "open: then 1.",
    "delta": "The largest delta of a guarantee. May stay open: then 1e-5, or less for more than "
    "10,000 people.",
    "classes": 'All classes, in order, such as ["no", "yes"]. May stay open if the labels are 0, '
    "1, ..., or if all of them are in the table.",
    "class_shares": "The published share of each class, in the same order, such as [0.9, 0.1], at "
    "which training then starts. May stay open: then it is measured, under the same epsilon.",
    "by_columns": 'Columns by whose values scores are also given, such as ["sex"]. They may be in '
    "ignore_columns. These scores are exact, and no epsilon covers them. May stay open.",
}

_OF_COLUMNS: Mapping[str, tuple[Sequence[Kind], str]] = {
    "scale_columns": (
        ("numbers",),
        "The public range of a column, [lowest, highest]; values beyond it are clipped. May stay "
        "open for a column that has a spread below, or that lies between -1 and 1.",
    ),
    "spread_columns": (
        ("numbers",),
        "In place of a range: a typical value and how far values usually are from it, as [typical, "
        "spread]. With few people a range alone costs 0.02 to 0.05 of AUC: where the N of "
        "docs/table_rule.md is below 500, which takes 3,700 people at epsilon 1 and 1,100 at 4. "
        "May stay open.",
    ),
    "categories": (
        ("strings",),
        "All strings that may occur in a column, from a form or a code book, such as "
        '["never", "former", "current"]. Columns of free text belong in ignore_columns.',
    ),
    "fill_columns": (
        ("numbers", "truths", "strings"),
        "What stands for a missing value: a public number in the column's unit (for true and "
        "false: 1 or 0), or one of the column's categories. May stay open for a column without "
        "missing values.",
    ),
    "other_columns": (
        ("strings",),
        "The category that stands for every string that is not listed, such as "
        '"other"; list it, too. May stay open: such strings are then refused.',
    ),
}
"""The questions about single columns, by setting: the kinds of columns, and the question."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\S+)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}", re.ASCII)
_FEW = 8


@dataclass(frozen=True)
class SeenColumn:
    """What the rows hold in a column: for the owner of the table only.

    Attributes:
        name: the column's name.
        kind: what it holds.
        missing: the number of missing values.
        strings: the different strings that it holds, in the order of the rows; empty for a column
            of clients or persons.
    """

    name: str
    kind: Kind
    missing: int
    strings: Sequence[str]


@dataclass(frozen=True, repr=False)
class Draft:
    """The questions about a table, and what its owner may look at to answer them.

    Attributes:
        text: the questions as TOML; it follows from the names and kinds of the columns alone.
        columns: what the rows hold, which must not be copied into the file.
    """

    text: str
    columns: Sequence[SeenColumn]

    def shown(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """Return the head and the rows of a table for the owner of the rows."""
        return ("column", "holds", "missing", "strings in the rows"), [
            (each.name, each.kind, f"{each.missing:,}", _strings(each)) for each in self.columns
        ]

    def __repr__(self) -> str:
        return f"<fedldp.Draft: questions about {len(self.columns)} columns>\n\n{self.text}"


def draft(
    table: Path | str,
    file: Path | str | None = None,
    *,
    client: str | None = None,
    person: str | None = None,
    label: str | None = None,
) -> Draft:
    """Write the questions about a table that only its owner can answer, as a TOML file to fill in.

    The file has the names of columns and open questions, and nothing that was read from rows but
    whether a column holds numbers, truths, strings or dates: two tables with the same columns of
    the same kinds give the same file. Answer each question from public knowledge, then pass the
    file to ``advise``.

    Args:
        table: a .csv or .parquet file.
        file: the file to write, which must not exist; None writes nothing.
        client: the column that names each row's client or site, if that is clear already.
        person: the column that names each row's person, if that is clear already.
        label: the column that holds the classes, if that is clear already.

    Raises:
        FedldpError: there is no such table or column, or ``file`` exists.
    """
    if not is_table(str(table)):
        raise ConfigError(f"table {str(table)!r}: questions are about a .csv or .parquet file")
    read = read_table(Path(table).expanduser())
    roles = {"client_column": client, "person_column": person, "label_column": label}
    _check_names(read, roles)
    place = None if file is None else Path(file).expanduser()
    if place is not None and (place.suffix != ".toml" or place.exists()):
        why = "it exists" if place.exists() else "its name does not end in .toml"
        raise RunError(f"draft = {place}: {why}; choose another file")
    columns = [_seen(read, name, names_somebody=name in (client, person)) for name in read.names]
    shown = str(table) if place is None else os.path.relpath(read.path, place.parent)
    found = Draft(_questions(shown, {each.name: each.kind for each in columns}, roles), columns)
    if place is not None:
        replace_file(place, found.text.encode())
    return found


def answered(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a drafted file without its open questions."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            value = answered(value)
            if not value:
                continue
        if value != OPEN:
            found[name] = value
    return found


def _check_names(table: Table, roles: Mapping[str, str | None]) -> None:
    noted, header = Noted(), f"its columns are {', '.join(table.names)}"
    for name, count in Counter(table.names).items():
        if count > 1:
            noted.note(ConfigError(f"{table.path} has the column {name!r} twice; rename one"))
    for setting, given in roles.items():
        if given is not None and given not in table.names:
            noted.note(
                ConfigError(f"{setting} = {given}: {table.path} has no such column; {header}")
            )
    noted.refuse()


def _seen(table: Table, name: str, *, names_somebody: bool) -> SeenColumn:
    try:
        gaps, texts = table.missing(name), table.texts(name)
    except DataError:  # a type of a .parquet file that has no single text
        return SeenColumn(name, "other", 0, ())
    there = list(dict.fromkeys(texts[row].strip() for row in np.flatnonzero(~gaps).tolist()))
    kind: Kind = "numbers"
    if there and all(text.lower() in ("true", "false") for text in there):
        kind = "truths"
    elif there and all(map(_DATE.fullmatch, there)):
        kind = "dates"
    elif np.isnan(table.numbers(name)[~gaps]).any():
        kind = "strings"
    strings = () if names_somebody or kind != "strings" else there
    return SeenColumn(name, kind, int(gaps.sum()), strings)


def _strings(column: SeenColumn) -> str:
    more = len(column.strings) - _FEW
    told = ", ".join(column.strings[:_FEW])
    return told if more <= 0 else f"{told} and {more:,} others"


def _questions(dataset: str, columns: Mapping[str, Kind], roles: Mapping[str, str | None]) -> str:
    """Return the questions as TOML.

    Args:
        dataset: the path of the table.
        columns: the kind of each column, by its name. Nothing else about the rows comes here.
        roles: the column of each role, or None.
    """
    taken = {name for name in roles.values() if name is not None}
    unfit = [
        name
        for name, kind in columns.items()
        if name not in taken and (kind in ("dates", "other") or is_row_number(name))
    ]
    parts = [
        _comment(
            f"Questions about {Path(dataset).name} that only its owner can answer. Replace each "
            f'"{OPEN}" from public knowledge: a text book, a form, published figures. Never look '
            "an answer up in the rows: all parties see it, and no epsilon covers it. Columns in "
            f'ignore_columns, and those named below, need no answer. Then run "fedldp advise" on '
            "this file."
        ),
        tomli_w.dumps({"dataset": dataset}),
        *(_comment(text) + _line(name, roles[name] or OPEN) for name, text in ROLES.items()),
        _comment("Columns that no model may use. Dates and row numbers are here already.")
        + tomli_w.dumps({"ignore_columns": unfit}),
        *(_comment(text) + _line(name, OPEN) for name, text in _OF_THE_TABLE.items()),
    ]
    for setting, (kinds, text) in _OF_COLUMNS.items():
        names = [n for n, kind in columns.items() if kind in kinds and n not in {*taken, *unfit}]
        if names:
            lines = "".join(_line(name, OPEN) for name in names)
            parts.append(_comment(text) + f"[{setting}]\n{lines}")
    return "\n".join(parts)


def _line(name: str, value: str) -> str:
    return tomli_w.dumps({name: value})


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, 98, break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)
