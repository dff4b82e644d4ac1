"""What the tests of the ledger share."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting.budget import Budget
from fedldp.accounting.events import Event, PureReport
from fedldp.accounting.ledger import Ledger
from fedldp.accounting.sqlite_ledger import SqliteLedger

ONE = PureReport(epsilon=1.0)
PLENTY = Budget("pure", 1e6)
FORK = multiprocessing.get_context("fork")

forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def asked(question: str) -> bytes:
    """Return the digest of a question."""
    return hashlib.sha256(question.encode()).digest()


def release(
    ledger: Ledger,
    run: str,
    round: int,
    event: Event,
    make: Callable[[], bytes],
    *,
    exchange: int = 0,
    question: str = "?",
) -> bytes:
    """Release with what most tests do not care about."""
    return ledger.release(run, round, exchange, asked(question), event, make)


def fresh() -> bytes:
    return os.urandom(32)


def never() -> bytes:
    raise AssertionError("randomised, though it must not")


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def filled(path: Path, rounds: int = 4) -> SqliteLedger:
    ledger = SqliteLedger(path, PLENTY)
    for round in range(rounds):
        release(ledger, "run", round, ONE, fresh)
    return ledger


def apart(work: Callable[[], None]) -> Any:
    """Start ``work`` in a process of its own."""
    process = FORK.Process(target=work)
    process.start()
    return process


def patched(monkeypatch: pytest.MonkeyPatch, adapt: Callable[[sqlite3.Connection], None]) -> None:
    """Adapt every connection that is opened from now on."""
    connect = sqlite3.connect

    def opened(*arguments: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*arguments, **options)
        adapt(db)
        return db

    monkeypatch.setattr(sqlite3, "connect", opened)
