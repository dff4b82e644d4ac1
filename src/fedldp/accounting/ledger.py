"""The client's privacy ledger: what it has released, and the refusal to release more.

The client's own ledger decides, whatever a server asks for. A simulation's clients have a
``memory_ledger.MemoryLedger`` instead.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedldp.accounting.budget import Budget, cost, total_of
from fedldp.accounting.check import check_count
from fedldp.accounting.events import Event, PureReport, from_record, to_record
from fedldp.errors import ConfigError, FedldpError, PrivacyError

_VERSION = 1
_LARGEST_RUN = 200
_LARGEST_ROUND = 2**63 - 1  # of SQLite's integers
_SCHEMA = f"""
BEGIN;
PRAGMA user_version = {_VERSION};
CREATE TABLE budget (kind TEXT NOT NULL, "limit" REAL NOT NULL, hash TEXT NOT NULL);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    event TEXT NOT NULL,
    cost REAL NOT NULL,
    payload BLOB,
    payload_sha256 TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (run, round)
);
"""


@dataclass(frozen=True)
class Release:
    """One entry of a ledger.

    Attributes:
        number: 1, 2, 3 and so on.
        run: identifies the run.
        round: of that run.
        event: what was released.
        cost: what it added to the budget.
        payload_sha256: of the bytes that were released, in hexadecimal.
        hash: SHA-256 of this entry and the hash of the one before, in hexadecimal.
    """

    number: int
    run: str
    round: int
    event: Event
    cost: float
    payload_sha256: str
    hash: str


class Ledger:
    """A client's releases in an SQLite file, each written and synced before it leaves.

    Guarantee: whatever ``release`` has returned is in the file, so the sum of its costs never
    under-counts: not if the process is killed at any point, the machine loses power, the disk is
    full, or several processes release at once. That sum never passes the budget, and for one
    (run, round) only ever the same bytes are returned. Where any of this is in doubt it refuses.

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
        PrivacyError: the file cannot be used, or was begun with another budget.
    """

    def __init__(
        self, path: Path | str, budget: Budget | None = None, *, timeout_seconds: float = 10.0
    ) -> None:
        self.path = Path(path).absolute()
        self._timeout = timeout_seconds
        if not os.path.exists(self.path):
            if budget is None:
                raise PrivacyError(
                    f"ledger {path}: there is no such file; check the path, or give a budget to "
                    "begin a ledger"
                )
            _create(self.path, budget)
        with self._open() as db:
            self.budget = self._stored_budget(db)
        if budget not in (None, self.budget):
            raise PrivacyError(f"ledger {path}: it was begun with a {self.budget}, not a {budget}")

    def release(self, run: str, round: int, event: Event, make: Callable[[], bytes]) -> bytes:
        """Charge ``event``, and return the bytes to send once that is synced to the disk.

        The bytes of a run's latest release are kept: if sending fails, or the process is killed,
        ask again for the same run and round, and they are returned unchanged at no further cost. To
        randomise again would be a second release.

        Args:
            run: identifies the run; 1 to 200 printable characters.
            round: of that run, at least 0.
            event: what ``make`` will release.
            make: returns the randomised bytes. Called at most once, with the file locked, and only
                if the budget covers the event.

        Raises:
            PrivacyError: the budget does not cover the event; this round was released as another
                event, or its bytes are no longer kept; or the file cannot be written. Nothing was
                released. An error of ``make`` is passed on, and costs nothing.
        """
        _check_release(run, round, event)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            past = self._releases(db)
            for known in past:
                if (known.run, known.round) == (run, round):
                    return self._again(db, known, event)
            price = self.budget.admit(event, total_of(entry.cost for entry in past))
            payload = make()
            digest = hashlib.sha256(payload).hexdigest()
            entry = (len(past) + 1, run, round, _text(event), price, digest)
            chained = _chain(past[-1].hash if past else _genesis(self.budget), *entry)
            db.execute("UPDATE releases SET payload = NULL WHERE run = ?", (run,))
            db.execute(
                "INSERT INTO releases (number, run, round, event, cost, payload_sha256, hash, "
                "payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*entry, chained, payload),
            )
            db.execute("COMMIT")
        return payload

    def releases(self) -> list[Release]:
        """Return all entries, oldest first.

        Raises:
            PrivacyError: the file cannot be read, or an entry was changed or removed.
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
        file's own structure, the bytes that are kept, and that the total is within the budget.

        Raises:
            PrivacyError: something is wrong.
        """
        with self._open() as db:
            db.execute("BEGIN")
            structure = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if structure != "ok":
                raise self._damaged(structure)
            entries = self._releases(db)
            for entry in entries:
                self._payload(db, entry)
        if self.budget.remaining(entry.cost for entry in entries) < 0:
            raise self._damaged(f"the releases cost more than its {self.budget}")
        return entries

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
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> PrivacyError:
        return PrivacyError(f"ledger {self.path}: {what}")

    def _stored_budget(self, db: sqlite3.Connection) -> Budget:
        (version,) = db.execute("PRAGMA user_version").fetchone()
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
        entries: list[Release] = []
        previous = _genesis(self.budget)
        for row in db.execute(
            "SELECT number, run, round, event, cost, payload_sha256, hash FROM releases "
            "ORDER BY number"
        ):
            number, run, round, text, price, digest, stored = row
            if stored != _chain(previous, *row[:-1]) or number != len(entries) + 1:
                raise self._damaged(f"release {len(entries) + 1} was changed or removed")
            try:
                event = from_record(json.loads(text))
                expected = cost(event, self.budget.kind)
            except (FedldpError, ValueError, TypeError, OverflowError) as error:
                raise self._damaged(f"release {number} is not understood: {error}") from error
            # The last digit of a mu^2 may differ between versions of scipy.
            if not math.isclose(price, expected, rel_tol=1e-9):
                raise self._damaged(f"release {number} is charged {price!r}, not {expected!r}")
            previous = stored
            entries.append(Release(number, run, round, event, price, digest, stored))
        return entries

    def _again(self, db: sqlite3.Connection, known: Release, event: Event) -> bytes:
        name = f"run {known.run} round {known.round}"
        if known.event != event:
            raise self._damaged(f"{name} was released as {known.event}, not as {event}")
        payload = self._payload(db, known)
        if payload is None:
            raise self._damaged(f"{name} was released before, and its bytes are no longer kept")
        return payload

    def _payload(self, db: sqlite3.Connection, entry: Release) -> bytes | None:
        payload: bytes | None
        query = "SELECT payload FROM releases WHERE number = ?"
        (payload,) = db.execute(query, (entry.number,)).fetchone()
        if payload is not None and hashlib.sha256(payload).hexdigest() != entry.payload_sha256:
            raise self._damaged(f"the bytes of release {entry.number} were changed")
        return payload


def _check_release(run: str, round: int, event: Event) -> None:
    # A server chooses the name of a run, and people read it in a terminal.
    if not (0 < len(run) <= _LARGEST_RUN and run.isprintable()):
        raise ConfigError(f"run = {run!a}: give 1 to {_LARGEST_RUN} printable characters")
    check_count("round", round)
    if round > _LARGEST_ROUND:
        raise ConfigError(f"round = {round}: give at most {_LARGEST_ROUND}")
    if isinstance(event, PureReport) and event.idealised:
        raise PrivacyError(
            "event PureReport: it is private for real numbers only, not for the floats that would "
            "be sent; nothing was released"
        )


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
        reason = error.strerror if isinstance(error, OSError) else error
        raise PrivacyError(f"ledger {path}: it cannot be made: {reason}") from error


def _text(event: Event) -> str:
    return json.dumps(to_record(event), allow_nan=False)


def _genesis(budget: Budget) -> str:
    return _chain("", _VERSION, budget.kind, float(budget.limit))


def _chain(previous: str, *fields: object) -> str:
    # A damaged file may hold values of any type.
    return hashlib.sha256(json.dumps([previous, *fields], default=str).encode()).hexdigest()
