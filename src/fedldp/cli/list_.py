"""The command line: fedldp list."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from fedldp.algorithms.recipes import installed_recipes, recipes, systems_of_recipes
from fedldp.algorithms.systems import modules_of_systems, systems
from fedldp.cli.options import Answer, DataDir, summary_of
from fedldp.core.errors import ConfigError
from fedldp.data import list_datasets
from fedldp.mechanisms import mechanisms
from fedldp.models import models
from fedldp.reporting.text import Terminal

Rows = list[dict[str, Any]]


def _dataset_rows(data_dir: Path | None) -> Rows:
    """Return every built-in data set as a JSON-ready row."""
    rows = list_datasets(data_dir)
    for row in rows:
        here = "here" if row["present"] else f"`fedldp data fetch {row['name']}`"
        row["description"] = f"{row['examples']:,} examples, {row['classes']} classes; {here}"
    return rows


def _rows(kind: str, data_dir: Path | None, left_out: list[str], *, brief: bool = False) -> Rows:
    """Return all of a kind as rows; append a line for each that is left out.

    Brief rows, for a summary, have names, and recipes their systems; no recipe or system is made.
    """
    if kind == "recipes":
        return _recipe_rows(left_out, brief)
    if kind == "systems":
        return [{"name": n} for n in modules_of_systems()] if brief else _module_rows(systems())
    if kind == "mechanisms":
        return _module_rows(mechanisms())
    if kind == "models":
        return [{"name": name, "description": summary_of(each)} for name, each in models().items()]
    return _dataset_rows(data_dir)


def _recipe_rows(left_out: list[str], brief: bool) -> Rows:
    """Return every recipe as a row, grouped by system; see ``_rows``."""
    rows, why = installed_recipes()
    left_out += why
    for row in rows:
        row["description"] = f"{row.pop('summary')} (of the installed package {row.pop('package')})"
        row["epsilon"] = None
    if brief:
        rows += [{"name": name, "system": of} for name, of in systems_of_recipes().items()]
    for recipe in () if brief else recipes().values():
        meaning = recipe.config.composition.calibration.meaning
        rows.append(
            {
                "name": recipe.name,
                "system": recipe.config.system,
                "epsilon": None if meaning is None else asdict(meaning),
                "description": recipe.description,
                "same_as": recipe.same_as,
            }
        )
    return sorted(rows, key=lambda row: row["system"])


def _module_rows(found: Mapping[str, Any]) -> Rows:
    return [
        {"name": name, "description": summary_of(inspect.getmodule(member))}
        for name, member in found.items()
    ]


_KINDS = ("recipes", "systems", "mechanisms", "datasets", "models")


def _has(row: dict[str, Any], words: list[str]) -> bool:
    """Return whether a row contains all the words, ignoring case."""
    text = " ".join(str(row.get(key, "")) for key in ("name", "system", "description")).lower()
    return all(word.lower() in text for word in words)


def _show_summary(found: dict[str, Rows], console: Terminal) -> None:
    """Print how many entries each kind has, their names, and the recipes by system."""
    for name, rows in found.items():
        console.say(name, f"{len(rows)}: fedldp list {name} [WORD ...] lists them")
        if name != "recipes":
            console.say("", ", ".join(row["name"] for row in rows))
            continue
        grouped = groupby(rows, key=lambda row: row["system"])
        of_systems = [(system, [row["name"] for row in members]) for system, members in grouped]
        cells = [[system, str(len(names)), names[0]] for system, names in of_systems]
        console.print_table(["system", "recipes", "the first"], cells)


def list_(
    kind: str | None = None,
    words: list[str] | None = None,
    *,
    data_dir: DataDir = None,
) -> Answer:
    """List recipes, systems, mechanisms, data sets or models; without a kind, a summary.

    Help:
        kind: one of: recipes, systems, mechanisms, datasets, models
        words: list only entries that have all of these words in their name, system or description
    """
    if kind is not None and kind not in _KINDS:
        raise ConfigError(f"list {kind}: choose {', '.join(_KINDS)}")
    left_out: list[str] = []

    def found(*, brief: bool = False) -> dict[str, Rows]:
        every = {k: _rows(k, data_dir, left_out, brief=brief) for k in ([kind] if kind else _KINDS)}
        return {k: [row for row in rows if _has(row, words or [])] for k, rows in every.items()}

    first = found(brief=kind is None)
    for why in dict.fromkeys(left_out):
        typer.echo(f"warning    {why}", err=True)
    if words and not any(first.values()):
        raise ConfigError(
            f"list {kind} {' '.join(words)}: no entry has all these words; leave some out"
        )
    if kind is None:
        return Answer(found, partial(_show_summary, first))
    rows = first[kind]
    shown = ("name", "system", "description", "license", "source")
    heads = [head for head in shown if head in rows[0]]
    cells = [[str(row.get(head, "")) for head in heads] for row in rows]
    return Answer(rows, lambda console: console.print_table(heads, cells))
