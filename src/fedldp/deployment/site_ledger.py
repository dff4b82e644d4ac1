"""A site's ledger, and what shows that it was lost or set back: a mark and a witness.

    release -> ledger, synced -> witness, synced -> mark, synced -> the bytes leave

The mark is a file beside the site's key. It records the last release, and that a ledger was begun
with this key. So the site notices if the ledger is gone but the key is not, or if the ledger is an
older copy. The mark is bound to the machine and to its own file, so that a copy of the mark is
recognised, and with it a copy of the whole folder.

The witness is an append-only file on another disk or machine, which no back-up of the site
includes. Only the witness shows that everything was set back together, as happens when a snapshot
of the machine is restored.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import logging
import os
import re
import struct
import threading
from pathlib import Path
from typing import Annotated, NoReturn, Self

from pydantic import ConfigDict, Field

from fedldp.core.errors import LedgerLost, LedgerUnusable, os_errors
from fedldp.core.frozen_config import FrozenConfig
from fedldp.core.locks import sync
from fedldp.deployment.policy import SitePolicy
from fedldp.ledgers.database import now
from fedldp.ledgers.sqlite import Release, SqliteLedger, renewals

log = logging.getLogger("fedldp.site")

NO_RELEASE = "no release yet"
"""What a ledger without entries says about its last release."""

NOTHING = "0" * 64
"""Stands for the hash of the last release if there is none."""

LEAST_HASH = 16
"""How many digits of a hash are enough to identify a release."""

_RESTORED = (
    "put the newest copy back, or stop the agent and run fedldp deploy restored, which charges "
    "what may be lost"
)


_Count = Annotated[int, Field(ge=0)]
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]


class Seen(FrozenConfig):
    """A release that a receipt of this site proves but its ledger lacks.

    Attributes:
        restores: the ``restores`` of the mark when the receipt was given.
        number: the release's number.
        hash: the first digits of its hash.
    """

    model_config = ConfigDict(strict=True)

    restores: _Count
    number: _Count
    hash: _Hash

    def known_in(self, entries: list[Release]) -> bool:
        """Return whether a ledger has this release."""
        return has_release(entries, self.number, self.hash)


class Mark(FrozenConfig):
    """The content of a mark.

    Attributes:
        restores: how many restores from a copy the site's operator has declared.
        number: the number of the last release; 0 if there is none.
        hash: the hash of the last release, in hexadecimal.
        date: when the last release was made, by the site's clock; None if unknown.
        seen: the latest release that a receipt proved and the ledger lacked.
        renewals: how many of the entries up to the last release only renewed the budget.
    """

    model_config = ConfigDict(strict=True)

    restores: _Count = 0
    number: _Count = 0
    hash: _Hash = NOTHING
    date: str | None = None
    seen: Seen | None = None
    renewals: _Count = 0


class _Bound(Mark):
    """A mark with the machine and the file that it is bound to; each is None if it is unknown."""

    machine: str | None
    inode: int
    born: str | None


def has_release(entries: list[Release], number: int, hash: str) -> bool:
    """Return whether release ``number`` exists, with a hash that begins with ``hash``.

    For number 0, which stands for no release, the result is True.
    """
    if number == 0:
        return True
    return number <= len(entries) and entries[number - 1].hash.startswith(hash)


def last_of(entries: list[Release]) -> tuple[int, str]:
    """Return the number and the hash of the last release; 0 and ``NOTHING`` if there is none."""
    return (entries[-1].number, entries[-1].hash) if entries else (0, NOTHING)


class SiteLedger:
    """A site's ledger, which is begun only once, with its mark and its witness.

    Guarantee: the mark and the witness record every release that has left. If ``check`` passes, the
    ledger has all recorded releases, so nothing is undercharged unless restoring a back-up set back
    both the mark and the witness.

    If there is no witness, or it was set back too, this class cannot detect that a snapshot of the
    file system set back ledger, state, key and mark together.

    Args:
        policy: the policy of the site.
        look: whether to write nothing; the ledger must then exist, and is not marked.

    Raises:
        LedgerLost: the ledger was begun but is gone.
        LedgerUnusable: the ledger cannot be used.
    """

    def __init__(self, policy: SitePolicy, *, look: bool = False) -> None:
        self._policy = policy
        self._marking = threading.Lock()
        self._witness = None if policy.witness is None else Witness(policy.witness)
        if not policy.ledger.exists() and policy.mark.exists():
            raise LedgerLost(
                f"ledger {policy.ledger}: it was begun but is gone; restore the state folder from "
                "a copy and run fedldp deploy restored (with --anew if there is no copy), or "
                "correct its path in the policy. A ledger for other data needs another key and "
                "state folder"
            )
        begins = not look or policy.ledger.exists()
        self.ledger = SqliteLedger(policy.ledger, policy.budgets if begins else None)
        # A ledger that was used but has no mark is refused by ``check``.
        if not look and not policy.mark.exists() and not self._is_used():
            write_mark(policy.mark, Mark())

    @classmethod
    def existing(cls, policy: SitePolicy) -> Self | None:
        """Return a site's ledger, to be read only; None if none was begun.

        Raises:
            LedgerUnusable: see the class.
        """
        begun = policy.ledger.exists() or policy.mark.exists()
        return cls(policy, look=True) if begun else None

    def check(self, *, moved: bool = False) -> list[Release]:
        """Return the ledger's entries; refuse if something shows that it was set back.

        Args:
            moved: whether the mark may be a copy, or missing.

        Raises:
            LedgerUnusable: the ledger was set back, or the ledger, its mark or its witness cannot
                be read.
        """
        policy = self._policy
        mark, amiss = read_mark(policy.mark)
        witnessed = None if self._witness is None else self._witness.last()
        # Read the ledger last: during a release, it is ahead of the mark and the witness.
        entries = self.ledger.releases()
        if mark is None:
            if not moved:
                raise LedgerUnusable(
                    f"mark {policy.mark}: {amiss}; put it back with the key, or stop the agent "
                    "and run fedldp deploy restored"
                )
            mark = Mark()
        if not has_release(entries, mark.number, mark.hash):
            on = "" if mark.date is None else f" on {mark.date}"
            raise self._older(f"it lacks release {mark.number}, which it had{on}")
        if witnessed is not None and not has_release(entries, *witnessed):
            raise self._older(
                f"it lacks release {witnessed[0]}, which the witness {policy.witness} records"
            )
        if mark.seen is not None and not mark.seen.known_in(entries):
            raise self._lacks(mark.seen)
        if amiss is not None and not moved:
            raise LedgerUnusable(
                f"mark {policy.mark}: {amiss}, so ledger {policy.ledger} may be an older copy; "
                "stop the agent and run fedldp deploy restored, with --moved HASH if the site "
                "was moved and nothing is lost"
            )
        return entries

    def look(self) -> list[Release]:
        """Return the entries as ``check`` does, but accept a new ledger that has no mark yet.

        Raises:
            LedgerUnusable: see ``check``.
        """
        return self.check() if self._policy.mark.exists() or self._is_used() else []

    def _is_used(self) -> bool:
        """Return whether the site released or accepted anything, which it does only with a mark.

        A copy made after the first agreement and before the first release has no entry.
        """
        return bool(self.ledger.database.history())

    def keep(self) -> list[Release]:
        """Record the last release in the witness and the mark before it leaves; return all entries.

        One at a time: a slow thread would set both back. Whoever waited may find its own release
        recorded with a later one.

        Raises:
            LedgerUnusable: see ``check``; or the witness or the mark cannot be written.
        """
        with self._marking:
            entries = self.check()
            mark, _ = read_mark(self._policy.mark)
            assert mark is not None
            witnessed = self._witness is None or not entries or self._witness.last() is not None
            if not witnessed or (mark.number, mark.hash, mark.seen) != (*last_of(entries), None):
                self._write(mark, entries)
        return entries

    def refuse_for(self, seen: Seen) -> NoReturn:
        """Refuse because of a release that a receipt proves and the ledger lacks.

        The release is recorded, so that everything is refused until a restore is declared or the
        newest ledger is put back.

        Raises:
            LedgerUnusable: always.
        """
        with self._marking:  # else a release of another run would overwrite what is recorded
            mark, _ = read_mark(self._policy.mark)
            mark = Mark() if mark is None else mark
            noted = mark.seen
            if noted is None or (noted.restores, noted.number) < (seen.restores, seen.number):
                write_mark(self._policy.mark, mark.changed(seen=seen))
        raise self._lacks(seen)

    @property
    def restores(self) -> int:
        """How many restores from a copy the site's operator has declared."""
        mark, _ = read_mark(self._policy.mark)
        return 0 if mark is None else mark.restores

    def last_words(self, entries: list[Release]) -> str:
        """Return the last release in words, for people to note and compare."""
        if not entries:
            return NO_RELEASE
        last = entries[-1]
        renewed = self.ledger.renewed_words(entries)
        return f"release {last.number} on {last.date}, hash {last.hash}{renewed}"

    def restored(self, mark: Mark) -> None:
        """Restart the checks after lost releases were charged, or if none were lost.

        Raises:
            LedgerUnusable: the mark or the witness cannot be written.
        """
        self._write(mark, self.ledger.releases())  # until then, the site refuses everything

    def _write(self, mark: Mark, entries: list[Release]) -> None:
        """Record the last of some entries in the witness and the mark."""
        number, hash = last_of(entries)
        date = entries[-1].date if entries else now()
        if self._witness is not None and self._witness.last() != (number, hash):
            self._witness.add(date, number, hash)
        last = mark.changed(number=number, hash=hash, date=date, seen=None)
        write_mark(self._policy.mark, last.changed(renewals=renewals(entries)))

    def _lacks(self, seen: Seen) -> LedgerUnusable:
        return self._older(
            f"a server showed this site's own receipt of release {seen.number}, which the ledger "
            "lacks"
        )

    def _older(self, why: str) -> LedgerUnusable:
        return LedgerUnusable(
            f"ledger {self._policy.ledger}: {why}: this is an older copy; {_RESTORED}"
        )


