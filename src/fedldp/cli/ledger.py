"""Show, check or renew a client's privacy ledger."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import typer

from fedldp.accounting.accountants import UNITS
from fedldp.accounting.events import to_record
from fedldp.cli._common import confirmed
from fedldp.cli.options import Answer, Group, Yes
from fedldp.core.errors import ConfigError, LedgerUnusable
from fedldp.core.formatting import number
from fedldp.ledgers.budget import Budget, total_of
from fedldp.ledgers.sqlite import Release, SqliteLedger, renewals, times
from fedldp.reporting.text import Terminal

app = Group(help=__doc__)


@app.command()
def show(path: Path) -> Answer:
    """Show the budget, how much of it is left, and what was released.

    Help:
        path: the ledger's file
    """
    ledger = SqliteLedger(path)
    entries = ledger.releases()
    summary = _summary(path, ledger, entries)
    heads = [f"{UNITS[budget.kind]}{budget.of_one}" for budget in ledger.budgets]
    renewed = ["", "", "", "the budget was renewed by its owner", *("" for _ in heads)]
    rows = [
        [str(each.number), *renewed]
        if each.renews
        else [
            *map(str, (each.number, each.run, each.round, each.phase, _event(each))),
            *(number(_finite(cost)) for cost in each.costs),
        ]
        for each in entries
    ]

    def tell(console: Terminal) -> None:
        for budget, spent, recent, left in ledger.accounts(entries):
            console.say("budget", str(budget))
            console.say("spent", _spent(budget, spent, recent, renewals(entries)))
            console.say("remaining", budget.amount(left, up=False))
        console.say("last hash", summary["last_hash"] or "none: nothing was released")
        if entries:
            console.print_table(["release", "run", "round", "phase", "event", *heads], rows)

    return Answer({**summary, "releases": list(map(_row, entries))}, tell)


@app.command()
def verify(path: Path, *, has: str | None = None) -> Answer:
    """Check the file, the hashes and costs of its entries, and the total.

    Help:
        path: the ledger's file
        has (HASH): require a release with this hash, or its first 16 digits, as noted elsewhere
    """
    ledger = SqliteLedger(path)
    entries = ledger.verify()
    if has is not None:
        _check_has(path, entries, has)
    within = f"within the {' and the '.join(map(str, ledger.budgets))}"
    for budget, *_, left in ledger.accounts(entries):
        if left < 0:
            within = (
                f"but over the {budget} if releases that may be lost are counted: nothing more is "
                "released"
            )
    often = renewals(entries)
    if often:
        within += f", renewed {times(often)}"
    told = f"ok: {path}: releases {len(entries) - often}, {within}"
    return Answer({**_summary(path, ledger, entries), "ok": True}, lambda _: typer.echo(told))


@app.command()
def renew(path: Path, *, yes: Yes = False) -> None:
    """Let the whole budget be spent once more; only the owner of the data may decide this.

    Help:
        path: the ledger's file
    """
    ledger = SqliteLedger(path)
    entries = ledger.releases()
    often = renewals(entries)
    for budget, spent, recent, _ in ledger.accounts(entries):
        typer.echo(f"budget     {budget}")
        typer.echo(f"spent      {_spent(budget, spent, recent, often)}")
        most = budget.amount(spent + budget.limit)
        typer.echo(f"from now   at most {most} in total since the ledger was created")
    confirmed(
        yes,
        "Past releases remain known: a renewed budget allows more on top of them, and time does "
        "not make them more private. Renew it?",
    )
    entry = ledger.renew()
    typer.echo(
        f"renewed    entry {entry.number}, hash {entry.hash}: note the hash, as for a release"
    )


@app.command()
def export(path: Path) -> Answer:
    """Print what was released and decided, by date, as CSV; for a data-protection officer.

    Help:
        path: the ledger's file
    """
    ledger = SqliteLedger(path)
    entries, rows = ledger.releases(), ledger.database.history()
    spent = [total_of([])] * len(ledger.budgets)
    for row in rows:
        entry = None if row["number"] is None else entries[row["number"] - 1]
        row |= {"round": entry and entry.round, "event": entry and _event(entry)}
        for at, budget in enumerate(ledger.budgets):
            unit = f"{budget.kind}{budget.of_one}".replace(" ", "_")
            spent[at] = total_of([spent[at], entry.costs[at] if entry else 0])
            row[f"price_{unit}"] = entry and _finite(entry.costs[at])
            row[f"total_{unit}"] = entry and _finite(budget.spent([spent[at]]))

    def tell(_: object) -> None:
        table = csv.DictWriter(sys.stdout, list(rows[0]) if rows else ["date", "what"])
        table.writeheader()
        table.writerows(rows)

    return Answer(rows, tell)


def _spent(budget: Budget, total: float, recent: float, often: int) -> str:
    """Return how much was spent since the beginning, and how much since the last renewal."""
    if not often:
        return budget.amount(total)

    return (
        f"{budget.amount(total)} since the ledger was created, including {budget.amount(recent)} "
        f"since the last renewal (renewed {times(often)})"
    )


def _check_has(path: Path, entries: list[Release], hash: str) -> None:
    """Refuse a ledger that lacks a release noted elsewhere, because it must be an older copy."""
    if not re.fullmatch(r"[0-9a-f]{16,64}", hash):
        raise ConfigError(f"--has {hash!a:.80}: give 16 to 64 hexadecimal digits of a hash")
    if not any(entry.hash.startswith(hash) for entry in entries):
        raise LedgerUnusable(
            f"ledger {path}: no release has the hash {hash}, so this is an older copy or another "
            "ledger"
        )


def _summary(path: Path, ledger: SqliteLedger, entries: list[Release]) -> dict[str, Any]:
    budgets = [
        {
            "unit": budget.unit,
            "kind": budget.kind,
            "limit": _finite(budget.limit),
            "spent": _finite(spent),
            "remaining": _finite(left),
            "spent_since_renewal": _finite(recent),
        }
        for budget, spent, recent, left in ledger.accounts(entries)
    ]
    return {
        "ledger": str(path),
        # The first budget, in the format for a ledger with a single budget.
        "budget": {name: budgets[0][name] for name in ("kind", "limit")},
        "spent": budgets[0]["spent"],
        "remaining": budgets[0]["remaining"],
        "budgets": budgets,
        "num_releases": len(entries) - renewals(entries),
        "renewals": renewals(entries),
        "last_hash": entries[-1].hash if entries else None,
    }


def _row(entry: Release) -> dict[str, Any]:
    costs = [_finite(cost) for cost in entry.costs]
    return {
        "number": entry.number,
        "run": entry.run,
        "round": entry.round,
        "exchange": entry.phase,  # JSON keeps the old names of phase and request
        "question": entry.request,
        "event": to_record(entry.event),
        "costs": costs,
        "payload_sha256": entry.payload_sha256,
        "hash": entry.hash,
        "cost": costs[0],
    }


def _finite(number: float) -> float | None:
    """Return a number for JSON, or None if it is infinite, which JSON cannot express."""
    return number if math.isfinite(number) else None


def _event(entry: Release) -> str:
    """Return an event with all that it says, for a cell of a table."""
    return json.dumps(to_record(entry.event)).replace('"', "")
