"""What messages are made of: the frame (kind, version, length), and named arrays as bytes.

All numbers are little-endian, and everything starts at a multiple of 8 bytes. Arrays by themselves,
as in the checkpoints of runs, are:

    the frame, 16 bytes
    the number of arrays, 8 bytes
    each array, by its name in UTF-8, ascending:
        length of its name, 2 bytes; its type, 1; its number of axes, 1; zeros, 4
        the name, and zeros up to a multiple of 8
        the length of each axis, 8 bytes
        the elements in C order, and zeros up to a multiple of 8

A set of arrays has exactly one encoding, and the reader refuses any other. Messages with the same
content therefore consist of the same bytes, and a client that kept a request's digest recognises
the request when it is repeated.

safetensors, the format of the model's file, cannot be used here. Its header is JSON, so the same
content has many encodings: with other spaces, another order of fields, or repeated names, of which
the last one counts. Its reader (version 0.8.0) accepts a shape of (0, 2^62), and copies every
array. For a message that holds nothing but names, it needs memory of thirty times the message's
size. It also raises errors of several types.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


Arrays = dict[str, NDArray[Any]]

MOST_AXES = 32

# A message identifies a type by its index in this list, so add types only at the end. All of these
# types can be read without another library.
_TYPES = tuple(
    np.dtype(name)
    for name in ("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
)
_NUMBERS = {dtype: number for number, dtype in enumerate(_TYPES)}

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<HBBI")


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return ``arrays`` as bytes; the order of the mapping does not matter.

    Args:
        arrays: the arrays by name, which is 1 to 255 printable characters; their elements are
            booleans, integers, float32 or float64. An array may have no axes; an empty array has
            exactly one axis.

    Raises:
        WireError: an array has a different type or shape, or a name is not printable.
    """
    parts = array_parts(arrays)
    return b"".join([frame(MessageKind.ARRAYS, FRAME.size + total(parts)), *parts])


def read_arrays(message: bytes) -> Arrays:
    """Return the arrays that ``pack_arrays`` packed, by name, in ascending order.

    The arrays are read-only views of ``message``. Reading needs memory only for their headers: at
    most ten times the size of a message that has nothing but headers, and very little compared with
    a model.

    Raises:
        WireError: ``message`` is malformed or of another version.
    """
    check_kind(message, MessageKind.ARRAYS)
    return arrays_at(Reader(message, FRAME.size))


def array_parts(arrays: Mapping[str, NDArray[Any]]) -> list[Any]:
    """Return the pieces that ``arrays_at`` reads: bytes, and arrays whose memory is sent as it is.

    Raises:
        WireError: see ``pack_arrays``.
    """
    for name in arrays:
        if not is_name(name, LONGEST_NAME):
            raise cannot_pack(
                f"the name {name!a}: an array's name has 1 to {LONGEST_NAME} printable characters"
            )
    parts: list[Any] = [_COUNT.pack(len(arrays))]
    for raw, name in sorted((name.encode(), name) for name in arrays):
        array = _as_sent(name, arrays[name])
        parts += (
            _ENTRY.pack(len(raw), _NUMBERS[array.dtype], array.ndim, 0),
            raw + bytes(padding(len(raw))),
            struct.pack(f"<{array.ndim}Q", *array.shape),
            array,
            bytes(padding(array.nbytes)),
        )
    return parts


def total(parts: list[Any]) -> int:
    """Return the total length of ``parts``, in bytes."""
    return sum(part.nbytes if isinstance(part, np.ndarray) else len(part) for part in parts)


def _as_sent(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array`` with the memory layout of a message, copied only if its own differs."""
    # Subclasses are refused, because a masked array would send what its mask hides.
    if type(array) is not np.ndarray:
        raise cannot_pack(f"{name!a} is a {type(array).__name__}: give a numpy array")
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _NUMBERS:
        raise cannot_pack(
            f"{name!a} has the type {array.dtype}: give booleans, integers, float32 or float64"
        )
    if array.ndim > MOST_AXES or (array.size == 0 and array.ndim != 1):
        raise cannot_pack(
            f"{name!a} has the shape {array.shape}: give at most {MOST_AXES} axes, and exactly "
            "one axis if the array has no elements"
        )
    sent = np.require(array, dtype, "C")
    if not _sound(sent):
        raise cannot_pack(f"{name!a} has booleans that are neither 0 nor 1: create it again")
    return sent


def _sound(array: NDArray[Any]) -> bool:
    # Bytes other than 0 and 1 are invalid, because not all of numpy's functions treat them as True.
    return array.dtype != np.bool_ or array.size == 0 or array.view(np.uint8).max() <= 1


def arrays_at(reader: Reader) -> Arrays:
    """Return the arrays that fill the rest of a message.

    Raises:
        WireError: see ``read_arrays``.
    """
    (count,) = reader.numbers(_COUNT)
    arrays: Arrays = {}
    last = b""
    while len(arrays) < count:
        length, number, axes, zero = reader.numbers(_ENTRY)
        if number >= len(_TYPES) or axes > MOST_AXES or zero:
            raise malformed("the header of an array is damaged")
        raw = reader.padded(length)
        if raw <= last:
            raise malformed("its arrays are not in the order of their names")
        last = raw
        shape = reader.numbers(struct.Struct(f"<{axes}Q"))
        arrays[to_text(raw, LONGEST_NAME)] = _next_array(reader, _TYPES[number], shape)
    reader.finish()
    return arrays


def _next_array(reader: Reader, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    count = math.prod(shape)
    # If there are no elements, an axis can have any length, and a sum over another axis would need
    # memory for that length.
    if count == 0 and len(shape) != 1:
        raise malformed("an array without elements has several axes")
    place = reader.take(count * dtype.itemsize)
    reader.padding(count * dtype.itemsize)
    found: NDArray[Any] = np.ndarray(shape, dtype, reader.message, place)
    if not _sound(found):
        raise malformed("a boolean is neither 0 nor 1")
    return found
