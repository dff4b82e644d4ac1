"""The command line of a client's privacy ledger: fedldp ledger show, verify."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedldp.accounting.budget import UNITS
from fedldp.accounting.events import to_record
from fedldp.accounting.ledger import Ledger, Release
from fedldp.reporting.text import number

ledger_app = typer.Typer(rich_markup_mode=None, help="A client's privacy ledger.")

LedgerFile = Annotated[Path, typer.Argument(help="the ledger's file")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]


@ledger_app.command()
def show(path: LedgerFile, as_json: Json = False) -> None:
    """Show the budget, what is left of it, and what was released."""
    ledger = Ledger(path)
    entries = ledger.releases()
    summary = _summary(path, ledger, entries)
    if as_json:
        _print_json({**summary, "releases": [_row(entry) for entry in entries]})
        return
    unit = UNITS[ledger.budget.kind]
    console = Console()
    for name, value in (
        ("budget", f"{ledger.budget}"),
        ("spent", f"{unit} {number(summary['spent'])}"),
        ("remaining", f"{unit} {number(summary['remaining'], up=False)}"),
        ("last hash", summary["last_hash"] or "none: nothing was released"),
    ):
        console.print(f"{name:<10} {value}", highlight=False, soft_wrap=True)
    if entries:
        table = Table("release", "run", "round", "event", unit)
        for entry in entries:
            cells = (str(entry.number), entry.run, str(entry.round), _words(entry))
            table.add_row(*map(Text, cells), number(entry.cost))
        console.print(table)


@ledger_app.command()
def verify(path: LedgerFile, as_json: Json = False) -> None:
    """Check the file, the hashes of its entries, their costs, and the total."""
    ledger = Ledger(path)
    entries = ledger.verify()
    if as_json:
        _print_json({**_summary(path, ledger, entries), "ok": True})
    else:
        typer.echo(f"ok: {path}: releases {len(entries)}, within the {ledger.budget}")


def _summary(path: Path, ledger: Ledger, entries: list[Release]) -> dict[str, Any]:
    costs = [entry.cost for entry in entries]
    return {
        "ledger": str(path),
        "budget": asdict(ledger.budget),
        "spent": ledger.budget.spent(costs),
        "remaining": ledger.budget.remaining(costs),
        "num_releases": len(entries),
        "last_hash": entries[-1].hash if entries else None,
    }


def _row(entry: Release) -> dict[str, Any]:
    return {**vars(entry), "event": to_record(entry.event)}


def _words(entry: Release) -> str:
    fields = to_record(entry.event)
    values = (f"{key} {value}" for key, value in fields.items() if key != "event" and value)
    return f"{fields['event']}: {', '.join(values)}"


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
