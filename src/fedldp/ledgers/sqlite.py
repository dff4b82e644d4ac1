"""A client's ledger in an SQLite file; each release is written and synced before it is sent."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from fedldp.accounting.accountants import from_record, real_arithmetic_only
from fedldp.accounting.events import Event, NoRelease, to_record
from fedldp.accounting.prices import draws_once
from fedldp.core.errors import (
    AskedOtherwise,
    ConfigError,
    FedldpError,
    LedgerUnusable,
    NoLongerKept,
    OverBudget,
    PrivacyError,
)
from fedldp.ledgers.budget import Budget, admit_by_all, each_of, total_of
from fedldp.ledgers.protocol import (
    Clients,
    Holds,
    Place,
    Rows,
    Verdict,
    always,
    check_place,
    check_turn,
    lost_draws,
    went_back,
)

_VERSION = 1
"""The version of the file's format."""

_SCHEMA = f"""
BEGIN;
PRAGMA user_version = {_VERSION};
CREATE TABLE budget (
    unit TEXT NOT NULL,
    kind TEXT NOT NULL,
    "limit" REAL NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    request TEXT NOT NULL,
    event TEXT NOT NULL,
    costs TEXT NOT NULL,
    payload BLOB,
    payload_sha256 TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (run, round, phase)
);
"""
"""The tables. ``costs`` is a JSON list: what a release added to each budget."""


_ENTRY = "number, run, round, phase, request, event, costs, payload_sha256, hash"


LOST = hashlib.sha256(b"questions that were lost with a ledger").digest()
"""Stands for the unknown request of a possible release that no ledger records."""

RENEWED = hashlib.sha256(b"the owner of this ledger has renewed its budget").digest()
"""Stands for the request in an entry that renews the budget. No message has this digest, and the
entry's run is "", which is not a valid name of a run."""


@dataclass(frozen=True)
class Release:
    """One entry of a ledger.

    Attributes:
        number: 1, 2, 3 and so on.
        run: identifies the run.
        round: the round of that run.
        phase: the phase of that round.
        request: SHA-256 of the request, in hexadecimal.
        event: what was released.
        costs: what it added to each budget.
        payload_sha256: SHA-256 of the released bytes, in hexadecimal.
        hash: SHA-256 of this entry and of the previous entry's hash, in hexadecimal.
    """

    number: int
    run: str
    round: int
    phase: int
    request: str
    event: Event
    costs: tuple[float, ...]
    payload_sha256: str
    hash: str

    @property
    def cost(self) -> float:
        """What the release added to the ledger's first budget."""
        return self.costs[0]

    @property
    def renews(self) -> bool:
        """Whether this entry is not a release but the owner's renewal of the budget."""
        return self.run == "" and self.request == RENEWED.hex()


def since_renewal(entries: Sequence[Release]) -> Sequence[Release]:
    """Return the entries after the owner's last renewal of the budget; all if there was none."""
    for place in reversed(range(len(entries))):
        if entries[place].renews:
            return entries[place + 1 :]
    return entries


def renewals(entries: Sequence[Release]) -> int:
    """Return how often the owner renewed the budget."""
    return sum(entry.renews for entry in entries)


def times(often: int) -> str:
    """Return a number of repetitions in words."""
    return "once" if often == 1 else f"{often} times"


def rounds_before(releases: list[Release], run: str, round: int) -> int:
    """Return the number of rounds of a run before ``round`` in which something was released."""
    return len({each.round for each in releases if each.run == run and each.round < round})


def known_release(past: list[Release], place: Place) -> Release | None:
    """Return the entry of an earlier release for the same request, or None."""
    run, round, phase, request = place
    of_run = [entry for entry in past if entry.run == run]
    latest = max((entry.round for entry in of_run), default=round)
    if round < latest:
        raise went_back(run, round, latest)
    for entry in of_run:
        if (entry.round, entry.phase) == (round, phase):
            if entry.request != request.hex():
                raise AskedOtherwise(f"{place_of(entry)} was released for another request")
            return entry
    return None


def place_of(entry: Release) -> str:
    """Return the run, round and phase of an entry, in words."""
    return f"run {entry.run} round {entry.round} phase {entry.phase}"


