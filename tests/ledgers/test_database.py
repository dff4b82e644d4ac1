"""What a client keeps in its ledger's file, what a run promised, and a connection that stays."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from ledger_helpers import ONE, PLENTY, apart, filled, forks, fresh, never, release

from fedldp.core.errors import DataError, LedgerUnusable, OutOfTurn, OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger


def accept(ledger: SqliteLedger, run: str, promised: float, state: str = "accepted") -> None:
    with ledger.database.writing() as db:
        db.execute(
            "INSERT INTO agreements VALUES (?, ?, '', '', '', NULL, ?, ?, '')",
            (run, run, json.dumps([promised]), state),
        )


# What is kept


def test_what_an_answer_keeps_is_there_exactly_if_it_is_charged(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    ledger.keep("run", 0, "for the run", b"1")

    def make(round: int, *, fails: bool = False) -> Callable[[], bytes]:
        def made() -> bytes:
            assert ledger.keep("run", round, "secret", b"2") == b"2"
            assert ledger.keep("run", round, "secret", b"3") == b"2", "the first one stays"
            assert ledger.kept("run", round, "secret") == b"2"
            assert SqliteLedger(path).kept("run", round, "secret") is None, "not yet charged"
            if fails:
                raise DataError("it failed")
            return fresh()

        return made

    with pytest.raises(DataError):
        release(ledger, "run", 1, ONE, make(1, fails=True))
    assert (ledger.kept("run", 1, "secret"), ledger.releases()) == (None, [])
    release(ledger, "run", 1, ONE, make(1))
    release(ledger, "run", 1, ONE, fresh, phase=1)
    assert ledger.kept("run", 1, "secret") == b"2"
    release(ledger, "other", 1, ONE, fresh)  # the last of the budget

    def spent_meanwhile() -> bytes:
        ledger.keep("run", 2, "secret", b"4")
        return fresh()

    with pytest.raises(OverBudget):
        release(ledger, "run", 2, ONE, spent_meanwhile)
    assert ledger.kept("run", 2, "secret") is None
    assert ledger.kept("run", 1, "secret") == b"2"
    assert ledger.kept("run", 0, "for the run") == b"1"


def test_nothing_is_released_within_a_block_that_only_reads(path: Path) -> None:
    """Its charge would be rolled back, after the bytes had left."""
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    with pytest.raises(LedgerUnusable, match="only reads"), ledger.database.reading():
        release(ledger, "run", 1, ONE, fresh)
    assert ledger.releases() == []
    with ledger.database.writing(), ledger.database.reading():
        release(ledger, "run", 1, ONE, fresh)
    assert len(ledger.releases()) == 1


def test_a_budget_spent_while_an_answer_is_made_drops_the_answer(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 1.0))

    def make() -> bytes:
        ledger.keep("run", 1, "secret", b"2")
        release(SqliteLedger(path), "other", 1, ONE, fresh)
        return fresh()

    with pytest.raises(OverBudget):
        release(ledger, "run", 1, ONE, make)
    assert ledger.kept("run", 1, "secret") is None
    assert [entry.run for entry in ledger.verify()] == ["other"]


def test_an_answer_that_another_process_gave_meanwhile_is_repeated(path: Path) -> None:
    ledger, given = SqliteLedger(path, PLENTY), []

    def make() -> bytes:
        ledger.keep("run", 1, "secret", b"mine")
        other = SqliteLedger(path)

        def theirs() -> bytes:
            other.keep("run", 1, "secret", b"theirs")
            return fresh()

        given.append(release(other, "run", 1, ONE, theirs))
        return fresh()

    assert release(ledger, "run", 1, ONE, make) == given[0]
    assert ledger.kept("run", 1, "secret") == b"theirs"
    assert len(ledger.verify()) == 1


def test_a_later_round_removes_what_was_kept_for_an_earlier_one_from_the_file(path: Path) -> None:
    ledger, secret = SqliteLedger(path, PLENTY), b"this was a secret of round 1"
    with ledger.database.held():
        ledger.keep("run", 1, "secret", secret)
        release(ledger, "run", 1, ONE, lambda: secret[::-1])
        ledger.database.checkpoint()
        assert secret in path.read_bytes()
        release(ledger, "run", 2, ONE, fresh)
        assert ledger.kept("run", 1, "secret") is None
        ledger.database.checkpoint()
        for file in path.parent.iterdir():
            assert secret not in file.read_bytes()
            assert secret[::-1] not in file.read_bytes()
    ledger.keep("run", 3, "secret", secret)
    ledger.keep("run", 0, "order", b"5")
    ledger.forget_rounds()
    assert (ledger.kept("run", 3, "secret"), ledger.kept("run", 0, "order")) == (None, b"5")
    ledger.forget("run")
    assert ledger.kept("run", 0, "order") is None


def test_the_secret_is_drawn_with_the_file_and_stays(path: Path) -> None:
    secret = filled(path).secret
    assert len(secret) == 32
    assert SqliteLedger(path).secret == secret
    assert filled(path.with_name("other")).secret != secret
    for damage in ("UPDATE site SET value = x'00'", "DELETE FROM site"):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(damage)
        with pytest.raises(LedgerUnusable, match="its secret is damaged; restore the file"):
            _ = SqliteLedger(path).secret


# What a run promised


def test_a_run_releases_no_more_than_it_promised(path: Path) -> None:
    ledger = SqliteLedger(path, PLENTY)
    accept(ledger, "run", 2.0)
    accept(ledger, "over", 9.0, "retired")
    sent = [release(ledger, "run", round, ONE, fresh) for round in range(2)]
    with pytest.raises(OverBudget, match="than epsilon 2, the most that was said"):
        release(ledger, "run", 2, ONE, never)
    assert release(ledger, "run", 1, ONE, never) == sent[1]  # a repeated request costs nothing
    with pytest.raises(OutOfTurn, match="its agreement is retired here"):
        release(ledger, "over", 0, ONE, never)
    ledger.renew()  # renews the budget, not what a run promised
    with pytest.raises(OverBudget, match="the most that was said"):
        release(ledger, "run", 2, ONE, never)
    release(ledger, "without an agreement", 0, ONE, fresh)


# A connection that stays


def test_a_held_ledger_sees_what_other_processes_write(path: Path) -> None:
    ledger, other = filled(path), SqliteLedger(path)
    with ledger.database.held():
        for round in range(4, 20, 2):
            release(ledger, "run", round, ONE, fresh)
            assert len(ledger.releases()) == len(other.releases()) == round + 1
            release(other, "run", round + 1, ONE, fresh)
            assert len(ledger.releases()) == round + 2
        assert ledger.spent() == other.spent() == 20.0
    assert len(SqliteLedger(path).verify()) == 20


def test_a_transaction_that_fails_leaves_no_trace_in_what_a_held_ledger_knows(path: Path) -> None:
    ledger = filled(path)
    with ledger.database.held():
        before = ledger.releases()

        def charge_in_vain() -> None:
            with ledger.database.writing():
                ledger.charge_lost("lost", 1, 0, ONE)
                assert len(ledger.releases()) == 5
                raise DataError("it failed")

        with pytest.raises(DataError):
            charge_in_vain()
        assert ledger.releases() == before
        release(ledger, "run", 4, ONE, fresh)
        assert [entry.run for entry in ledger.verify()] == ["run"] * 5


@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_nothing_is_released_into_a_file_that_was_moved_away(path: Path, how: str) -> None:
    ledger, away = filled(path), path.with_name("away")
    with ledger.database.held():
        path.rename(away)
        if how == "replaced":
            shutil.copy(away, path)
        with pytest.raises(LedgerUnusable, match=r"moved or replaced while|disk I/O error"):
            release(ledger, "run", 4, ONE, fresh)
    assert len(SqliteLedger(away).verify()) == 4


@pytest.mark.parametrize("held", [False, True])
def test_nothing_is_released_from_a_file_that_cannot_be_written(
    path: Path, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, connect = filled(path), sqlite3.connect
    monkeypatch.setattr(  # as on a disk that is mounted read-only; tests may run as root
        sqlite3, "connect", lambda place, **given: connect(place.replace("=rw", "=ro"), **given)
    )
    with ledger.database.held() if held else nullcontext():
        with pytest.raises(LedgerUnusable, match="it cannot be written; check the permissions"):
            release(ledger, "run", 4, ONE, fresh)
        assert len(ledger.verify()) == 4  # it can still be read


def test_a_file_of_another_format_is_refused_by_name(path: Path) -> None:
    filled(path)
    for change, words in (
        ("user_version = 2", "its format is version 2, and this fedldp reads version 1"),
        ("application_id = 7", "it is a file of another program"),
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"PRAGMA {change}")
        with pytest.raises(LedgerUnusable, match=words):
            SqliteLedger(path)
    path.write_bytes(b"")
    with pytest.raises(LedgerUnusable, match="it is empty; check the path, or put the newest copy"):
        SqliteLedger(path)


# Races


@pytest.mark.slow
@forks
@pytest.mark.parametrize("held", [False, True])
def test_24_processes_never_pass_a_budget(path: Path, held: bool) -> None:
    ledger = SqliteLedger(path, Budget("pure", 60.5))

    def client(name: str) -> Callable[[], None]:
        def work() -> None:
            own = SqliteLedger(path, timeout_seconds=60.0)
            with own.database.held() if held else nullcontext():
                for round in itertools.count(1):
                    try:
                        release(own, name, round, ONE, fresh)
                    except OverBudget:
                        return

        return work

    processes = [apart(client(f"run {n}")) for n in range(24)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(ledger.verify()) == 60
    assert ledger.spent() == 60.0


def test_24_threads_with_one_connection_never_pass_a_budget(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 60.5))
    given: list[bytes] = []

    def work(name: str) -> None:
        for round in itertools.count(1):
            try:
                given.append(release(ledger, name, round, ONE, fresh))
            except OverBudget:
                return

    threads = [threading.Thread(target=work, args=(f"run {n}",)) for n in range(24)]
    with ledger.database.held():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ledger.verify()) == len(set(given)) == len(given) == 60
