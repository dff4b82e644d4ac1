"""The command ``fedldp ledger``, as a user types it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_helpers import ONE, asked, filled, fresh, release
from test_ledger_contract import EVENTS

from fedldp.accounting.events import PureReport
from fedldp.core.errors import LedgerUnusable, OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger


def test_possibly_lost_releases_are_charged_beyond_the_limit_and_shown(
    path: Path, fedldp_command: Any
) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    release(ledger, "run", 1, PureReport(epsilon=2.0), fresh)
    ledger.charge_lost("run lost 1", 1, 0, PureReport(epsilon=2.0))
    assert (ledger.spent(), ledger.accounts(ledger.releases())[0].left) == (4.0, -1.0)
    with pytest.raises(OverBudget, match=r" 4\.0\d+ in total"):
        release(ledger, "run", 2, PureReport(epsilon=1e-9), fresh)
    assert "remaining  epsilon -1\n" in fedldp_command("ledger", "show", path).out
    verified = fedldp_command("ledger", "verify", path)
    assert verified.status == 0
    assert "releases 2, but over the pure budget of epsilon 3.0 if releases" in verified.out


def test_a_release_beyond_the_limit_counts_as_damage_whatever_was_lost(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    ledger.charge_lost("run lost 1", 1, 0, PureReport(epsilon=4.0))
    ledger.verify()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteLedger, "_admit", lambda *_: (1.0,))
        release(ledger, "run", 1, PureReport(epsilon=1.0), fresh)
    with pytest.raises(LedgerUnusable, match="cost more than its pure budget"):
        ledger.verify()


def test_show_and_verify_as_json(path: Path, fedldp_command: Any) -> None:
    entries = filled(path, 2).verify()
    budget = {"kind": "pure", "limit": 1e6}
    left = {"spent": 2.0, "remaining": 1e6 - 2}
    summary = {
        "ledger": str(path),
        "budget": budget,
        **left,
        "num_releases": 2,
        "renewals": 0,
        "budgets": [{"unit": "client", **budget, **left, "spent_since_renewal": 2.0}],
        "last_hash": entries[1].hash,
    }
    shown = json.loads(fedldp_command("ledger", "show", path, "--json").out)
    assert shown == {**summary, "releases": shown["releases"]}
    assert shown["releases"][1] == {
        "number": 2,
        "run": "run",
        "round": 1,
        "exchange": 0,
        "question": asked("?").hex(),
        "event": {"event": "PureReport", "epsilon": 1.0, "idealised": False},
        "cost": 1.0,
        "costs": [1.0],
        "payload_sha256": entries[1].payload_sha256,
        "hash": entries[1].hash,
    }
    verified = json.loads(fedldp_command("ledger", "verify", path, "--json").out)
    assert verified == {**summary, "ok": True}


@pytest.mark.parametrize("given", [("show",), ("verify", "--json")])
def test_a_mistake_with_a_ledger_is_refused_in_one_line(
    path: Path, fedldp_command: Any, given: tuple[str, ...]
) -> None:
    line = fedldp_command("ledger", *given, path).assert_refused()
    assert "this file does not exist; check the path" in line
    assert not path.exists()
    filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM releases WHERE number = 2")
    line = fedldp_command("ledger", *given, path).assert_refused()
    assert line == f"error: ledger {path}: release 2 was changed or removed"


def test_verify_finds_a_release_recorded_elsewhere(path: Path, fedldp_command: Any) -> None:
    hashes = [entry.hash for entry in filled(path).releases()]
    for known in (hashes[0], hashes[-1][:16]):
        assert fedldp_command("ledger", "verify", path, "--has", known).out.startswith("ok:")
    for unknown, said in (("0" * 16, "an older copy"), (hashes[0][:15], "--has"), ("x", "--has")):
        assert said in fedldp_command("ledger", "verify", path, "--has", unknown).assert_refused()


def test_every_event_is_shown_whole(path: Path, fedldp_command: Any) -> None:
    """An event may hold others, and facts about what is not protected."""
    ledger = SqliteLedger(path, Budget("pure", math.inf))
    for round, event in enumerate(EVENTS):
        release(ledger, f"run {round}", 1, event, fresh)
    text = fedldp_command("ledger", "export", path).out
    for row in csv.DictReader(io.StringIO(text)):
        assert re.fullmatch(r"{event: \w+, [\w .,:{}[\]+-]*}", row["event"]), row["event"]
    assert ", client: {event: DrawnOnce, drawn: {event: PureReport, epsilon: 3.0, " in text


def test_an_export_lists_releases_and_decisions_by_date(
    fedldp_command: Any, tmp_path: Path
) -> None:
    path = tmp_path / "site.db"
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    with ledger.database.writing() as db:
        db.execute(
            "INSERT INTO agreements VALUES ('ab', 'run', 'https://one', '', '', NULL, '[3]', "
            "'accepted', '')"
        )
        ledger.database.note("accepted", "ab", "ten words")
    for round in (1, 2):
        release(ledger, "run", round, ONE, fresh)
    release(ledger, "other", 1, ONE, fresh)
    ledger.renew()
    rows = list(csv.DictReader(io.StringIO(fedldp_command("ledger", "export", path).out)))
    assert sorted(row["what"] for row in rows) == ["accepted", *["released"] * 3, "renewed"]
    released = [row for row in rows if row["what"] == "released"]
    assert [(row["run"], row["server"], row["words"], row["round"]) for row in released] == [
        ("run", "https://one", "ten words", "1"),
        ("run", "https://one", "ten words", "2"),
        ("other", "", "", "1"),
    ]
    assert [(row["price_pure"], row["total_pure"]) for row in released] == [
        ("1.0", "1.0"), ("1.0", "2.0"), ("1.0", "3.0"),
    ]  # fmt: skip
    assert [row["date"] for row in rows] == sorted(row["date"] for row in rows)
    found = json.loads(fedldp_command("ledger", "export", path, "--json").out)
    assert [row["number"] for row in found if row["what"] == "released"] == [1, 2, 3]
    (accepted,) = [row for row in found if row["what"] == "accepted"]
    assert (accepted["agreement"], accepted["server"]) == ("ab", "https://one")
