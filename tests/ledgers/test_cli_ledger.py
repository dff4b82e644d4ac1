"""The command ``fedldp ledger``, as a user types it."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import typer
from ledger_helpers import asked, filled, fresh, release

from fedldp import cli
from fedldp.accounting.events import BinaryRandomizedResponse, PureReport
from fedldp.cli.ledger import ledger_app
from fedldp.core.errors import LedgerUnusable, OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.ledger"


Outcome = tuple[int, str, str]


@pytest.fixture
def fedldp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    app = typer.Typer()
    app.add_typer(ledger_app, name="ledger")
    monkeypatch.setattr(cli, "app", app)

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fedldp", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        code = end.value.code
        return code if isinstance(code, int) else 0, printed.out, printed.err

    return call


def test_possibly_lost_releases_are_charged_beyond_the_limit_and_shown(
    path: Path, fedldp: Callable[..., Outcome]
) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    release(ledger, "run", 1, PureReport(epsilon=2.0), fresh)
    ledger.charge_lost("run lost 1", 1, 0, PureReport(epsilon=2.0))
    assert (ledger.spent(), ledger.remaining()) == (4.0, -1.0)
    with pytest.raises(OverBudget, match=r" 4\.0\d+ in total"):
        release(ledger, "run", 2, PureReport(epsilon=1e-9), fresh)
    assert "remaining  epsilon -1\n" in fedldp("ledger", "show", path)[1]
    status, out, _ = fedldp("ledger", "verify", path)
    assert status == 0
    assert out == (
        f"ok: {path}: releases 2, but over the pure budget of epsilon 3.0 if releases that may be "
        "lost are counted: nothing more is released\n"
    )
    status, out, _ = fedldp("ledger", "verify", path, "--json")
    assert json.loads(out)["remaining"] == -1.0


def test_a_release_beyond_the_limit_counts_as_damage_whatever_was_lost(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    ledger.charge_lost("run lost 1", 1, 0, PureReport(epsilon=4.0))
    ledger.verify()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteLedger, "_admit", lambda *_: (1.0,))
        release(ledger, "run", 1, PureReport(epsilon=1.0), fresh)
    with pytest.raises(LedgerUnusable, match="cost more than its pure budget"):
        ledger.verify()


def test_show_and_verify_for_people(path: Path, fedldp: Callable[..., Outcome]) -> None:
    ledger = SqliteLedger(path, Budget("pure", 1.5))
    release(
        ledger,
        "[red]run",
        0,
        BinaryRandomizedResponse(epsilon=0.1, coordinates=3),
        fresh,
        phase=7,
    )
    status, out, err = fedldp("ledger", "show", path)
    assert (status, err) == (0, "")
    assert "pure budget of epsilon 1.5" in out
    assert "spent      epsilon 0.3" in out
    assert "remaining  epsilon 1.2" in out
    assert re.search(r"1 +│ +\[red\]run +│ +0 +│ +7 +│", out)
    line = f"ok: {path}: releases 1, within the pure budget of epsilon 1.5\n"
    assert fedldp("ledger", "verify", path) == (0, line, "")


def test_show_and_verify_as_json(path: Path, fedldp: Callable[..., Outcome]) -> None:
    entries = filled(path, 2).verify()
    status, out, err = fedldp("ledger", "show", path, "--json")
    assert (status, err) == (0, "")
    summary = {
        "ledger": str(path),
        "budget": {"kind": "pure", "limit": 1e6},
        "spent": 2.0,
        "remaining": 1e6 - 2,
        "budgets": [
            {
                "unit": "client",
                "kind": "pure",
                "limit": 1e6,
                "spent": 2.0,
                "remaining": 1e6 - 2,
                "spent_since_renewal": 2.0,
            }
        ],
        "num_releases": 2,
        "renewals": 0,
        "last_hash": entries[1].hash,
    }
    shown = json.loads(out)
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
    status, out, err = fedldp("ledger", "verify", path, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {**summary, "ok": True}


@pytest.mark.parametrize("command", ["show", "verify"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_mistake_with_a_ledger_is_refused_in_one_line(
    path: Path, fedldp: Callable[..., Outcome], command: str, options: list[str]
) -> None:
    status, out, err = fedldp("ledger", command, path, *options)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: ledger \S+: this file does not exist; check the path.*\n", err)
    assert not path.exists()
    filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM releases WHERE number = 2")
    status, out, err = fedldp("ledger", command, path, *options)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: ledger \S+: release 2 was changed or removed\n", err)


def test_verify_finds_a_release_recorded_elsewhere(
    path: Path, fedldp: Callable[..., Outcome]
) -> None:
    hashes = [entry.hash for entry in filled(path).releases()]
    for known in (hashes[0], hashes[-1][:16]):
        code, out, _ = fedldp("ledger", "verify", path, "--has", known)
        assert (code, out[:3]) == (0, "ok:")
    for unknown, said in (("0" * 16, "an older copy"), (hashes[0][:15], "--has"), ("x", "--has")):
        code, out, err = fedldp("ledger", "verify", path, "--has", unknown)
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1
