"""A budget renewed by its owner: an entry in the ledger, and a total next to the remaining
budget."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from ledger_helpers import ONE, asked

from fedldp.core.errors import LedgerUnusable, OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.protocol import Place
from fedldp.ledgers.sqlite import RENEWED, SqliteLedger, renewals, since_renewal


def release(ledger: SqliteLedger, round: int, run: str = "one") -> bytes:
    place = Place(run, round, 0, asked(f"{run} {round}"))
    (answer,) = ledger.release(place, ONE, [0], lambda: [b"answer %d" % round])
    return answer


def spent(path: Path) -> SqliteLedger:
    """Return a ledger whose budget, epsilon 2, is used up."""
    ledger = SqliteLedger(path, Budget("pure", 2.0))
    release(ledger, 1)
    release(ledger, 2)
    return ledger


def test_a_renewed_budget_is_spent_again_and_the_total_stays(tmp_path: Path) -> None:
    ledger = spent(tmp_path / "ledger")
    with pytest.raises(OverBudget):
        release(ledger, 3)
    entry = ledger.renew()
    assert (entry.number, entry.renews, entry.costs) == (3, True, (0.0,))
    assert (ledger.spent(), ledger.accounts(ledger.releases())[0].left) == (2.0, 2.0)
    assert release(SqliteLedger(ledger.path), 2) == b"answer 2"  # a repeated request: no cost
    release(ledger, 3)
    release(ledger, 4, "two")
    assert (ledger.spent(), ledger.accounts(ledger.releases())[0].left) == (4.0, 0.0)
    with pytest.raises(OverBudget, match="is spent already; this release costs"):
        release(ledger, 5, "two")
    entries = ledger.verify()
    assert renewals(entries) == 1
    assert [each.round for each in since_renewal(entries)] == [3, 4]
    assert "renewed once, epsilon 4 was spent" in ledger.renewed_words(entries)


def test_a_budget_cannot_be_renewed_in_advance(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger", Budget("pure", 2.0))
    with pytest.raises(LedgerUnusable, match="nothing was released since"):
        ledger.renew()
    release(ledger, 1)
    ledger.renew()
    with pytest.raises(LedgerUnusable, match="nothing was released since"):
        ledger.renew()
    assert ledger.accounts(ledger.releases())[0].left == 2.0


def test_a_server_cannot_renew_a_budget_by_a_request(tmp_path: Path) -> None:
    """Neither the name of a run nor a request from the server can make such an entry."""
    ledger = spent(tmp_path / "ledger")
    with pytest.raises(Exception, match="printable"):
        ledger.release(Place("", 1, 0, RENEWED), ONE, [0], lambda: [b""])
    other = SqliteLedger(tmp_path / "other", Budget("pure", 2.0))
    other.release(Place("renewed", 1, 0, RENEWED), ONE, [0], lambda: [b"x"])
    assert renewals(other.releases()) == 0
    assert other.accounts(other.releases())[0].left == 1.0


def test_a_renewal_is_in_the_hash_chain(tmp_path: Path) -> None:
    ledger = spent(tmp_path / "ledger")
    ledger.renew()
    release(ledger, 3)
    for change in (
        "DELETE FROM releases WHERE number = 3",
        "UPDATE releases SET run = 'other' WHERE number = 3",
        "UPDATE releases SET round = 7 WHERE number = 3",
    ):
        copy = tmp_path / "copy"
        copy.write_bytes(ledger.path.read_bytes())
        with sqlite3.connect(copy) as db:
            db.execute(change)
        db.close()
        with pytest.raises(LedgerUnusable, match="changed or removed"):
            SqliteLedger(copy).verify()


def test_every_period_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = spent(tmp_path / "ledger")
    monkeypatch.setattr(SqliteLedger, "_admit", lambda *_: (1.0,))
    release(ledger, 3)  # beyond the budget, by a simulated mistake
    monkeypatch.undo()
    with pytest.raises(LedgerUnusable, match="cost more than its"):
        ledger.verify()
    ledger.renew()
    with pytest.raises(LedgerUnusable, match="cost more than its"):
        ledger.verify()


def test_the_command(fedldp_command: Any, tmp_path: Path) -> None:
    path = spent(tmp_path / "ledger").path
    shown = json.loads(fedldp_command("ledger", "show", path, "--json").out)
    assert (shown["renewals"], shown["num_releases"]) == (0, 2)
    done = fedldp_command("ledger", "renew", path, "--yes")
    assert done.status == 0
    assert "from now   at most epsilon 4 in total since the ledger was created" in done.out
    assert "renewed    entry 3, hash" in done.out
    release(SqliteLedger(path), 3)
    text = fedldp_command("ledger", "show", path).out
    assert (
        "spent      epsilon 3 since the ledger was created, including epsilon 1 since the last "
        "renewal (renewed once)" in text
    )
    assert "remaining  epsilon 1" in text
    assert "the budget was renewed" in text
    shown = json.loads(fedldp_command("ledger", "show", path, "--json").out)
    assert (shown["spent"], shown["remaining"], shown["renewals"]) == (3.0, 1.0, 1)
    assert shown["budgets"][0]["spent_since_renewal"] == 1.0
    assert shown["num_releases"] == 3
    assert "releases 3, within the pure budget" in fedldp_command("ledger", "verify", path).out
    assert "renewed once" in fedldp_command("ledger", "verify", path).out
