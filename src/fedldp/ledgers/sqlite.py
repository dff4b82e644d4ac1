"""A client's ledger in an SQLite file; each release is written and synced before it is sent."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import secrets  # noqa: TID251  # the secret of a site
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from fedldp.accounting.accountants import drawn_once, from_record, real_arithmetic_only
from fedldp.accounting.events import Event, NoRelease, to_record
from fedldp.core.errors import (
    AskedOtherwise,
    ConfigError,
    FedldpError,
    LedgerUnusable,
    NoLongerKept,
    OutOfTurn,
    OverBudget,
    PrivacyError,
)
from fedldp.core.randomness import KEY_BYTES
from fedldp.ledgers.budget import Budget, admit_by_all, each_of, total_of
from fedldp.ledgers.database import VERSION, Database, now
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

_ENTRY = "number, date, run, round, phase, request, event, costs, payload_sha256, hash"


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
        date: when, by the client's clock; no decision depends on it.
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
    date: str
    run: str
    round: int
    phase: int
    request: str
    event: Event
    costs: tuple[float, ...]
    payload_sha256: str
    hash: str

    @property
    def renews(self) -> bool:
        """Whether this entry is not a release but the owner's renewal of the budget."""
        return self.run == "" and self.request == RENEWED.hex()


class Account(NamedTuple):
    """What a ledger's entries amount to under one budget.

    Attributes:
        budget: the budget.
        spent: the cost of all entries, rounded up.
        recent: the cost of those since the last renewal, rounded up.
        left: what these leave of the budget, rounded down.
    """

    budget: Budget
    spent: float
    recent: float
    left: float


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

    The file also holds what the client keeps for its runs, and its secret.

    Guarantee: whatever ``release`` has returned is in the file, together with all that the client
    kept while the answer was made. So the sum of the costs in the file never under-counts, even if
    the process is killed at any point, the machine loses power, the disk is full, or several
    processes release at once. Nothing is released that would push the sum since the owner's last
    renewal beyond the budget, or a run's sum beyond what it promised when it was accepted. For one
    (run, round, phase) it returns the same bytes every time. It refuses a release if any of this
    is in doubt, or if the event is private only for real numbers.

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

    Attributes:
        database: the file.

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
        self.database = Database(Path(path), timeout_seconds)
        self._found: tuple[list[tuple[Any, ...]], list[Release]] = [], []
        self._version: tuple[int, int] | None = None
        self._making = _Making()
        if not os.path.exists(self.path):
            if not given:
                raise LedgerUnusable(
                    f"ledger {path}: this file does not exist; check the path, or begin a ledger "
                    "with a budget"
                )
            self.database.create(lambda db: _fill(db, given))
        with self.database.reading() as db:
            self.budgets = self._stored_budgets(db)
        if given and given != self.budgets:
            raise self._damaged(
                f"it was begun with a {in_list(self.budgets)}, not a {in_list(given)}"
            )

    @property
    def path(self) -> Path:
        """The file's absolute path."""
        return self.database.path

    @property
    def budget(self) -> Budget:
        """The budget of the largest unit."""
        return self.budgets[0]

    @property
    def secret(self) -> bytes:
        """The secret behind the client's once-only choices: 32 bytes, drawn with the file.

        Raises:
            LedgerUnusable: it is damaged.
        """
        with self.database.reading() as db:
            found = db.execute("SELECT value FROM site WHERE key = 'secret'").fetchone()
        if found is None or not isinstance(found[0], bytes) or len(found[0]) != KEY_BYTES:
            raise self._damaged("its secret is damaged; restore the file from a copy")
        return found[0]

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
            with self.database.reading() as db:
                past = self._releases(db)
                known = known_release(past, place)
                if known is not None:
                    return [self._payload_of(db, known)]
                before = rounds_before(past, place.run, place.round)
                check_turn(before, max_rounds)
                if before and drawn_once(event) and not holds(client):
                    raise lost_draws(place.run)
                self._admit(db, place.run, event, past)
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

        ``make`` runs before the file is locked. What it keeps is stored in the transaction that
        charges, and dropped with its bytes if another process has spent the budget meanwhile.
        """
        check_place(place)
        _only(clients)
        with self.database.reading() as db:
            known = self._due(db, place, event, max_rounds)
        if isinstance(known, bytes):
            return [known]
        self._making.kept = kept = dict[tuple[int, str], bytes]()
        try:
            (row,) = make()
        finally:
            self._making.kept = None
        payload = bytes(row)
        with self.database.writing() as db:
            found = self._due(db, place, event, max_rounds)
            if isinstance(found, bytes):
                return [found]
            past, costs = found
            self._add(db, past, place, event, costs, payload)
            for (round, name), content in kept.items():
                _keep(db, place.run, round, name, content)
        return [payload]

    def _due(
        self, db: sqlite3.Connection, place: Place, event: Event, max_rounds: int | None
    ) -> bytes | tuple[list[Release], tuple[float, ...]]:
        """Return an earlier answer; else the entries so far, and what to charge for a new one."""
        past = self._releases(db)
        known = known_release(past, place)
        if known is not None:
            if known.event != event:
                raise AskedOtherwise(
                    f"{place_of(known)} was released as {known.event}, not as {event}"
                )
            return self._payload_of(db, known)
        check_turn(rounds_before(past, place.run, place.round), max_rounds)
        return past, self._admit(db, place.run, event, past)

    # What the client keeps

    def kept(self, run: str, round: int, name: str) -> bytes | None:
        """Return what the client keeps under a name for a run (round 0) or for one of its rounds.

        None: nothing.
        """
        made = self._making.kept
        if made is not None and (round, name) in made:
            return made[round, name]
        with self.database.reading() as db:
            return _kept(db, run, round, name)

    def keep(self, run: str, round: int, name: str, content: bytes) -> bytes:
        """Keep bytes, unless something is kept under this name; return what is kept.

        While ``release`` makes an answer for the run, they are kept in the transaction that charges
        for it, or not at all. Bytes kept for a round are removed once the run has a later one.
        """
        if self._making.kept is not None:
            return self._making.kept.setdefault((round, name), content)
        with self.database.writing() as db:
            found = _kept(db, run, round, name)
            if found is None:
                _keep(db, run, round, name, content)
            return content if found is None else found

    def forget(self, run: str) -> None:
        """Remove all that the client keeps for a run."""
        with self.database.writing() as db:
            db.execute("DELETE FROM kept WHERE run = ?", (run,))

    def forget_rounds(self) -> None:
        """Remove all that the client keeps for single rounds, of any run."""
        with self.database.writing() as db:
            db.execute("DELETE FROM kept WHERE round > 0")

    # The owner

    def charge_lost(self, run: str, round: int, phase: int, event: Event) -> None:
        """Charge a release that may have happened but that no ledger records: see ``LOST``.

        The charge may exceed the budget, because the bytes may have been sent. Once the budget is
        exceeded, nothing more is released.
        """
        with self.database.writing() as db:
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
        with self.database.writing() as db:
            past = self._releases(db)
            if not since_renewal(past):
                raise LedgerUnusable(
                    f"ledger {self.path}: nothing was released since it was created or renewed, so "
                    "there is nothing to renew"
                )
            event = NoRelease(what="renewal")
            place = Place("", renewals(past) + 1, 0, RENEWED)
            self._add(db, past, place, event, (0.0,) * len(self.budgets), b"")
            self.database.note("renewed")
            return self._releases(db)[-1]

    def releases(self) -> list[Release]:
        """Return all entries, oldest first, including those that renewed the budget.

        Raises:
            LedgerUnusable: the file cannot be read, or an entry was changed or removed.
        """
        with self.database.reading() as db:
            return self._releases(db)

    def spent(self) -> float:
        """Return the cost of all releases under ``budget``, rounded up."""
        return self.accounts(self.releases())[0].spent

    def accounts(self, entries: Sequence[Release]) -> list[Account]:
        """Return what some entries spent under each budget, and what they leave of it."""
        counted, found = since_renewal(entries), list[Account]()
        for at, budget in enumerate(self.budgets):
            of_all, recent = ([each.costs[at] for each in some] for some in (entries, counted))
            spent, left = budget.spent(of_all), budget.remaining(recent)
            found.append(Account(budget, spent, budget.spent(recent), left))
        return found

    def renewed_words(self, entries: Sequence[Release]) -> str:
        """Return in words how often the budget was renewed and the total spent; "" if it never was.

        The words continue a sentence.
        """
        often = renewals(entries)
        if not often:
            return ""
        total = " and ".join(each.budget.amount(each.spent) for each in self.accounts(entries))
        return f"; renewed {times(often)}, {total} was spent since the beginning"

    def verify(self) -> list[Release]:
        """Check the whole file and return its entries.

        Every use of the ledger checks version, budget, hashes, events and costs. This method also
        checks the structure of the file, the stored bytes, and that no release pushed the total
        beyond the budget.

        Raises:
            LedgerUnusable: something is wrong.
        """
        with self.database.reading() as db:
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
            for account in self.accounts(until):
                if account.left < 0:
                    raise self._damaged(f"the releases cost more than its {account.budget}")
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
        """Add an entry, and delete what is stored for the run's earlier rounds."""
        run, round, phase, request = place
        digest = hashlib.sha256(payload).hexdigest()
        number = len(past) + 1
        cells = (_text(event), json.dumps(costs), digest)
        entry = (number, now(), run, round, phase, request.hex(), *cells)
        chained = _chain(past[-1].hash if past else _genesis(self.budgets), *entry)
        db.execute(
            "UPDATE releases SET payload = NULL WHERE run = ? AND round < ? AND payload NOTNULL",
            (run, round),
        )
        _forget_before(db, run, round)
        row = (*entry, chained, payload)
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO releases ({_ENTRY}, payload) VALUES ({marks})", row)

    def _damaged(self, what: str) -> LedgerUnusable:
        return self.database.damaged(what)

    def _admit(
        self, db: sqlite3.Connection, run: str, event: Event, past: list[Release]
    ) -> tuple[float, ...]:
        if real_arithmetic_only(event):
            raise OverBudget(
                f"event {type(event).__name__}: it is private for real numbers only, not for the "
                "floats that would be sent; nothing was released"
            )
        counted = since_renewal(past)
        spent = [total_of(entry.costs[at] for entry in counted) for at in range(len(self.budgets))]
        of_run = [entry for entry in past if entry.run == run]
        costs = admit_by_all(self.budgets, event, spent, [entry.event for entry in of_run])
        self._check_promise(db, run, [*(entry.costs for entry in of_run), costs])
        return costs

    def _check_promise(
        self, db: sqlite3.Connection, run: str, costs: Sequence[tuple[float, ...]]
    ) -> None:
        """Refuse a run that would cost more than was said when its agreement was accepted."""
        query = "SELECT state, promised FROM agreements WHERE run = ?"
        found = db.execute(query, (run,)).fetchone()
        if found is None:  # this client accepts no agreements
            return
        state, promised = found
        if state != "accepted":
            raise OutOfTurn(f"run {run}: its agreement is {state} here; nothing was released")
        for budget, most, each in zip(
            self.budgets, json.loads(promised), zip(*costs, strict=True), strict=True
        ):
            if total_of(each) > most:
                raise OverBudget(
                    f"run {run}: this release would cost more than {budget.amount(most)}, the most "
                    "that was said when its agreement was accepted; nothing was released"
                )

    def _stored_budgets(self, db: sqlite3.Connection) -> tuple[Budget, ...]:
        rows = db.execute('SELECT kind, "limit", unit, genesis FROM budgets').fetchall()
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
        version = self.database.version(db)
        if version is not None and version == self._version:
            return list(self._found[1])
        if self._stored_budgets(db) != self.budgets:
            raise self._damaged("its budget was changed")
        rows = db.execute(f"SELECT {_ENTRY} FROM releases ORDER BY number").fetchall()
        # Rows that have not changed since the last check need not be checked again.
        before, checked = self._found
        same = sum(1 for _ in takewhile(bool, map(operator.eq, rows, before)))
        entries = checked[:same]
        drawn: defaultdict[str, dict[Event, None]] = defaultdict(dict)  # by run
        for entry in entries:
            if drawn_once(entry.event):
                drawn[entry.run][entry.event] = None
        for row in rows[same:]:
            entries.append(self._checked(row, entries, drawn))
        self._found, self._version = (rows, entries), version
        return list(entries)

    def _checked(
        self, row: tuple[Any, ...], past: list[Release], drawn: defaultdict[str, dict[Event, None]]
    ) -> Release:
        """Return the entry that a row holds, given the entries before it."""
        number, date, run, round, phase, request, text, cell, digest, stored = row
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
        if drawn_once(event):
            drawn[run][event] = None
        return Release(number, date, run, round, phase, request, event, costs, digest, stored)

    def _payload_of(self, db: sqlite3.Connection, known: Release) -> bytes:
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


