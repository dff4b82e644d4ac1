"""What the terminal shows: statements, results, lists."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedldp.data import list_datasets
from fedldp.mechanisms import mechanisms
from fedldp.models import models
from fedldp.recipes import recipes
from fedldp.systems import systems

Rows = list[dict[str, Any]]


def print_statement(console: Console, privacy: dict[str, Any]) -> None:
    """Print a privacy statement."""
    claim = privacy["claim"]
    if claim is None:
        lines = ["claim      none: the source claims no privacy"]
    else:
        delta = f", delta {claim['delta']:g}" if claim["delta"] else ""
        lines = [
            f"claim      epsilon {claim['epsilon']:g}{delta} per {claim['unit']}",
            f"           {claim['source']}",
        ]
    lines += [f"warning    {warning}" for warning in privacy["warnings"]]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def print_result(console: Console, summary: dict[str, Any]) -> None:
    """Print a run's final table, its statement, and where it lies."""
    table = Table("round", "clients", "accuracy", "loss", "uplink bits per client", "seconds")
    for record in summary["rounds"]:
        table.add_row(
            str(record["round"]),
            str(record["clients"]),
            f"{100 * record['accuracy']:.2f} %",
            f"{record['loss']:.4f}",
            f"{record['uplink_bits_per_client']:,.0f}",
            f"{record['seconds']:.2f}",
        )
    console.print(table)
    final = summary["final"]
    console.print(
        f"accuracy   {100 * final['accuracy']:.2f} % on the test set, loss {final['loss']:.4f}, "
        f"in {summary['seconds']:.1f} s",
        highlight=False,
        soft_wrap=True,
    )
    print_statement(console, summary["privacy"])
    if summary["run_dir"] is not None:
        console.print(f"run folder {summary['run_dir']}", highlight=False, soft_wrap=True)


def cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return "x".join(map(str, value))
    return str(value)


def dataset_rows(data_dir: Path | None) -> Rows:
    """Return every built-in data set as a JSON-ready row."""
    rows = []
    for info in list_datasets(data_dir):
        row = asdict(info)
        row["folder"] = None if info.folder is None else str(info.folder)
        row["input_shape"] = list(info.input_shape)
        here = "here" if info.present else f"`fedldp data fetch {info.name}`"
        row["description"] = f"{info.examples:,} examples, {info.classes} classes; {here}"
        rows.append(row)
    return rows


def _first_line(documented: object) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def _module_rows(found: dict[str, Any]) -> Rows:
    return [
        {"name": name, "description": _first_line(inspect.getmodule(member))}
        for name, member in found.items()
    ]


def _recipe_rows(_: Path | None) -> Rows:
    return [
        {"name": name, "system": recipe().system, "description": _first_line(recipe)}
        for name, recipe in recipes().items()
    ]


KINDS: dict[str, Callable[[Path | None], Rows]] = {
    "recipes": _recipe_rows,
    "systems": lambda _: _module_rows(systems()),
    "mechanisms": lambda _: _module_rows(mechanisms()),
    "datasets": dataset_rows,
    "models": lambda _: _module_rows(models()),
}