class SqliteLedger:
    """A client's releases in an SQLite file: the ``Ledgers`` of one client, whatever its index.

    Guarantee: whatever ``release`` has returned is in the file. So the sum of the costs in the file
    never under-counts, even if the process is killed at any point, the machine loses power, the
    disk is full, or several processes release at once. Nothing is released that would push the sum
    since the owner's last renewal beyond the budget. For one (run, round, phase) it returns the
    same bytes every time. If any of this is in doubt, it refuses. It also refuses events that are
    private only for real numbers.

    It cannot detect that the whole file was deleted or replaced by an older copy. Every entry holds
    a hash of all entries before it, so a change or removal in the middle is detected. Removal of
    the newest entries, or a recomputed chain, is detected only if the last hash is compared with a
    copy stored elsewhere.

    Args:
        path: the file. If a budget is given and the file does not exist, it is created, readable
            only by its owner.
        budget: the limit on the total cost of all releases, or several limits with different units.
            It is stored and must stay the same. None: use the budget of an existing file.
        timeout_seconds: how long to wait for another process.

    Raises:
        LedgerUnusable: the file cannot be used or was begun with another budget.
    """

    def __init__(
        self,
        path: Path | str,
        budget: Budget | Iterable[Budget] | None = None,
        *,
        timeout_seconds: float = 10.0,
    ) -> None:
        given = each_of(budget)
        self.path = Path(path).absolute()
        self._timeout = timeout_seconds
        self._found: tuple[list[tuple[Any, ...]], list[Release]] = [], []
        if not os.path.exists(self.path):
            if not given:
                raise LedgerUnusable(
                    f"ledger {path}: this file does not exist; check the path, or give a budget "
                    "to begin a ledger"
                )
            _create(self.path, given)
        with self._open() as db:
            self.budgets = self._stored_budgets(db)
        if given and given != self.budgets:
            raise self._damaged(
                f"it was begun with a {in_list(self.budgets)}, not a {in_list(given)}"
            )

    @property
    def budget(self) -> Budget:
        """The budget of the largest unit."""
        return self.budgets[0]

    def check(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        max_rounds: int | None = None,
        holds: Holds = always,
    ) -> list[Verdict]:
        """Return whether the client may release ``event`` now: see ``Ledgers``."""
        check_place(place)
        client = _only(clients)
        try:
            with self._open() as db:
                db.execute("BEGIN")
                past = self._releases(db)
                known = known_release(past, place)
                if known is not None:
                    return [self._kept(db, known)]
            before = rounds_before(past, place.run, place.round)
            check_turn(before, max_rounds)
            if before and draws_once(event) and not holds(client):
                raise lost_draws(place.run)
            self._admit(place.run, event, past)
        except PrivacyError as error:
            return [error]
        return [None]

    def release(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        make: Callable[[], Rows],
        max_rounds: int | None = None,
    ) -> list[bytes]:
        """Charge ``event``, sync the charge to the disk, and then return the bytes to send.

        See ``Ledgers``. The bytes released in a run's latest round are stored. If sending fails or
        the process is killed, call this again for the same release: it returns the same bytes, at
        no additional cost. Randomising again would be a second release.
        """
        check_place(place)
        _only(clients)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            past = self._releases(db)
            known = known_release(past, place)
            if known is not None:
                if known.event != event:
                    raise AskedOtherwise(
                        f"{place_of(known)} was released as {known.event}, not as {event}"
                    )
                return [self._kept(db, known)]
            check_turn(rounds_before(past, place.run, place.round), max_rounds)
            costs = self._admit(place.run, event, past)
            (row,) = make()
            payload = bytes(row)
            self._add(db, past, place, event, costs, payload)
        return [payload]

    def charge_lost(self, run: str, round: int, phase: int, event: Event) -> None:
        """Charge a release that may have happened but that no ledger records: see ``LOST``.

        The charge may exceed the budget, because the bytes may have been sent. Once the budget is
        exceeded, nothing more is released.
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            past = self._releases(db)
            paid = [entry.event for entry in past if entry.run == run]
            costs = tuple(budget.price(event, paid) for budget in self.budgets)
            self._add(db, past, Place(run, round, phase, LOST), event, costs, b"")

    def renew(self) -> Release:
        """Make the whole budget available again; return the entry that records this renewal.

        Only the owner of the ledger can do this, for the owner's own data; nothing else renews a
        budget, not even the passage of time. Earlier releases are not undone: after n renewals, all
        releases of the ledger together cost at most n + 1 times the limit.

        Raises:
            LedgerUnusable: the file cannot be used, or nothing was released since the last renewal.
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            past = self._releases(db)
            if not since_renewal(past):
                raise LedgerUnusable(
                    f"ledger {self.path}: nothing was released since it was created or renewed, so "
                    "there is nothing to renew"
                )
            event = NoRelease(what="renewal")
            place = Place("", renewals(past) + 1, 0, RENEWED)
            self._add(db, past, place, event, (0.0,) * len(self.budgets), b"")
            return self._releases(db)[-1]

    def releases(self) -> list[Release]:
        """Return all entries, oldest first, including those that renewed the budget.

        Raises:
            LedgerUnusable: the file cannot be read, or an entry was changed or removed.
        """
        with self._open() as db:
            db.execute("BEGIN")
            return self._releases(db)

    def spent(self) -> float:
        """Return the cost of all releases under ``budget``, rounded up."""
        return self.all_spent(self.releases())[0]

    def remaining(self) -> float:
        """Return what is left of ``budget``, rounded down."""
        return self.all_remaining(self.releases())[0]

    def all_spent(self, entries: Sequence[Release]) -> list[float]:
        """Return the cost of some entries under each budget, rounded up, across renewals."""
        return [
            budget.spent(entry.costs[at] for entry in entries)
            for at, budget in enumerate(self.budgets)
        ]

    def all_remaining(self, entries: Sequence[Release]) -> list[float]:
        """Return what entries since the last renewal leave of each budget, rounded down."""
        counted = since_renewal(entries)
        return [
            budget.remaining(entry.costs[at] for entry in counted)
            for at, budget in enumerate(self.budgets)
        ]

    def renewed_words(self, entries: Sequence[Release]) -> str:
        """Return in words how often the budget was renewed and the total spent; "" if it never was.

        The words continue a sentence.
        """
        often = renewals(entries)
        if not often:
            return ""
        total = " and ".join(
            budget.amount(spent)
            for budget, spent in zip(self.budgets, self.all_spent(entries), strict=True)
        )
        return f"; renewed {times(often)}, {total} was spent since the beginning"

    def verify(self) -> list[Release]:
        """Check the whole file and return its entries.

        Every use of the ledger checks version, budget, hashes, events and costs. This method also
        checks the structure of the file, the stored bytes, and that no release pushed the total
        beyond the budget.

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
        ends = [place for place, entry in enumerate(entries) if entry.renews]
        for end in (*ends, len(entries)):
            past = entries[:end]
            released = [n for n, entry in enumerate(past, 1) if entry.request != LOST.hex()]
            until = past[: released[-1]] if released else []
            for budget, left in zip(self.budgets, self.all_remaining(until), strict=True):
                if left < 0:
                    raise self._damaged(f"the releases cost more than its {budget}")
        return entries

    def _add(
        self,
        db: sqlite3.Connection,
        past: list[Release],
        place: Place,
        event: Event,
        costs: tuple[float, ...],
        payload: bytes,
    ) -> None:
        """Add an entry, delete the stored bytes of the run's earlier rounds, and commit."""
        run, round, phase, request = place
        digest = hashlib.sha256(payload).hexdigest()
        number = len(past) + 1
        cells = (_text(event), json.dumps(costs), digest)
        entry = (number, run, round, phase, request.hex(), *cells)
        chained = _chain(past[-1].hash if past else _genesis(self.budgets), *entry)
        db.execute("UPDATE releases SET payload = NULL WHERE run = ? AND round < ?", (run, round))
        db.execute(
            f"INSERT INTO releases ({_ENTRY}, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*entry, chained, payload),
        )
        db.execute("COMMIT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for one use, so that threads and forked processes never share one.

        With ``synchronous = EXTRA``, the folder is also synced after the commit, which is the
        deletion of the rollback journal. Without this, a power cut could bring the journal back and
        undo a release whose bytes have left.
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
                db.execute("PRAGMA fullfsync = ON")  # needed for a real sync on macOS
                yield db
        except sqlite3.Error as error:
            raise self._damaged(in_words(error)) from error

    def _damaged(self, what: str) -> LedgerUnusable:
        return LedgerUnusable(f"ledger {self.path}: {what}")

    def _admit(self, run: str, event: Event, past: list[Release]) -> tuple[float, ...]:
        if real_arithmetic_only(event):
            raise OverBudget(
                f"event {type(event).__name__}: it is private for real numbers only, not for the "
                "floats that would be sent; nothing was released"
            )
        counted = since_renewal(past)
        spent = [total_of(entry.costs[at] for entry in counted) for at in range(len(self.budgets))]
        paid = [entry.event for entry in past if entry.run == run]
        return admit_by_all(self.budgets, event, spent, paid)

    def _stored_budgets(self, db: sqlite3.Connection) -> tuple[Budget, ...]:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            raise self._damaged(f"this is not a ledger of version {_VERSION}")
        rows = db.execute('SELECT kind, "limit", unit, hash FROM budget').fetchall()
        try:
            budgets = each_of(Budget(*row[:-1]) for row in rows)
        except (ValueError, TypeError, ConfigError) as error:
            raise self._damaged("its budget is damaged") from error
        if not budgets:
            raise self._damaged("its budget is damaged")
        if {row[-1] for row in rows} != {_genesis(budgets)}:
            raise self._damaged("its budget was changed")
        return budgets

    def _releases(self, db: sqlite3.Connection) -> list[Release]:
        if self._stored_budgets(db) != self.budgets:
            raise self._damaged("its budget was changed")
        rows = db.execute(f"SELECT {_ENTRY} FROM releases ORDER BY number").fetchall()
        # Rows that have not changed since the last check need not be checked again.
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
        """Return the entry that a row holds, given the entries before it."""
        number, run, round, phase, request, text, cell, digest, stored = row
        previous = past[-1].hash if past else _genesis(self.budgets)
        if stored != _chain(previous, *row[:-1]) or number != len(past) + 1:
            raise self._damaged(f"release {len(past) + 1} was changed or removed")
        try:
            event = from_record(json.loads(text))
            expected = tuple(budget.price(event, drawn[run]) for budget in self.budgets)
            costs = tuple(json.loads(cell))
            # The last digit of mu^2 may differ between versions of scipy.
            right = len(costs) == len(expected) and all(
                math.isclose(one, other, rel_tol=1e-9)
                for one, other in zip(costs, expected, strict=True)
            )
        except (FedldpError, ValueError, TypeError, OverflowError) as error:
            raise self._damaged(f"release {number} cannot be read: {error}") from error
        if not right:
            raise self._damaged(
                f"release {number} is charged {_words(costs)}, not {_words(expected)}"
            )
        if draws_once(event):
            drawn[run][event] = None
        return Release(number, run, round, phase, request, event, costs, digest, stored)

    def _kept(self, db: sqlite3.Connection, known: Release) -> bytes:
        payload = self._payload(db, known)
        if payload is None:
            raise NoLongerKept(
                f"{place_of(known)} was released before, and its bytes are no longer stored"
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


def _create(path: Path, budgets: tuple[Budget, ...]) -> None:
    """Create the file in one step, so that an emptied file is never mistaken for a new ledger."""
    try:
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.new-")  # mode 0600
        os.close(handle)
        try:
            with closing(sqlite3.connect(partial, isolation_level=None)) as db:
                db.executescript(_SCHEMA)
                for budget in budgets:
                    row = (*_row(budget), _genesis(budgets))
                    db.execute("INSERT INTO budget VALUES (?, ?, ?, ?)", row)
                db.execute("COMMIT")
            os.link(partial, path)
        except FileExistsError:
            pass  # another process created the ledger first
        finally:
            os.unlink(partial)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else in_words(error)
        raise LedgerUnusable(f"ledger {path}: it cannot be created: {reason}") from error


def _text(event: Event) -> str:
    return json.dumps(to_record(event), allow_nan=False)


def _row(budget: Budget) -> tuple[object, ...]:
    return budget.unit, budget.kind, float(budget.limit)


def _genesis(budgets: tuple[Budget, ...]) -> str:
    return _chain("", _VERSION, *(cell for budget in budgets for cell in _row(budget)))


def in_list(budgets: Sequence[Budget]) -> str:
    """Return a list of budgets in words, for people."""
    return " and a ".join(map(str, budgets))


def _words(costs: tuple[float, ...]) -> str:
    return " and ".join(map(repr, costs))


def _chain(previous: str, *fields: object) -> str:
    # A damaged file may hold values of any type.
    return hashlib.sha256(json.dumps([previous, *fields], default=str).encode()).hexdigest()


def _only(clients: Clients) -> int:
    if len(clients) != 1:
        raise ConfigError(f"clients: this is the ledger of one client, not of {len(clients)}")
    return int(clients[0])


# SQLite's errors, each with a suggested fix

_WORDS = {
    "SQLITE_NOTADB": "this is not a ledger; check the path",
    "SQLITE_ERROR": "this is not a ledger, or an incomplete one; check the path",
    "SQLITE_CORRUPT": "the file is damaged; do not use an older copy, which would lack releases",
    "SQLITE_BUSY": "another process is using it; try again once that process has ended",
    "SQLITE_CANTOPEN": "it cannot be opened; check the path and the file's permissions",
    "SQLITE_READONLY": "it cannot be written; check the permissions of the file and its folder",
    "SQLITE_FULL": "the disk is full; free some space",
    "SQLITE_IOERR": "the disk cannot be read or written; check the disk",
}


def in_words(error: sqlite3.Error) -> str:
    """Return SQLite's error in our own words, if we have any, followed by SQLite's own message."""
    name = getattr(error, "sqlite_errorname", "")
    primary = "_".join(name.split("_")[:2])  # SQLITE_READONLY_DBMOVED is a SQLITE_READONLY
    return f"{_WORDS[primary]} ({error})" if primary in _WORDS else str(error)
