"""The command line of a client's privacy ledger: fedldp ledger show, verify."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedldp.cli._common import Json, print_json

if TYPE_CHECKING:
    from fedldp.ledgers.sqlite import Release, SqliteLedger

ledger_app = typer.Typer(rich_markup_mode=None, help="A client's privacy ledger.")

LedgerFile = Annotated[Path, typer.Argument(help="the ledger's file")]


@ledger_app.command()
def show(path: LedgerFile, as_json: Json = False) -> None:
    """Show the budget, what is left of it, and what was released."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fedldp.accounting.accountants import UNITS
    from fedldp.core.formatting import number
    from fedldp.ledgers.sqlite import SqliteLedger

    ledger = SqliteLedger(path)
    entries = ledger.releases()
    summary = _summary(path, ledger, entries)
    if as_json:
        print_json({**summary, "releases": [_row(entry) for entry in entries]})
        return
    unit = UNITS[ledger.budget.kind]
    costs = [entry.cost for entry in entries]
    console = Console()
    for name, value in (
        ("budget", f"{ledger.budget}"),
        ("spent", f"{unit} {number(ledger.budget.spent(costs))}"),
        ("remaining", f"{unit} {number(ledger.budget.remaining(costs), up=False)}"),
        ("last hash", summary["last_hash"] or "none: nothing was released"),
    ):
        console.print(f"{name:<10} {value}", highlight=False, soft_wrap=True)
    if entries:
        table = Table("release", "run", "round", "exchange", "event", unit)
        for entry in entries:
            place = (entry.number, entry.run, entry.round, entry.exchange)
            table.add_row(
                *(Text(str(cell)) for cell in (*place, _words(entry))), number(_finite(entry.cost))
            )
        console.print(table)


@ledger_app.command()
def verify(path: LedgerFile, as_json: Json = False) -> None:
    """Check the file, the hashes of its entries, their costs, and the total."""
    from fedldp.ledgers.sqlite import SqliteLedger

    ledger = SqliteLedger(path)
    entries = ledger.verify()
    if as_json:
        print_json({**_summary(path, ledger, entries), "ok": True})
        return
    within = f"within the {ledger.budget}"
    if ledger.remaining() < 0:
        within = f"and with what may be lost beyond the {ledger.budget}: it releases nothing more"
    typer.echo(f"ok: {path}: releases {len(entries)}, {within}")


def _summary(path: Path, ledger: SqliteLedger, entries: list[Release]) -> dict[str, Any]:
    costs = [entry.cost for entry in entries]
    return {
        "ledger": str(path),
        "budget": {"kind": ledger.budget.kind, "limit": _finite(ledger.budget.limit)},
        "spent": _finite(ledger.budget.spent(costs)),
        "remaining": _finite(ledger.budget.remaining(costs)),
        "num_releases": len(entries),
        "last_hash": entries[-1].hash if entries else None,
    }


def _row(entry: Release) -> dict[str, Any]:
    from fedldp.accounting.events import to_record

    return {**vars(entry), "event": to_record(entry.event), "cost": _finite(entry.cost)}


def _finite(number: float) -> float | None:
    """Return a number for JSON, which has no infinity: None in its place."""
    return number if math.isfinite(number) else None


def _words(entry: Release) -> str:
    from fedldp.accounting.events import to_record

    fields = to_record(entry.event)
    values = (f"{key} {value}" for key, value in fields.items() if key != "event" and value)
    return f"{fields['event']}: {', '.join(values)}"