# The mark


def read_mark(path: Path) -> tuple[Mark | None, str | None]:
    """Return a mark's content, and in words what is wrong with its file; each may be None."""
    try:
        with path.open("rb") as file:  # the same file throughout, also while it is replaced
            found = _Bound.model_validate_json(file.read())
            inode, born = os.fstat(file.fileno()).st_ino, _born(file.fileno())
        if found.model_fields_set != _Bound.model_fields.keys():
            raise ValueError("not whole")
    except FileNotFoundError:
        return None, "it is gone"
    except OSError as error:
        return None, f"it cannot be read: {error.strerror}"
    except ValueError:
        return None, "it is damaged"
    mark = Mark(**{name: getattr(found, name) for name in Mark.model_fields})
    if found.machine != _machine():
        return mark, "it was made on another machine"
    if found.inode != inode or (None not in (found.born, born) and found.born != born):
        return mark, "it is a copy"
    return mark, None


def write_mark(path: Path, mark: Mark) -> None:
    """Replace a mark with a new, synced file, bound to this machine and to the file itself.

    Raises:
        LedgerUnusable: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    remedy = "the agent's user must be able to write in the folder of the key"
    with os_errors(f"mark {path}: it cannot be written", remedy, LedgerUnusable):
        with partial.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            inode, born = os.fstat(file.fileno()).st_ino, _born(file.fileno())
            bound = _Bound(**mark.model_dump(), machine=_machine(), inode=inode, born=born)
            file.write(bound.model_dump_json(indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)


def _machine() -> str | None:
    """Return a hash that identifies this machine; None if the machine has no id.

    It is a hash because systemd asks programs not to reveal the machine's id. It does not cover the
    device number of the file, which may change when a machine restarts.
    """
    try:
        found = Path("/etc/machine-id").read_bytes().strip()
    except OSError:
        return None
    return hashlib.sha256(b"fedldp ledger " + found).hexdigest()[:32] if found else None


_AT_EMPTY_PATH, _STATX_BTIME, _BTIME_AT = 0x1000, 0x800, 80


def _born(file: int) -> str | None:
    """Return when an open file was created, which differs for every copy; None if unknown."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
    found = ctypes.create_string_buffer(256)
    if statx(file, b"", _AT_EMPTY_PATH, _STATX_BTIME, found) != 0:
        return None
    (mask,) = struct.unpack_from("<I", found)
    seconds, nanoseconds = struct.unpack_from("<qI", found, _BTIME_AT)
    return f"{seconds}.{nanoseconds:09}" if mask & _STATX_BTIME else None


