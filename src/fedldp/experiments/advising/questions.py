"""The questions that only the owner of a table can answer, as a TOML file to fill in.

Their text is in ``questions.toml``. The file follows from the names and the kinds of the columns
alone. What the rows hold is told to the owner, on the terminal: a range, a string or a count in the
file would be a release.
"""

from __future__ import annotations

import os
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w

from fedldp.core.errors import ConfigError, DataError, Noted, RunError
from fedldp.data import is_table, read_table
from fedldp.data.rules import are_identifiers, is_row_number
from fedldp.data.tables import Table
from fedldp.reporting.record import replace_file

OPEN = "?"
"""The value of a question that is not answered yet."""

Kind = Literal["numbers", "identifiers", "truths", "strings", "dates", "other"]

_FILE = Path(__file__).with_name("questions.toml")
_QUESTIONS = tomllib.loads(_FILE.read_text(encoding="utf-8"))

ROLES: Mapping[str, str] = _QUESTIONS["roles"]
"""The questions about what a column is for, by setting; each must be answered."""

_TOLD: Mapping[Kind, Kind] = {"identifiers": "numbers"}
"""What the file calls a kind: how often numbers repeat is for the owner's eyes only."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\S+)?|\d{1,2}[./]\d{1,2}[./]\d{2,4}", re.ASCII)
_CODE = re.compile(r"0\d", re.ASCII)
"""How a code of digits may begin, such as a zip code; no program writes a number so."""

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
    by: Sequence[str] = (),
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
        label: the column that holds the classes, or the numbers to predict, if that is clear
            already.
        by: the columns by whose values scores are also given, if that is clear already.

    Raises:
        FedldpError: there is no such table or column, or ``file`` exists.
    """
    if not is_table(str(table)):
        raise ConfigError(f"table {str(table)!r}: questions are about a .csv or .parquet file")
    read = read_table(Path(table).expanduser())
    roles = {"client_column": client, "person_column": person, "label_column": label}
    _check_names(read, [*roles.items(), *(("by_columns", name) for name in by)])
    place = None if file is None else Path(file).expanduser()
    if place is not None and (place.suffix != ".toml" or place.exists()):
        why = "it exists" if place.exists() else "its name does not end in .toml"
        raise RunError(f"draft = {place}: {why}; choose another file")
    columns = [_seen(read, name, names_somebody=name in (client, person)) for name in read.names]
    shown = str(table) if place is None else os.path.relpath(read.path, place.parent)
    kinds = {each.name: _TOLD.get(each.kind, each.kind) for each in columns}
    found = Draft(_questions(shown, kinds, {**roles, "by_columns": list(by)}), columns)
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


def _check_names(table: Table, roles: Sequence[tuple[str, str | None]]) -> None:
    noted = Noted()
    for name, count in Counter(table.names).items():
        if count > 1:
            noted.note(ConfigError(f"{table.path} has the column {name!r} twice; rename one"))
    for setting, given in roles:
        if given is not None and given not in table.names:
            why = f"{table.path} has no such column; its columns are {table.listed}"
            noted.note(ConfigError(f"{setting} = {given}: {why}"))
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
    elif np.isnan(table.numbers(name)[~gaps]).any() or any(map(_CODE.match, there)):
        kind = "strings"
    elif are_identifiers(table.numbers(name)[~gaps]):
        kind = "identifiers"
    strings = () if names_somebody or kind != "strings" else there
    return SeenColumn(name, kind, int(gaps.sum()), strings)


def _strings(column: SeenColumn) -> str:
    more = len(column.strings) - _FEW
    told = ", ".join(column.strings[:_FEW])
    return told if more <= 0 else f"{told} and {more:,} others"


def _questions(dataset: str, columns: Mapping[str, Kind], given: Mapping[str, Any]) -> str:
    """Return the questions as TOML.

    Args:
        dataset: the path of the table.
        columns: the kind of each column, by its name. Nothing else about the rows comes here.
        given: the answers that are known already, by setting; without one, a question is open.
    """
    taken = {given[role] for role in ROLES if given.get(role)}
    label = given.get("label_column")
    labels = columns.values() if label is None else [columns[label]]
    asked = _QUESTIONS["table"] | (_QUESTIONS["numbers"] if "numbers" in labels else {})
    unfit = [
        name
        for name, kind in columns.items()
        if name not in taken and (kind in ("dates", "other") or is_row_number(name))
    ]
    parts = [
        _comment(_QUESTIONS["head"].format(table=Path(dataset).name)),
        tomli_w.dumps({"dataset": dataset}),
        *(_comment(text) + _line(name, given.get(name) or OPEN) for name, text in ROLES.items()),
        _comment(_QUESTIONS["ignored"]) + tomli_w.dumps({"ignore_columns": unfit}),
        *(_comment(text) + _line(name, given.get(name) or OPEN) for name, text in asked.items()),
    ]
    for setting, about in _QUESTIONS["columns"].items():
        kinds, left = about["kinds"], {*taken, *unfit}
        lines = [_line(n, OPEN) for n, kind in columns.items() if kind in kinds and n not in left]
        if lines:
            parts.append(_comment(about["text"]) + f"[{setting}]\n{''.join(lines)}")
    return "\n".join(parts)


def _line(name: str, value: str | list[str]) -> str:
    return tomli_w.dumps({name: value})


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, 98, break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)
