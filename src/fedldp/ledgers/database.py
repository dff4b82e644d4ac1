"""A client's one SQLite file: its tables, its connections and its transactions."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedldp.core.errors import LedgerUnusable
from fedldp.core.locks import sync

VERSION = 1
"""The version of the file's format."""

_APPLICATION = int.from_bytes(b"fldp", "big")
"""SQLite's ``application_id`` of these files."""

_WRITES = "BEGIN IMMEDIATE"

_SCHEMA = f"""
BEGIN;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE site (key TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE budgets (unit TEXT PRIMARY KEY, kind TEXT, "limit" REAL, genesis TEXT);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY,
    date TEXT NOT NULL,
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    request TEXT NOT NULL,
    event TEXT NOT NULL,
    costs TEXT NOT NULL,
    payload_sha256 TEXT NOT NULL,
    hash TEXT NOT NULL,
    payload BLOB,
    UNIQUE (run, round, phase)
);
CREATE TABLE kept (
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (run, round, name)
);
CREATE TABLE agreements (
    digest TEXT PRIMARY KEY,
    run TEXT UNIQUE NOT NULL,
    server TEXT NOT NULL,
    content BLOB NOT NULL,
    data TEXT NOT NULL,
    own REAL,
    promised TEXT NOT NULL,
    state TEXT NOT NULL,
    date TEXT NOT NULL
);
CREATE TABLE charged (digest TEXT PRIMARY KEY, run TEXT NOT NULL);
CREATE TABLE acts (
    number INTEGER PRIMARY KEY,
    date TEXT NOT NULL,
    what TEXT NOT NULL,
    digest TEXT NOT NULL,
    words TEXT NOT NULL
);
"""
"""The tables. ``site`` holds the client's secret; ``costs`` and ``promised`` are JSON lists with a
number for each budget; ``kept`` is what the client keeps for a run (round 0) or one of its rounds;
the last three are of a site: what it accepted, which runs its last restore covers, and what its
operator decided."""


_HISTORY = """
SELECT r.date, 'released' AS what, r.run, a.server, a.digest AS agreement,
    (SELECT words FROM acts WHERE acts.digest = a.digest LIMIT 1) AS words, r.number
FROM releases AS r LEFT JOIN agreements AS a ON r.run = a.run WHERE r.run != ''
UNION ALL
SELECT c.date, c.what, a.run, a.server, nullif(c.digest, ''), nullif(c.words, ''), NULL
FROM acts AS c LEFT JOIN agreements AS a ON c.digest = a.digest
ORDER BY 1, 7
"""


