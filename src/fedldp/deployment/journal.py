"""What a server asked and received, stored so that the server can continue after a restart.

Every request is stored and synced before it is sent. After a crash, the same request is therefore
sent again, and a site answers with the same bytes. In a round with several phases, later requests
depend on earlier answers. The answers of a phase are therefore stored and synced before the next
request is sent, so that the clients counted before the crash are counted again. When a round is
complete, its files are removed.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

from fedldp.core.errors import RunError
from fedldp.reporting.record import replace_file

_ANSWER = struct.Struct("<IQ")


class Journal:
    """The requests and answers of a server's current round.

    Args:
        folder: the journal's folder, created when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begun(self, round: int, phase: int = 0) -> bool:
        """Return whether a phase's request may have been sent to sites."""
        return (self._place(round) / f"{phase}.question").exists()

    def ask(self, round: int, phase: int, request: bytes) -> None:
        """Store a request that is about to be sent.

        Raises:
            RunError: a different request was sent in this phase before, so sites would refuse this
                one.
        """
        path = self._place(round) / f"{phase}.question"
        if path.exists():
            if _read(path) != request:
                raise RunError(
                    f"round {round}: the request in {path} differs from the one that this version "
                    "would send, and sites answer only one; continue with the version of fedldp "
                    "that sent it"
                )
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RunError(
                f"cannot make {path.parent}: {error.strerror}; check the folder"
            ) from error
        replace_file(path, request)

    def close(self, round: int, phase: int, answers: Mapping[int, bytes]) -> None:
        """Store a phase's answers, by client; after this, the phase accepts no more answers."""
        parts = (_ANSWER.pack(client, len(each)) + each for client, each in answers.items())
        replace_file(self._place(round) / f"{phase}.answers", b"".join(parts))

    def closed(self, round: int, phase: int) -> dict[int, bytes] | None:
        """Return the answers of a phase that was closed; None if it was not closed.

        Raises:
            RunError: the file is damaged.
        """
        path = self._place(round) / f"{phase}.answers"
        if not path.exists():
            return None
        content, start, found = _read(path), 0, dict[int, bytes]()
        while start < len(content):
            end = start + _ANSWER.size
            if end > len(content):
                raise RunError(f"{path} is damaged: restore it from a copy, or begin another run")
            client, length = _ANSWER.unpack_from(content, start)
            start = end + length
            found[client] = content[end:start]
        if start != len(content):
            raise RunError(f"{path} is damaged: restore it from a copy, or begin another run")
        return found

    def forget_before(self, round: int) -> None:
        """Remove what is stored for earlier rounds, which are complete."""
        for place in self._folder.glob("round-*"):
            if int(place.name.removeprefix("round-")) < round:
                shutil.rmtree(place, ignore_errors=True)

    def _place(self, round: int) -> Path:
        return self._folder / f"round-{round}"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunError(f"journal {path}: {error.strerror}; check the folder") from error
