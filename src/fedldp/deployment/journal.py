"""What a server asked and received, stored so that the server can continue after a restart.

The journal is one file, to which a record is appended and synced before each request is sent,
whatever the number of sites: the request's digest, the answers of the phase before it if later
requests depend on them, and the last receipt of each site. A server draws the same request again
after a crash, and a site answers it with the same bytes; the clients that were counted before the
crash are counted again. A record that a crash cut off belongs to a request that was never sent.
When a round is complete, its records are removed.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedldp.core.errors import RunError, os_errors
from fedldp.reporting.record import append_file, replace_file

_MAGIC = b"fedldp journal 1\n"
_FRAME = struct.Struct("<IQ")
"""A checksum of what follows, the arrays of safetensors, and its length in bytes."""


@dataclass(frozen=True)
class _Record:
    """What is stored before a request is sent.

    Attributes:
        round: the request's round.
        phase: the request's phase.
        digest: the SHA-256 of the request.
        answers: the answers of the phase before it, by client.
        receipts: the last receipt of each site, by its number.
    """

    round: int
    phase: int
    digest: bytes
    answers: Mapping[int, bytes]
    receipts: Mapping[int, bytes]

    def pack(self) -> bytes:
        arrays = {"place": np.array([self.round, self.phase]), "digest": _array(self.digest)}
        arrays |= {f"answer {client}": _array(each) for client, each in self.answers.items()}
        arrays |= {f"receipt {site}": _array(each) for site, each in self.receipts.items()}
        body = save(arrays)
        return _FRAME.pack(zlib.crc32(body), len(body)) + body

    @classmethod
    def read(cls, body: bytes) -> _Record:
        found = load(body)
        round, phase = map(int, found.pop("place"))
        kept = dict[str, dict[int, bytes]](answer={}, receipt={}, digest={})
        for name, array in found.items():
            kind, _, number = name.partition(" ")
            kept[kind][int(number or 0)] = array.tobytes()
        return cls(round, phase, kept["digest"][0], kept["answer"], kept["receipt"])


def _array(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)


class Journal:
    """The requests and answers of a server's current round.

    Args:
        path: the journal's file, created if it is missing.

    Raises:
        RunError: the file cannot be read or written, or is no journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            replace_file(path, _MAGIC)
        found, self._size = self._read()
        self._digests = {(each.round, each.phase): each.digest for each in found}

    def begun(self, round: int, phase: int = 0) -> bool:
        """Return whether a phase's request may have been sent to sites."""
        return (round, phase) in self._digests

    def ask(
        self,
        round: int,
        phase: int,
        request: bytes,
        answers: Mapping[int, bytes],
        receipts: Mapping[int, bytes],
    ) -> None:
        """Store that a request is about to be sent.

        Args:
            round: the round of the request.
            phase: its phase.
            request: the request.
            answers: the answers of the phase before it, by client, if they must be kept; that phase
                then accepts no more answers.
            receipts: the last receipt of each site that gave one, by its number.

        Raises:
            RunError: a different request was sent in this phase before, so sites would refuse this
                one; or the file cannot be written.
        """
        digest = hashlib.sha256(request).digest()
        known = self._digests.get((round, phase))
        if known is None:
            record = _Record(round, phase, digest, answers, receipts).pack()
            append_file(self._path, self._size, record)
            self._size += len(record)
            self._digests[round, phase] = digest
        elif known != digest:
            raise RunError(
                f"round {round}: the request noted in {self._path} differs from the one that this "
                "version would send, and sites answer only one; continue with the version of "
                "fedldp that sent it"
            )

    def closed(self, round: int, phase: int) -> Mapping[int, bytes] | None:
        """Return the answers of a phase before a later request; None if there was none."""
        if not self.begun(round, phase + 1):
            return None
        return next(e.answers for e in self._read()[0] if (e.round, e.phase) == (round, phase + 1))

    def receipts(self) -> Mapping[int, bytes]:
        """Return the receipts that were noted last, by site."""
        found, _ = self._read()
        return found[-1].receipts if found else {}

    def forget(self) -> None:
        """Remove the records of a round that is complete."""
        self._digests.clear()
        self._size = len(_MAGIC)
        # Not synced: records that a power cut brings back are of a round that is complete.
        append_file(self._path, self._size, b"", synced=False)

    def _read(self) -> tuple[list[_Record], int]:
        """Return all whole records, and their length in bytes."""
        with os_errors(f"journal {self._path}", "check the folder", RunError):
            content = self._path.read_bytes()
        if not content.startswith(_MAGIC):
            raise RunError(f"journal {self._path} is damaged: restore it, or begin another run")
        found, at = list[_Record](), len(_MAGIC)
        while at + _FRAME.size <= len(content):
            checksum, length = _FRAME.unpack_from(content, at)
            body = content[at + _FRAME.size : at + _FRAME.size + length]
            if len(body) < length or zlib.crc32(body) != checksum or not length:
                break
            found.append(_Record.read(body))
            at += _FRAME.size + length
        return found, at
