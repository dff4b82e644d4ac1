"""The client's ledger on a full disk, locked, under contention, and killed."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest
from ledger_helpers import ONE, PLENTY, apart, digest, filled, forks, fresh, patched, release

from fedldp.core.errors import LedgerUnusable
from fedldp.ledgers.sqlite import SqliteLedger

# Disks and locks


@pytest.mark.slow
@forks
@pytest.mark.parametrize("payload", [0, 5_000, 1_000_000])
def test_a_file_that_cannot_grow_refuses(path: Path, payload: int) -> None:
    # The operating system fails the write at any page.
    ledger = filled(path, 40)

    def attempt() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size - 4096,) * 2)
        for round in itertools.count(40):
            try:
                release(ledger, "run", round, ONE, lambda: bytes(payload))
            except LedgerUnusable:
                os._exit(round - 40)

    process = apart(attempt)
    process.join()
    assert 0 <= process.exitcode < 40
    assert len(ledger.verify()) == 40 + process.exitcode
    release(ledger, "run", 90, ONE, fresh)


@forks
def test_a_ledger_cannot_begin_on_a_full_disk(path: Path) -> None:
    def attempt() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            SqliteLedger(path, PLENTY)
        except LedgerUnusable as error:
            os._exit(7 if "cannot be created" in str(error) else 1)

    process = apart(attempt)
    process.join()
    assert process.exitcode == 7
    assert list(path.parent.iterdir()) == []


def test_a_locked_file_refuses_after_a_while(path: Path) -> None:
    filled(path)
    ledger = SqliteLedger(path, timeout_seconds=0.05)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnusable, match="database is locked"):
            release(ledger, "run", 4, ONE, fresh)
        assert ledger.spent() == 4.0  # reading still works
        other.execute("COMMIT")
        other.execute("BEGIN")
        other.execute("SELECT * FROM releases").fetchone()
        with pytest.raises(LedgerUnusable, match="database is locked"):
            release(ledger, "run", 4, ONE, fresh)  # a reader delays the commit
    assert ledger.spent() == 4.0
    release(ledger, "run", 4, ONE, fresh)


def test_a_commit_is_synced_with_its_folder(path: Path) -> None:
    ledger = filled(path)
    for held, journal in ((nullcontext, "delete"), (ledger.database.held, "wal")):
        with held(), ledger.database.writing() as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
            assert db.execute("PRAGMA secure_delete").fetchone() == (1,)
            assert db.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert [each.name for each in path.parent.iterdir()] == [path.name]


# Several processes, and kills


def test_a_ledger_that_another_process_began_meanwhile_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as meanwhile:

        def begin_another(_: sqlite3.Connection) -> None:
            meanwhile.undo()
            filled(path)

        patched(meanwhile, begin_another)
        ledger = SqliteLedger(path, PLENTY)
    assert ledger.spent() == 4.0


@pytest.mark.slow
@forks
@pytest.mark.parametrize(
    ("before", "round", "phase"),
    [(2, 2, 0), (2, 1, 3), (0, 0, 0)],
    ids=["next round", "next phase", "first"],
)
def test_a_ledger_killed_at_any_statement_never_undercounts(
    path: Path, monkeypatch: pytest.MonkeyPatch, before: int, round: int, phase: int
) -> None:
    outcomes = []
    for place in range(100):
        path.unlink(missing_ok=True)
        for journal in path.parent.iterdir():
            journal.unlink()
        if before:
            filled(path, before)

        def client(place: int = place) -> None:
            count = itertools.count()

            def die(_: str) -> None:
                if next(count) == place:
                    os.kill(os.getpid(), signal.SIGKILL)

            patched(monkeypatch, lambda db: db.set_trace_callback(die))
            release(SqliteLedger(path, PLENTY), "run", round, ONE, fresh, phase=phase)

        process = apart(client)
        process.join()
        ledger = SqliteLedger(path, PLENTY)
        entries = ledger.verify()
        retried = release(ledger, "run", round, ONE, fresh, phase=phase)
        outcomes.append(len(entries) - before)
        assert digest(retried) == ledger.verify()[-1].payload_sha256
        assert ledger.spent() == before + 1
        if process.exitcode == 0:
            break
    assert place > 10
    assert outcomes == [0] * place + [1]