class Database:
    """An SQLite file that threads and processes may use at the same time.

    Guarantee: once a block under ``writing`` has ended without an error, all that it wrote is on
    the disk and survives a power cut; if it ends with an error, nothing of it is written.

    Each use opens a connection of its own, unless ``held`` keeps one. With ``synchronous = EXTRA``,
    the folder is synced too after the commit, which deletes the rollback journal. Without this, a
    power cut could bring the journal back and undo a release whose bytes have left.

    Args:
        path: the file, which must exist when it is used.
        timeout_seconds: how long to wait for another process.

    All methods raise ``LedgerUnusable`` if the file cannot be used.
    """

    def __init__(self, path: Path, timeout_seconds: float = 10.0) -> None:
        self.path = path.absolute()
        self._timeout = timeout_seconds
        self._lock, self._own = threading.RLock(), _Own()
        self._held: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._writes = 0

    def create(self, fill: Callable[[sqlite3.Connection], None]) -> None:
        """Create the file with what ``fill`` writes, unless it exists.

        It appears in one step, so that an emptied file is never mistaken for a new one.
        """
        path = self.path
        try:
            handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.new-")  # noqa: TID251
            os.close(handle)  # its mode is 0600
            try:
                with closing(sqlite3.connect(partial, isolation_level=None)) as db:
                    db.executescript(_SCHEMA)
                    fill(db)
                    db.execute("COMMIT")
                with suppress(FileExistsError):  # another process created the file first
                    os.link(partial, path)
            finally:
                os.unlink(partial)
            sync(path.parent)
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else in_words(error)
            raise LedgerUnusable(f"ledger {path}: it cannot be created: {reason}") from error

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep one connection and a write-ahead log, so that a transaction needs a single sync.

        In a process that does this, nothing else may open the file, or fork: closing a second
        handle would drop SQLite's locks. At the end, the log is folded into the file, because a
        file that still has one cannot be read in a read-only folder.
        """
        with self._connected() as db:
            with suppress(sqlite3.Error):  # a rollback journal is as safe, and slower
                db.execute("PRAGMA journal_mode = WAL")
            self._held, self._identity = db, _identity(self.path)
            try:
                yield
            finally:
                with self._lock:
                    self._held = None
                    with suppress(sqlite3.Error):  # somebody reads it: the next one cleans up
                        db.execute("PRAGMA journal_mode = DELETE")

    def checkpoint(self) -> None:
        """Fold the log of a held connection into the file, so that what was deleted is gone."""
        with self._lock, suppress(sqlite3.Error):  # it is tried again
            if self._held is not None:
                self._held.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection that sees one state of the file."""
        with self._transaction("BEGIN") as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose writes are committed together at the end.

        Within such a block, the other blocks of the same thread belong to its transaction. There is
        no such block within one under ``reading``.
        """
        with self._transaction(_WRITES) as db:
            yield db

    def note(self, what: str, digest: str = "", words: str = "") -> None:
        """Record what the owner decided: about which agreement, by its digest and its ten words."""
        with self.writing() as db:
            act = (now(), what, digest, words)
            db.execute("INSERT INTO acts (date, what, digest, words) VALUES (?, ?, ?, ?)", act)

    def history(self) -> list[dict[str, Any]]:
        """Return what was released and decided, oldest first, for those who watch over the data.

        Each row has ``date`` and ``what``; ``run``, ``server``, ``agreement`` (its digest) and its
        ten ``words``, if it is about a run; and ``number``, the number of an entry of the ledger.
        """
        with self.reading() as db:
            found = db.execute(_HISTORY)
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found]

    def version(self, db: sqlite3.Connection) -> tuple[int, int] | None:
        """Return what stays equal as long as nothing is committed; None if that is unknown."""
        if db is not self._held or self._own.writes:
            return None
        return db.execute("PRAGMA data_version").fetchone()[0], self._writes

    def damaged(self, what: str) -> LedgerUnusable:
        """Return the error for a file that cannot be used."""
        return LedgerUnusable(f"ledger {self.path}: {what}")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        if self._own.db is not None:
            if begin == _WRITES and not self._own.writes:  # it would be rolled back at the end
                raise self.damaged("something writes to it within a block that only reads")
            yield self._own.db
            return
        try:
            with self._connection() as db:
                writes = begin == _WRITES
                if writes and db is self._held:
                    self._check_in_place()
                db.execute(begin)
                self._own.db, self._own.writes = db, writes
                try:
                    yield db
                    db.execute("COMMIT" if writes else "ROLLBACK")
                finally:
                    self._own.db, self._own.writes = None, False
                    self._writes += writes
                    if db.in_transaction:
                        db.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self.damaged(in_words(error)) from error

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            held = self._held
            if held is not None:
                yield held
                return
        with self._connected() as db:
            yield db

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(
                    f"{self.path.as_uri()}?mode=rw",
                    uri=True,
                    timeout=self._timeout,
                    isolation_level=None,
                    check_same_thread=False,
                )
            ) as db:
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("PRAGMA fullfsync = ON")  # needed for a real sync on macOS
                db.execute("PRAGMA secure_delete = ON")
                self._check_format(db)
                yield db
        except sqlite3.Error as error:
            raise self.damaged(in_words(error)) from error

    def _check_format(self, db: sqlite3.Connection) -> None:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            what = "it is a file of another program, or of another version of fedldp"
            if not self.path.stat().st_size:
                what = "it is empty"
            raise self.damaged(f"{what}; check the path, or {_PUT_BACK}")
        if version != VERSION:
            raise self.damaged(
                f"its format is version {version}, and this fedldp reads version {VERSION}; "
                "install the version that wrote it"
            )

    def _check_in_place(self) -> None:
        """Refuse to write into a file that was moved away, where nobody would find it."""
        if _identity(self.path) != self._identity:
            raise self.damaged("it was moved or replaced while it is in use; restart the agent")


def now() -> str:
    """Return the time by this machine's clock, for people only: no decision depends on it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Own(threading.local):
    """The transaction of a thread, and whether it may write."""

    db: sqlite3.Connection | None = None
    writes = False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# SQLite's errors, each with a suggested fix

_PUT_BACK = "put the newest copy back and run fedldp deploy restored"
_WORDS = {
    "SQLITE_NOTADB": "this is not a ledger; check the path",
    "SQLITE_ERROR": "this is not a ledger, or an incomplete one; check the path",
    "SQLITE_CORRUPT": f"it is damaged; {_PUT_BACK}",
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