# The witness


class Witness:
    """A file to which each release adds a line; no line is ever overwritten.

    This class never creates the file, because a new one, made while the disk is missing, would hold
    no release.

    Args:
        path: the path of the file.
    """

    _LINE = re.compile(rb"[0-9T:+-]{1,40} (\d{1,18}) ([0-9a-f]{64})")
    _TAIL = 4096

    def __init__(self, path: Path) -> None:
        self._path = path

    def last(self) -> tuple[int, str] | None:
        """Return the number and the hash of the last release in the file; None if it is empty.

        An unfinished last line is ignored, because it belongs to a release that has not left.

        Raises:
            LedgerUnusable: the file is missing or cannot be read, or fedldp did not write its last
                line.
        """
        remedy = f"check its disk, or, for a new site, create it once: touch {self._path}"
        what = f"witness {self._path}"
        with os_errors(what, remedy, LedgerUnusable), self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - self._TAIL))
            lines = file.read().split(b"\n")[:-1]
        if not lines:
            if size > self._TAIL:
                raise self._malformed()
            return None
        found = self._LINE.fullmatch(lines[-1])
        if found is None:
            raise self._malformed()
        return int(found[1]), found[2].decode()

    def add(self, date: str, number: int, hash: str) -> None:
        """Add a line, and sync the file.

        Raises:
            LedgerUnusable: it cannot be written.
        """
        what = f"witness {self._path}: it cannot be written"
        with os_errors(what, "check its disk", LedgerUnusable):
            handle = os.open(self._path, os.O_RDWR | os.O_APPEND)
            try:
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                # End an incomplete line first: it is never read, because only the last line is
                # read.
                line = (b"\n" if torn else b"") + f"{date} {number} {hash}\n".encode()
                # A full disk may truncate the line without an error.
                if os.write(handle, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            finally:
                os.close(handle)

    def _malformed(self) -> LedgerUnusable:
        return LedgerUnusable(
            f"witness {self._path}: fedldp did not write its last line; remove what another "
            "program wrote there"
        )
