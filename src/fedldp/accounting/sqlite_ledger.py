"""A client's ledger in an SQLite file, each release written and synced before it leaves."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from fedldp.accounting.accountants import from_record, is_idealised
from fedldp.accounting.budget import Budget, draws_once, price, total_of
from fedldp.accounting.events import Event, to_record
from fedldp.accounting.ledger import (
    AskedOtherwise,
    LedgerUnusable,
    NoLongerKept,
    OverBudget,
    check_place,
    check_run,
    check_turn,
)
from fedldp.accounting.sqlite_entries import (
    LOST,
    Release,
    known_release,
    place_of,
    rounds_before,
)
from fedldp.accounting.sqlite_words import in_words
from fedldp.errors import ConfigError, FedldpError

_VERSION = 2
_SCHEMA = f"""
BEGIN;
PRAGMA user_version = {_VERSION};
CREATE TABLE budget (kind TEXT NOT NULL, "limit" REAL NOT NULL, hash TEXT NOT NULL);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    exchange INTEGER NOT NULL,
    question TEXT NOT NULL,
    event TEXT NOT NULL,
    cost REAL NOT NULL,
    payload BLOB,
    payload_sha256 TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (run, round, exchange)
);
"""


_ENTRY = "number, run, round, exchange, question, event, cost, payload_sha256, hash"


class SqliteLedger:
    """A client's releases in an SQLite file: a ``ledger.Ledger``.

    Guarantee: whatever ``release`` has returned is in the file, so the sum of its costs never
    under-counts: not if the process is killed at any point, the machine loses power, the disk is
    full, or several processes release at once. Nothing is released by which that sum would pass the
    budget, and for one (run, round, exchange) only ever the same bytes are returned. Where any of
    this is in doubt it refuses. It refuses events that are private for real numbers only.

    What it cannot know: that the whole file was deleted, or replaced by an older copy. Every entry
    holds a hash of all before it, so one that was changed or removed in the middle is found. Newest
    entries that were removed, or a chain that was computed anew, are found only by comparing the
    last hash with a copy that is kept elsewhere.

    Args:
        path: of the file; made, readable by its owner only, if a budget is given.
        budget: the limit on all releases together; it is stored, and must stay the same. None for
            that of an existing file.
        timeout_seconds: how long to wait for another process.

    Raises:
        LedgerUnusable: the file cannot be used, or was begun with another budget.
    """

    def __init__(
        self, path: Path | str, budget: Budget | None = None, *, timeout_seconds: float = 10.0
    ) -> None:
        self.path = Path(path).absolute()
        self._timeout = timeout_seconds
        self._found: tuple[list[tuple[Any, ...]], list[Release]] = [], []
        if not os.path.exists(self.path):
            if budget is None:
                raise LedgerUnusable(
                    f"ledger {path}: there is no such file; check the path, or give a budget to "
                    "begin a ledger"
                )
            _create(self.path, budget)
        with self._open() as db:
            self.budget = self._stored_budget(db)
        if budget not in (None, self.budget):
            raise self._damaged(f"it was begun with a {self.budget}, not a {budget}")

    def recall(self, run: str, round: int, exchange: int, question: bytes) -> bytes | None:
        """Return the bytes that answered this very question before, or None: see ``Ledger``."""
        check_place(run, round, exchange, question)
        with self._open() as db:
            db.execute("BEGIN")
            known = known_release(self._releases(db), run, round, exchange, question)
            return None if known is None else self._kept(db, known)

    def rounds_before(self, run: str, round: int) -> int:
        """Return in how many rounds before ``round`` something was released: see ``Ledger``."""
        return rounds_before(self.releases(), run, round)

    def admit(self, run: str, round: int, exchange: int, event: Event) -> None:
        """Return if ``event`` may be released now, or was there, else raise: see ``Ledger``."""
        check_run(run)
        past = self.releases()
        place = (run, round, exchange, event)
        if not any((e.run, e.round, e.exchange, e.event) == place for e in past):
            self._admit(run, event, past)

    def release(
        self,
        run: str,
        round: int,
        exchange: int,
        question: bytes,
        event: Event,
        make: Callable[[], bytes],
        *,
        most_rounds: int | None = None,
    ) -> bytes:
        """Charge ``event``, and return the bytes to send once that is synced to the disk.

        See ``Ledger``. The bytes of a run's latest round are kept: if sending fails, or the process
        is killed, ask again for the same, and they are returned unchanged at no further cost. To
        randomise again would be a second release.
        """
        check_place(run, round, exchange, question)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            past = self._releases(db)
            known = known_release(past, run, round, exchange, question)
            if known is not None:
                if known.event != event:
                    raise AskedOtherwise(
                        f"{place_of(known)} was released as {known.event}, not as {event}"
                    )
                return self._kept(db, known)
            check_turn(rounds_before(past, run, round), most_rounds)
            costs = self._admit(run, event, past)
            payload = make()
            self._add(db, past, (run, round, exchange, question), event, costs, payload)
        return payload

    def charge_lost(self, run: str, round: int, exchange: int, event: Event) -> None:
        """Charge what may have been released, and is in no ledger any more: see ``LOST``.

        Whatever the budget: it has left already. Where the costs pass the budget by it, nothing is
        released any more.
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            past = self._releases(db)
            paid = [entry.event for entry in past if entry.run == run]
            costs = price(event, self.budget.kind, paid)
            self._add(db, past, (run, round, exchange, LOST), event, costs, b"")

    def releases(self) -> list[Release]:
        """Return all entries, oldest first.

        Raises:
            LedgerUnusable: the file cannot be read, or an entry was changed or removed.
        """
        with self._open() as db:
            db.execute("BEGIN")
            return self._releases(db)

    def spent(self) -> float:
        """Return the cost of all releases, rounded up."""
        return self.budget.spent(entry.cost for entry in self.releases())

    def remaining(self) -> float:
        """Return what is left of the budget, rounded down."""
        return self.budget.remaining(entry.cost for entry in self.releases())

    def verify(self) -> list[Release]:
        """Check the whole file, and return its entries.

        Beyond what every use of the ledger checks (version, budget, hashes, events and costs), the
        file's own structure, the bytes that are kept, and that nothing was released by which the
        total passed the budget.

        Raises:
            LedgerUnusable: something is wrong.
        """
        with self._open() as db:
            db.execute("BEGIN")
            structure = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if structure != "ok":
                raise self._damaged(structure)
            entries = self._releases(db)
            for entry in entries:
                self._payload(db, entry)
        released = [n for n, entry in enumerate(entries, 1) if entry.question != LOST.hex()]
        until = entries[: released[-1]] if released else []
        if self.budget.remaining(entry.cost for entry in until) < 0:
            raise self._damaged(f"the releases cost more than its {self.budget}")
        return entries

    def _add(
        self,
        db: sqlite3.Connection,
        past: list[Release],
        place: tuple[str, int, int, bytes],
        event: Event,
        costs: float,
        payload: bytes,
    ) -> None:
        """Add an entry, and commit; bytes of earlier rounds of the run are kept no longer."""
        run, round, exchange, question = place
        digest = hashlib.sha256(payload).hexdigest()
        number = len(past) + 1
        entry = (number, run, round, exchange, question.hex(), _text(event), costs, digest)
        chained = _chain(past[-1].hash if past else _genesis(self.budget), *entry)
        db.execute("UPDATE releases SET payload = NULL WHERE run = ? AND round < ?", (run, round))
        db.execute(
            f"INSERT INTO releases ({_ENTRY}, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*entry, chained, payload),
        )
        db.execute("COMMIT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for one use, so that none is shared by threads or forked processes.

        EXTRA also syncs the folder once the rollback journal is deleted, which is what commits.
        Without that a power cut could bring the journal back, and undo a release that has left.
        """
        try:
            with closing(
                sqlite3.connect(
                    f"{self.path.as_uri()}?mode=rw",
                    uri=True,
                    timeout=self._timeout,
                    isolation_level=None,
                )
            ) as db:
                db.execute("PRAGMA journal_mode = DELETE")
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("PRAGMA fullfsync = ON")  # what a sync means on macOS
                yield db
        except sqlite3.Error as error:
            raise self._damaged(in_words(error)) from error

    def _damaged(self, what: str) -> LedgerUnusable:
        return LedgerUnusable(f"ledger {self.path}: {what}")

    def _admit(self, run: str, event: Event, past: list[Release]) -> float:
        if is_idealised(event):
            raise OverBudget(
                f"event {type(event).__name__}: it is private for real numbers only, not for the "
                "floats that would be sent; nothing was released"
            )
        spent = total_of(entry.cost for entry in past)
        return self.budget.admit(event, spent, [entry.event for entry in past if entry.run == run])

    def _stored_budget(self, db: sqlite3.Connection) -> Budget:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 1:
            raise self._damaged(
                "it is of version 1, which an earlier fedldp wrote; keep it, and begin a new one "
                "with the budget that its own fedldp shows to remain"
            )
        if version != _VERSION:
            raise self._damaged(f"this is no ledger of version {_VERSION}")
        rows = db.execute('SELECT kind, "limit", hash FROM budget').fetchall()
        try:
            ((kind, limit, stored),) = rows
            budget = Budget(kind, limit)
        except (ValueError, TypeError, ConfigError) as error:
            raise self._damaged("its budget is damaged") from error
        if stored != _genesis(budget):
            raise self._damaged("its budget was changed")
        return budget

    def _releases(self, db: sqlite3.Connection) -> list[Release]:
        if self._stored_budget(db) != self.budget:
            raise self._damaged("its budget was changed")
        rows = db.execute(f"SELECT {_ENTRY} FROM releases ORDER BY number").fetchall()
        # What is still as it was found right before need not be checked again.
        same = sum(1 for _ in takewhile(_equal, zip(rows, self._found[0], strict=False)))
        entries = self._found[1][:same]
        drawn: defaultdict[str, dict[Event, None]] = defaultdict(dict)  # by run
        for entry in entries:
            if draws_once(entry.event):
                drawn[entry.run][entry.event] = None
        for row in rows[same:]:
            entries.append(self._checked(row, entries, drawn))
        self._found = rows, entries
        return list(entries)

    def _checked(
        self, row: tuple[Any, ...], past: list[Release], drawn: defaultdict[str, dict[Event, None]]
    ) -> Release:
        """Return the entry that a row holds after those of the past."""
        number, run, round, exchange, question, text, costs, digest, stored = row
        previous = past[-1].hash if past else _genesis(self.budget)
        if stored != _chain(previous, *row[:-1]) or number != len(past) + 1:
            raise self._damaged(f"release {len(past) + 1} was changed or removed")
        try:
            event = from_record(json.loads(text))
            expected = price(event, self.budget.kind, drawn[run])
            # The last digit of a mu^2 may differ between versions of scipy.
            right = math.isclose(costs, expected, rel_tol=1e-9)
        except (FedldpError, ValueError, TypeError, OverflowError) as error:
            raise self._damaged(f"release {number} is not understood: {error}") from error
        if not right:
            raise self._damaged(f"release {number} is charged {costs!r}, not {expected!r}")
        if draws_once(event):
            drawn[run][event] = None
        return Release(number, run, round, exchange, question, event, costs, digest, stored)

    def _kept(self, db: sqlite3.Connection, known: Release) -> bytes:
        payload = self._payload(db, known)
        if payload is None:
            raise NoLongerKept(
                f"{place_of(known)} was released before, and its bytes are no longer kept"
            )
        return payload

    def _payload(self, db: sqlite3.Connection, entry: Release) -> bytes | None:
        payload: bytes | None
        query = "SELECT payload FROM releases WHERE number = ?"
        (payload,) = db.execute(query, (entry.number,)).fetchone()
        if payload is not None and hashlib.sha256(payload).hexdigest() != entry.payload_sha256:
            raise self._damaged(f"the bytes of release {entry.number} were changed")
        return payload


def _equal(rows: tuple[object, object]) -> bool:
    return rows[0] == rows[1]


def _create(path: Path, budget: Budget) -> None:
    """Make the file appear complete, so that an emptied file is never taken for a new ledger."""
    try:
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.new-")  # mode 0600
        os.close(handle)
        try:
            with closing(sqlite3.connect(partial, isolation_level=None)) as db:
                db.executescript(_SCHEMA)
                row = (budget.kind, float(budget.limit), _genesis(budget))
                db.execute("INSERT INTO budget VALUES (?, ?, ?)", row)
                db.execute("COMMIT")
            os.link(partial, path)
        except FileExistsError:
            pass  # another process began it first
        finally:
            os.unlink(partial)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else in_words(error)
        raise LedgerUnusable(f"ledger {path}: it cannot be made: {reason}") from error


def _text(event: Event) -> str:
    return json.dumps(to_record(event), allow_nan=False)


def _genesis(budget: Budget) -> str:
    return _chain("", _VERSION, budget.kind, float(budget.limit))


def _chain(previous: str, *fields: object) -> str:
    # A damaged file may hold values of any type.
    return hashlib.sha256(json.dumps([previous, *fields], default=str).encode()).hexdigest()
