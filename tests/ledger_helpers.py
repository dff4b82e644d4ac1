"""Helpers for the tests of the ledger."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting.events import Event, NoRelease, PureReport
from fedldp.core.errors import PrivacyError
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.protocol import Ledgers, Place
from fedldp.ledgers.sqlite import SqliteLedger

ONE = PureReport(epsilon=1.0)
KEYS = NoRelease(what="public keys")
PLENTY = Budget("pure", 1e6)
FORK = multiprocessing.get_context("fork")

forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def asked(request: str) -> bytes:
    """Return the digest of a request."""
    return hashlib.sha256(request.encode()).digest()


@dataclass(frozen=True)
class One:
    """One client of a ledger; every call concerns this client alone.

    Attributes:
        ledgers: the ledger with this client, and perhaps with others.
        client: the client's index.
    """

    ledgers: Ledgers
    client: int = 0

    def recall(self, run: str, round: int, phase: int, request: bytes) -> bytes | None:
        """Return the earlier answer to the same request, or raise."""
        return self._found(Place(run, round, phase, request), KEYS)

    def admit(self, run: str, round: int, phase: int, event: Event) -> None:
        """Raise unless ``event`` may be released and nothing has been released yet."""
        assert self._found(Place(run, round, phase, asked("?")), event) is None

    def release(
        self,
        run: str,
        round: int,
        phase: int,
        request: bytes,
        event: Event,
        make: Callable[[], bytes],
        most_rounds: int | None = None,
    ) -> bytes:
        """Return the bytes to send, or raise."""
        place = Place(run, round, phase, request)
        (row,) = self.ledgers.release(place, event, [self.client], lambda: [make()], most_rounds)
        if isinstance(row, PrivacyError):
            raise row
        return bytes(row)

    def _found(self, place: Place, event: Event) -> bytes | None:
        (found,) = self.ledgers.check(place, event, [self.client])
        if isinstance(found, PrivacyError):
            raise found
        return found


Budgets = Budget | Iterable[Budget]
Store = Callable[[Budgets], tuple[One, Callable[[], float]]]
"""Begins a ledger; returns one client of it, and what that client has spent."""


def release(
    ledger: Ledgers | One,
    run: str,
    round: int,
    event: Event,
    make: Callable[[], bytes],
    *,
    phase: int = 0,
    request: str = "?",
) -> bytes:
    """Release, with default values for arguments that most tests ignore."""
    one = ledger if isinstance(ledger, One) else One(ledger)
    return one.release(run, round, phase, asked(request), event, make)


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
    """Start ``work`` in another process."""
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
