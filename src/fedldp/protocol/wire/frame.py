"""The frame of every message (its kind, version and length), and small checks."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any

from fedldp.core.errors import WireError

VERSION = 1
MAGIC = b"fedldp"
LONGEST_NAME = 255
LONGEST_RUN = 200

FRAME = struct.Struct("<6sBBQ")
"""The first 16 bytes: MAGIC, the version, the kind, and the length of the whole message."""


class MessageKind(IntEnum):
    """The kinds of message."""

    ARRAYS = 1
    REQUEST = 2
    REPORT = 3
    REFUSAL = 4


def malformed(what: str) -> WireError:
    """Return the error for a malformed message; ``what`` says what is wrong with it."""
    return WireError(f"a malformed message: {what}; send what fedldp packed, unchanged")


def cannot_pack(what: str) -> WireError:
    """Return the error for a value that no message can hold."""
    return WireError(f"cannot be packed into a message: {what}")


def frame(kind: MessageKind, length: int) -> bytes:
    """Return the frame of a message of ``length`` bytes, which include the frame."""
    return FRAME.pack(MAGIC, VERSION, kind, length)


def kind_of(message: bytes) -> int:
    """Return the number of a message's kind, after checking that its frame is complete.

    Raises:
        WireError: ``message`` is not a message of fedldp, has another version, or does not have the
            length that it states.
    """
    if type(message) is not bytes:  # another type could change while views of it exist
        raise malformed(f"it is a {type(message).__name__}, not bytes")
    if len(message) < FRAME.size:
        raise malformed(f"it has {len(message)} bytes, fewer than any message")
    magic, version, kind, length = FRAME.unpack_from(message)
    if magic != MAGIC:
        raise malformed("it does not start with the header of a fedldp message")
    if version != VERSION:
        raise WireError(
            f"a message of version {version}, and this is version {VERSION}: "
            "install the same version of fedldp on both sides"
        )
    if length != len(message):
        raise malformed(f"it has {len(message)} bytes but states a length of {length}")
    return int(kind)


def check_kind(message: bytes, kind: MessageKind) -> None:
    """Raise WireError unless ``message`` has a sound frame and is of ``kind``."""
    found = kind_of(message)
    if found != kind:
        raise malformed(f"it is of kind {found}, not {kind} ({kind.name.lower()})")


def is_name(text: str, longest: int) -> bool:
    """Return whether ``text`` is exactly 1 to ``longest`` printable characters."""
    return 0 < len(text) <= longest and text.isprintable()


def to_text(raw: bytes, longest: int) -> str:
    """Return the name that ``raw`` holds in UTF-8.

    Raises:
        WireError: ``raw`` is not UTF-8, or is empty, too long or not printable.
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if not is_name(text, longest):
        raise malformed(f"a name is not 1 to {longest} printable characters")
    return text


def padding(length: int) -> int:
    """Return how many zero bytes follow ``length`` bytes to align what comes next."""
    return -length % 8


class Reader:
    """A position in a message that only moves forward, and never past the end.

    Attributes:
        message: the whole message.
    """

    __slots__ = ("_place", "message")

    def __init__(self, message: bytes, start: int) -> None:
        self.message = message
        self._place = start

    def take(self, length: int) -> int:
        """Return where the next ``length`` bytes begin, and move past them."""
        place = self._place
        if length > len(self.message) - place:
            raise malformed("it ends before its content does")
        self._place += length
        return place

    def numbers(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the next numbers, in the format of ``form``."""
        return form.unpack_from(self.message, self.take(form.size))

    def raw(self, length: int) -> bytes:
        """Return the next ``length`` bytes."""
        place = self.take(length)
        return self.message[place : place + length]

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        place, self._place = self._place, len(self.message)
        return self.message[place:]

    def padded(self, length: int) -> bytes:
        """Return the next ``length`` bytes, and move past their padding."""
        found = self.raw(length)
        self.padding(length)
        return found

    def padding(self, length: int) -> None:
        """Move past the padding after ``length`` bytes."""
        if any(self.raw(padding(length))):
            raise malformed("bytes that must be zero are not")

    def finish(self) -> None:
        """Refuse a message that has bytes left."""
        if self._place != len(self.message):
            raise malformed("bytes follow its content")
