"""The command line: fedldp list."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from fedldp.cli._common import DataDir, Json, print_json
from fedldp.core.errors import ConfigError

Rows = list[dict[str, Any]]


def dataset_rows(data_dir: Path | None) -> Rows:
    """Return every built-in data set as a JSON-ready row."""
    from fedldp.data import list_datasets

    rows = []
    for info in list_datasets(data_dir):
        row = asdict(info)
        row["folder"] = None if info.folder is None else str(info.folder)
        row["input_shape"] = list(info.input_shape)
        here = "here" if info.present else f"`fedldp data fetch {info.name}`"
        row["description"] = f"{info.examples:,} examples, {info.classes} classes; {here}"
        rows.append(row)
    return rows


def _recipe_rows(_: Path | None) -> Rows:
    """Return every recipe as a row, grouped by system."""
    from fedldp.algorithms.recipes import recipes
    from fedldp.simulation.plan import missing_extra

    rows = []
    for name, recipe in recipes().items():
        meaning = recipe.config.composition.calibration.meaning
        rows.append(
            {
                "name": name,
                "system": recipe.config.system,
                "epsilon": None if meaning is None else asdict(meaning),
                "description": recipe.description + missing_extra(recipe.config),
                "same_as": recipe.same_as,
            }
        )
    return sorted(rows, key=lambda row: row["system"])


def _system_rows(_: Path | None) -> Rows:
    from fedldp.algorithms.systems import systems

    return _module_rows(systems())


def _mechanism_rows(_: Path | None) -> Rows:
    from fedldp.mechanisms import mechanisms

    return _module_rows(mechanisms())


def _model_rows(_: Path | None) -> Rows:
    from fedldp.models import models

    return [{"name": name, "description": _first_line(each)} for name, each in models().items()]


def _module_rows(found: dict[str, Any]) -> Rows:
    return [
        {"name": name, "description": _first_line(inspect.getmodule(member))}
        for name, member in found.items()
    ]


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


_KINDS: dict[str, Callable[[Path | None], Rows]] = {
    "recipes": _recipe_rows,
    "systems": _system_rows,
    "mechanisms": _mechanism_rows,
    "datasets": dataset_rows,
    "models": _model_rows,
}


def _has(row: dict[str, Any], words: list[str]) -> bool:
    """Return whether a row contains all the words, ignoring case."""
    text = " ".join(str(row.get(key, "")) for key in ("name", "system", "description")).lower()
    return all(word.lower() in text for word in words)


def list_(
    kind: Annotated[str | None, typer.Argument(help="one of: " + ", ".join(_KINDS))] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="list only entries that have all of these words in their name, system or "
            "description"
        ),
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List recipes, systems, mechanisms, data sets or models."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    if kind is not None and kind not in _KINDS:
        raise ConfigError(f"list {kind}: choose {', '.join(_KINDS)}")
    found = {
        name: [row for row in rows(data_dir) if _has(row, words or [])]
        for name, rows in _KINDS.items()
        if kind in (None, name)
    }
    if words and not any(found.values()):
        raise ConfigError(
            f"list {kind} {' '.join(words)}: no entry has all these words; leave some out"
        )
    if as_json:
        print_json(found if kind is None else found[kind])
        return
    for name, rows in found.items():
        names = Column("name", no_wrap=True)  # users copy the names from here
        table = Table(names, "", title=name, title_justify="left", show_header=False)
        for group, members in groupby(rows, key=lambda row: row.get("system")):
            if group is not None:
                table.add_section()
                table.add_row(f"[bold]{group}[/bold]", "")
            for row in members:
                table.add_row(row["name"], escape(row["description"]))
        Console().print(table)
