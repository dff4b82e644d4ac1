"""What crosses a client's boundary: its types, their bytes, and a model as one vector.

A RoundRequest comes in, one RoundReply goes out; nothing else crosses the boundary. A RoundRequest
holds a Broadcast, the name of its run, and the number of the phase that it begins. A RoundReply is
a Report or a Refusal.

``Sensitive`` marks a value that must stay inside. Only an encoder opens it. It refuses to be
pickled, so it cannot even reach another process of the simulator.

What reads bytes assumes that an attacker wrote every message. It raises WireError for anything that
``pack_request`` and ``pack_reply`` would not write, before it uses more memory than a small
multiple of the message's size. A value has exactly one encoding: what was read is packed to the
same bytes again. Nothing is pickled.

All numbers are little-endian. Every message begins with

    the frame, 16 bytes (see ``FRAME``)
    a number, 2 bytes; the length of the run's name, 2; the phase, 4; the round, 8
    the run's name in UTF-8

A request's number is 0. It continues with

    zeros up to a multiple of 8 bytes
    the broadcast's arrays, as below: weights; ranges/centers, ranges/radii and ranges/sizes
        where it has ranges; public/NAME for each public array

A refusal's number is that of its reason, and the message ends there. A report's number is a sum: 1
for a weight, 2 for an epsilon, 4 for a client. The report continues with size, 8 bytes; chunk, 8;
weight, epsilon and client, 8 bytes for each that it has; and the payload, which ends the message.

Arrays start at a multiple of 8 bytes. Arrays by themselves, as in the checkpoints of runs, are:

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

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import Ranges
from fedldp.core.errors import ConfigError, PrivacyError, WireError

Vector = NDArray[np.float32]
T_co = TypeVar("T_co", covariant=True)


class Sensitive(Generic[T_co]):
    """A value that was computed from private data and has not been randomised."""

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def open(self) -> T_co:
        """Return the value. Only encoders call this, and the accounting covers what they return."""
        return self._value

    def __repr__(self) -> str:
        return "Sensitive(...)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a sensitive value may not leave its client: encode it into a Report")


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    """What the server sends to every client at the start of a round; all of it is public.

    The arrays of a broadcast that was read from bytes are read-only.

    Attributes:
        round: the round, counted from 1.
        weights: the global model, float32, finite, shape (d,), in the order of the model's layout;
            shape (0,) in a phase of a dialogue that does not need them.
        ranges: the centre and radius of every parameter tensor, if the system needs them.
        public: everything else that a system sends to its clients, by name. It was computed from
            earlier releases or set before the run.
    """

    round: int
    weights: Vector
    ranges: Ranges | None = None
    public: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoundRequest:
    """What a client is asked: the run, the phase and the broadcast; all of it is public.

    Attributes:
        run: the name of its run, 1 to 200 printable characters.
        phase: which phase of the round, counted from 0; most systems have one phase in a round.
        broadcast: what the server sends to every client, including the round.
        own: additional public arrays for individual clients, by client and by name. Only the
            server's request has all of them; the message to a client has only that client's arrays.
    """

    run: str
    phase: int
    broadcast: Broadcast
    own: Mapping[int, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    def to(self, client: int) -> RoundRequest:
        """Return the request as one client receives it."""
        if not self.own:
            return self
        public = {**self.broadcast.public, **self.own.get(client, {})}
        return replace(self, broadcast=replace(self.broadcast, public=public), own={})

    def only(self, clients: Iterable[int]) -> RoundRequest:
        """Return the request without the individual arrays of clients other than these."""
        own = {client: self.own[client] for client in clients if client in self.own}
        return replace(self, own=own)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one client releases in one phase of a round.

    Attributes:
        round: the round of the broadcast that it answers.
        size: the number of coordinates, d.
        payload: the packed content, which the mechanism defines.
        chunk: coordinates in one message. If chunk < size, a report travels as ceil(size/chunk)
            messages, each labelled with its position; otherwise it is one message.
        weight: the weight in the server's average, where the client releases one.
        epsilon: the budget with which the payload was randomised, where clients' budgets differ.
        client: the sender, where the server must tell clients apart; never with a shuffler.
    """

    round: int
    size: int
    payload: bytes
    chunk: int
    weight: float | None = None
    epsilon: float | None = None
    client: int | None = None

    @property
    def num_messages(self) -> int:
        """The number of messages in which the report travels."""
        return -(-self.size // self.chunk)

    @property
    def uplink_bits(self) -> int:
        """Bits sent: the payload, the position label of every message, and a weight in 64 bits.

        This counts what a mechanism sends. It differs from 8 times the length of ``pack_reply``,
        which packs the report as a whole: the packed report has an envelope, and has no position
        labels, which belong to the messages that a shuffler takes in. Exactly, with ``run`` in
        UTF-8,

            8 * len(pack_reply(report, run=run, phase=phase))
                = uplink_bits - label_bits(size, chunk) + 8 * (48 + len(run) + more),

        where ``more`` is 8 bytes for an ``epsilon`` plus 8 for a ``client``, if the report has
        them.
        """
        bits = 8 * len(self.payload) + label_bits(self.size, self.chunk)
        return bits + (0 if self.weight is None else 64)


def label_bits(size: int, chunk: int) -> int:
    """Return the bits of the position labels of one report of ``size`` coordinates."""
    messages = -(-size // chunk)
    return messages * (messages - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Reports of several clients, as columns; all have the same round, size, chunk and budget.

    Attributes:
        round: the round of the reports; ``Report`` explains this and the following attributes.
        size: the size of each report.
        payloads: their packed contents, uint8, shape (n, bytes per payload).
        chunk: the chunk of each report.
        weight: the weight of each report, float64, shape (n,), where clients release weights.
        epsilon: the epsilon of each report.
        client: the sender of each report, int64, shape (n,), where reports name their senders.
    """

    round: int
    size: int
    payloads: NDArray[np.uint8]
    chunk: int
    weight: NDArray[np.float64] | None = None
    epsilon: float | None = None
    client: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Reports:
        """Return one or more reports as columns; only payloads, weights and senders may differ."""
        first = reports[0]
        return cls(
            round=first.round,
            size=first.size,
            payloads=np.array([np.frombuffer(one.payload, np.uint8) for one in reports]),
            chunk=first.chunk,
            weight=None if first.weight is None else np.array([one.weight for one in reports]),
            epsilon=first.epsilon,
            client=None if first.client is None else np.array([one.client for one in reports]),
        )

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Report]:
        for place, payload in enumerate(self.payloads):
            yield Report(
                round=self.round,
                size=self.size,
                payload=payload.tobytes(),
                chunk=self.chunk,
                weight=None if self.weight is None else float(self.weight[place]),
                epsilon=self.epsilon,
                client=None if self.client is None else int(self.client[place]),
            )

    def chosen(self, which: NDArray[np.bool_]) -> Reports:
        """Return the reports for which ``which``, shape (n,), is true."""
        return replace(
            self,
            payloads=self.payloads[which],
            weight=None if self.weight is None else self.weight[which],
            client=None if self.client is None else self.client[which],
        )

    @property
    def uplink_bits(self) -> int:
        """Bits sent by all of them; see ``Report.uplink_bits``."""
        bits: int = 8 * self.payloads.shape[1] + label_bits(self.size, self.chunk)
        return len(self) * (bits + (0 if self.weight is None else 64))


class Reason(StrEnum):
    """Why a client refuses. The codec numbers reasons in this order: add new ones at the end."""

    MALFORMED = "malformed"
    UNKNOWN_RUN = "unknown-run"
    WRONG_ROUND = "wrong-round"
    OUT_OF_RANGE = "out-of-range"
    ASKED_OTHERWISE = "asked-otherwise"
    OVER_BUDGET = "over-budget"
    NOT_KEPT = "not-kept"
    LEDGER = "ledger"
    POLICY = "policy"
    OTHER_WEIGHTS = "other-weights"


@dataclass(frozen=True)
class Refusal:
    """A client's answer when it gives no report.

    It has no free text. A code from a short list depends on nothing private, provided that the
    decision to refuse does not.

    Attributes:
        round: the round of the broadcast that it answers; 0 if the request could not be read.
        reason: one of a fixed list.
    """

    round: int
    reason: Reason


RoundReply = Report | Refusal


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a shuffler delivers of one round's messages: their counts, without senders.

    Nobody needs the order of the messages.

    Attributes:
        round: the round.
        size: the number of coordinates of a whole report, d.
        chunk: coordinates in one message.
        ones: how many of the bits at each coordinate were 1, int64, shape (d,).
        reports: how many whole reports were counted, n.
        epsilon: the budget that all these messages share, where clients' budgets differ.
    """

    round: int
    size: int
    chunk: int
    ones: NDArray[np.int64]
    reports: int
    epsilon: float | None = None

    @property
    def num_messages(self) -> int:
        """The number of messages in which each report travelled."""
        return -(-self.size // self.chunk)

    @property
    def uplink_bits(self) -> int:
        """Bits that the clients sent for these messages: content and position labels."""
        return self.reports * (self.size + label_bits(self.size, self.chunk))


Incoming = Iterable[Report | Reports | Counted]
"""What the server step reads: a stream, consumed once."""


@dataclass(frozen=True)
class Layout:
    """The layout of a model's parameters in one flat vector.

    Attributes:
        names: the parameters' names, in order.
        shapes: their shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(int(np.prod(shape)) for shape in self.shapes))

    @property
    def size(self) -> int:
        """The number of coordinates, d."""
        return sum(self.sizes)

    def split(self, vector: Vector) -> dict[str, Vector]:
        """Return views of ``vector``, shape (d,), by parameter name, each in its own shape."""
        pieces = np.split(vector, np.cumsum(self.sizes)[:-1])
        return {
            name: piece.reshape(shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }


# The frame, and arrays

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


# Requests and replies

_HEAD = struct.Struct("<HHIq")
# The bits of the index say whether a report has a weight (1), an epsilon (2) and a client (4).
_REPORTS = [
    struct.Struct("<qq" + "d" * (number & 1) + "d" * (number >> 1 & 1) + "q" * (number >> 2))
    for number in range(8)
]
_REASONS = tuple(Reason)

_WEIGHTS, _PUBLIC = "weights", "public/"
_RANGES = ("ranges/centers", "ranges/radii", "ranges/sizes")


def pack_request(request: RoundRequest) -> bytes:
    """Return ``request`` as bytes.

    Raises:
        WireError: a part of it has the wrong type, is out of range or is not finite; or it has
            arrays for single clients, see ``RoundRequest.to``.
    """
    if request.own:
        raise cannot_pack("it has arrays for single clients: pack request.to(client) for each")
    broadcast = request.broadcast
    arrays = _arrays_of(broadcast)
    body = array_parts(arrays)
    _check(_wrong_place(request.run, broadcast.round) or _wrong_arrays(arrays), cannot_pack)
    raw = request.run.encode()
    try:
        head = _HEAD.pack(0, len(raw), request.phase, broadcast.round)
    except struct.error as error:
        raise cannot_pack(f"its round or its phase is out of range ({error})") from error
    parts = [head, raw + bytes(padding(len(raw))), *body]
    return b"".join([frame(MessageKind.REQUEST, FRAME.size + total(parts)), *parts])


def broadcast_digest(broadcast: Broadcast) -> bytes:
    """Return the SHA-256 digest, 32 bytes, of everything in ``broadcast`` except its round.

    Raises:
        WireError: see ``pack_request``.
    """
    found = hashlib.sha256()
    for part in array_parts(_arrays_of(broadcast)):
        found.update(part)
    return found.digest()


def _arrays_of(broadcast: Broadcast) -> Arrays:
    arrays = {_PUBLIC + name: array for name, array in broadcast.public.items()}
    arrays[_WEIGHTS] = broadcast.weights
    if broadcast.ranges is not None:
        ranges = broadcast.ranges
        sizes = np.array(ranges.sizes, np.int64)
        arrays |= zip(_RANGES, (ranges.centers, ranges.radii, sizes), strict=True)
    return arrays


def read_request(message: bytes) -> RoundRequest:
    """Return the request that ``message`` holds.

    The arrays are read-only views of ``message``. The weights are finite, and the ranges are valid
    and match the weights. Public arrays are not checked, because only the system that reads them
    knows how to check them.

    Raises:
        WireError: ``message`` is malformed or of another version.
    """
    check_kind(message, MessageKind.REQUEST)
    reader = Reader(message, FRAME.size)
    number, length, phase, round = reader.numbers(_HEAD)
    if number:
        raise malformed("bytes that must be zero are not")
    run = to_text(reader.padded(length), LONGEST_RUN)
    arrays = arrays_at(reader)
    _check(_wrong_place(run, round) or _wrong_arrays(arrays), malformed)
    ranges = None
    if _RANGES[0] in arrays:
        centers, radii, sizes = (arrays.pop(name) for name in _RANGES)
        try:
            ranges = Ranges(centers, radii, tuple(sizes.tolist()))
        except ConfigError as error:
            raise malformed(f"its ranges are refused ({error})") from error
    broadcast = Broadcast(
        round=round,
        weights=arrays.pop(_WEIGHTS),
        ranges=ranges,
        public={name.removeprefix(_PUBLIC): array for name, array in arrays.items()},
    )
    return RoundRequest(run=run, phase=phase, broadcast=broadcast)


def _check(wrong: str, error: Callable[[str], WireError]) -> None:
    """Raise an error if something is wrong."""
    if wrong:
        raise error(wrong)


def _wrong_place(run: str, round: int) -> str:
    if not is_name(run, LONGEST_RUN):
        return f"the name of its run is not 1 to {LONGEST_RUN} printable characters"
    return "" if round >= 1 else f"its round is {round}, not 1 or more"


def _wrong_arrays(arrays: Arrays) -> str:
    """Return what is wrong with a broadcast's arrays, or an empty string."""
    own = {name for name in arrays if not name.startswith(_PUBLIC)}
    if own not in ({_WEIGHTS}, {_WEIGHTS, *_RANGES}) or _PUBLIC in arrays:
        return "its arrays are not those of a broadcast"
    weights = arrays[_WEIGHTS]
    if weights.dtype != np.float32 or weights.ndim != 1:
        return (
            f"its weights are of type {weights.dtype} and shape {weights.shape}, not float32 (d,)"
        )
    if not np.isfinite(weights).all():
        return "its weights contain NaN or infinity"
    if _RANGES[0] not in own:
        return ""
    found = [arrays[name] for name in _RANGES]
    one_each = [array.shape for array in found] == [(found[0].size,)] * 3
    if not one_each or [array.dtype for array in found] != [np.float64, np.float64, np.int64]:
        return "its ranges are not a float64 centre, a float64 radius and a size for each tensor"
    sizes = found[2].tolist()
    # The sum is over Python integers, because a sum of int64 values could wrap around to d.
    if min(sizes, default=0) < 1 or sum(sizes) != weights.size:
        return f"its ranges do not match its {weights.size} weights"
    return ""


def pack_reply(answer: RoundReply, *, run: str, phase: int) -> bytes:
    """Return ``answer`` as bytes; ``run`` and ``phase`` are those of the request that it answers.

    The answer to a request that cannot be read is a refusal with reason "malformed", round 0, run
    "" and phase 0, because nothing else is known.

    Raises:
        WireError: a part of it has the wrong type, is out of range or is not finite.
    """
    _check(_wrong_answer(answer, run, phase), cannot_pack)
    raw = run.encode()
    try:
        if isinstance(answer, Refusal):
            number = _REASONS.index(answer.reason)
            head = _HEAD.pack(number, len(raw), phase, answer.round)
            return b"".join((frame(MessageKind.REFUSAL, FRAME.size + len(head + raw)), head, raw))
        optional = (answer.weight, answer.epsilon, answer.client)
        number = sum(1 << place for place, value in enumerate(optional) if value is not None)
        head = _HEAD.pack(number, len(raw), phase, answer.round)
        given = [value for value in optional if value is not None]
        more = _REPORTS[number].pack(answer.size, answer.chunk, *given)
    except (struct.error, OverflowError) as error:
        raise cannot_pack(f"a number of an answer is out of range ({error})") from error
    length = FRAME.size + len(head) + len(raw) + len(more) + len(answer.payload)
    return b"".join((frame(MessageKind.REPORT, length), head, raw, more, answer.payload))


def read_reply(message: bytes) -> tuple[str, int, RoundReply]:
    """Return the run, the phase and the reply that ``message`` holds.

    A server uses ``read_reply_to``, which checks all three.

    Raises:
        WireError: ``message`` is malformed or of another version.
    """
    kind = kind_of(message)
    is_report = kind == MessageKind.REPORT
    if not is_report and kind != MessageKind.REFUSAL:
        raise malformed(f"it is of kind {kind}, which is not an answer")
    reader = Reader(message, FRAME.size)
    number, length, phase, round = reader.numbers(_HEAD)
    raw = reader.raw(length)
    run = to_text(raw, LONGEST_RUN) if raw else ""
    if number >= len(_REPORTS if is_report else _REASONS):
        raise malformed(f"its number is {number}")
    answer: RoundReply
    if is_report:
        size, chunk, *given = reader.numbers(_REPORTS[number])
        answer = Report(
            round=round,
            size=size,
            payload=reader.rest(),
            chunk=chunk,
            weight=given.pop(0) if number & 1 else None,
            epsilon=given.pop(0) if number & 2 else None,
            client=given.pop(0) if number & 4 else None,
        )
    else:
        answer = Refusal(round, _REASONS[number])
        reader.finish()
    _check(_wrong_answer(answer, run, phase), malformed)
    return run, phase, answer


def read_reply_to(request: RoundRequest, message: bytes) -> RoundReply:
    """Return the reply to ``request`` that ``message`` holds.

    A client that could not read the request names no request in its refusal, which is therefore
    accepted as a reply to every request.

    Raises:
        WireError: ``message`` is malformed, of another version, or answers another request.
    """
    run, phase, answer = read_reply(message)
    if not run:
        return answer
    asked = request.broadcast.round
    if (run, answer.round, phase) != (request.run, asked, request.phase):
        raise WireError(
            f"an answer to round {answer.round}, phase {phase} of the run {run!a}: "
            f"the request was for round {asked}, phase {request.phase} of {request.run!a}"
        )
    return answer


def pack_reports(reports: Reports, *, run: str, phase: int) -> NDArray[np.uint8]:
    """Return the bytes that ``pack_reply`` gives for each of ``reports``, as rows of one array.

    Raises:
        WireError: as for ``pack_reply``; or there is no report.
    """
    first = next(iter(reports), None)
    if first is None:
        raise cannot_pack("there is no report")
    packed = np.frombuffer(pack_reply(first, run=run, phase=phase), np.uint8)
    rows = np.empty((len(reports), packed.size), np.uint8)
    rows[:] = packed
    head = packed.size - len(first.payload)
    rows[:, head:] = reports.payloads
    _check(_wrong_columns(reports), cannot_pack)
    for name, dtype, place in _places(head, first.weight, first.epsilon, first.client):
        column = np.ascontiguousarray(getattr(reports, name), dtype)
        rows[:, place] = column[:, None].view(np.uint8)
    return rows


def read_reports_to(request: RoundRequest, rows: NDArray[np.uint8]) -> Reports:
    """Return the replies to ``request`` in the rows of an array; see ``pack_reports``.

    Raises:
        WireError: as for ``read_reply_to``; or the replies differ in more than their payloads,
            weights and senders.
    """
    first = read_reply_to(request, rows[0].tobytes())
    if not isinstance(first, Report):
        raise malformed("it belongs to a group of reports, but is not a report")
    head = rows.shape[1] - len(first.payload)
    alike = np.ones(head, np.bool_)
    found: dict[str, NDArray[Any]] = {}
    for name, dtype, place in _places(head, first.weight, first.epsilon, first.client):
        alike[place] = False
        found[name] = np.ascontiguousarray(rows[:, place]).view(dtype)[:, 0]
    if (rows[:, :head] != rows[0, :head])[:, alike].any():
        raise malformed("the answers that came together differ in more than their payloads")
    reports = Reports(
        round=first.round,
        size=first.size,
        payloads=rows[:, head:],
        chunk=first.chunk,
        weight=found.get("weight"),
        epsilon=first.epsilon,
        client=found.get("client"),
    )
    _check(_wrong_columns(reports), malformed)
    return reports


def _places(
    head: int, weight: object, epsilon: object, client: object
) -> Iterator[tuple[str, str, slice]]:
    """Yield name, type and offsets of each column before the payloads, which begin at ``head``."""
    if client is not None:
        head -= 8
        yield "client", "<i8", slice(head, head + 8)
    if epsilon is not None:
        head -= 8
    if weight is not None:
        yield "weight", "<f8", slice(head - 8, head)


def _wrong_columns(reports: Reports) -> str:
    """Return what is wrong with the columns of reports, or an empty string."""
    weight, client = reports.weight, reports.client
    if weight is not None and not (np.isfinite(weight) & (weight >= 0)).all():
        return "a weight is not a finite number of at least 0"
    if client is not None and not (client >= 0).all():
        return "a client's number is negative"
    return ""


def _wrong_answer(answer: RoundReply, run: str, phase: int) -> str:
    """Return what is wrong with a reply, or an empty string."""
    if isinstance(answer, Refusal):
        if answer.reason not in _REASONS:
            return "its reason is not in the list"
        if not run and answer == Refusal(0, Reason.MALFORMED) and phase == 0:
            return ""
        return _wrong_place(run, answer.round)
    if type(answer.payload) is not bytes:
        return f"its payload is a {type(answer.payload).__name__}, not bytes"
    if not 1 <= answer.chunk <= answer.size:
        return f"its chunk is {answer.chunk}, not 1 to its size of {answer.size}"
    for name, value in (("weight", answer.weight), ("epsilon", answer.epsilon)):
        if value is not None and not 0 <= value < math.inf:
            return f"its {name} is {value}, not a finite number of at least 0"
    if answer.client is not None and answer.client < 0:
        return f"its client is {answer.client}, not 0 or more"
    return _wrong_place(run, answer.round)