class _Making(threading.local):
    """What a thread keeps for the answer that it makes; None outside of that."""

    kept: dict[tuple[int, str], bytes] | None = None


def _kept(db: sqlite3.Connection, run: str, round: int, name: str) -> bytes | None:
    query = "SELECT content FROM kept WHERE run = ? AND round = ? AND name = ?"
    found = db.execute(query, (run, round, name)).fetchone()
    return None if found is None else bytes(found[0])


def _keep(db: sqlite3.Connection, run: str, round: int, name: str, content: bytes) -> None:
    _forget_before(db, run, round)
    db.execute("INSERT INTO kept VALUES (?, ?, ?, ?)", (run, round, name, content))


def _forget_before(db: sqlite3.Connection, run: str, round: int) -> None:
    db.execute("DELETE FROM kept WHERE run = ? AND round > 0 AND round < ?", (run, round))


def _fill(db: sqlite3.Connection, budgets: tuple[Budget, ...]) -> None:
    """Write what a new file holds: its budgets, and a secret."""
    for budget in budgets:
        db.execute("INSERT INTO budgets VALUES (?, ?, ?, ?)", (*_row(budget), _genesis(budgets)))
    db.execute("INSERT INTO site VALUES ('secret', ?)", (secrets.token_bytes(KEY_BYTES),))


def _text(event: Event) -> str:
    return json.dumps(to_record(event), allow_nan=False)


def _row(budget: Budget) -> tuple[object, ...]:
    return budget.unit, budget.kind, float(budget.limit)


def _genesis(budgets: tuple[Budget, ...]) -> str:
    return _chain("", VERSION, *(cell for budget in budgets for cell in _row(budget)))


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
