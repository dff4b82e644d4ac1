"""Conversion of requests and replies to bytes and back.

The reader assumes that an attacker wrote every message. It raises WireError for anything that
``pack_request`` and ``pack_reply`` would not write, before it uses more memory than a small
multiple of the message's size. A value has exactly one encoding: what was read is packed to the
same bytes again. Nothing is pickled.

All numbers are little-endian. Every message begins with

    the frame, 16 bytes (see ``frame``)
    a number, 2 bytes; the length of the run's name, 2; the phase, 4; the round, 8
    the run's name in UTF-8

A request's number is 0. It continues with

    zeros up to a multiple of 8 bytes
    the broadcast's arrays (see ``arrays``): weights; ranges/centers, ranges/radii and ranges/sizes
        where it has ranges; public/NAME for each public array

A refusal's number is that of its reason, and the message ends there. A report's number is a sum: 1
for a weight, 2 for an epsilon, 4 for a client. The report continues with size, 8 bytes; chunk, 8;
weight, epsilon and client, 8 bytes for each that it has; and the payload, which ends the message.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import Ranges
from fedldp.core.errors import ConfigError, WireError
from fedldp.protocol.wire.frame import (
    FRAME,
    LONGEST_RUN,
    Arrays,
    MessageKind,
    Reader,
    array_parts,
    arrays_at,
    cannot_pack,
    check_kind,
    frame,
    is_name,
    kind_of,
    malformed,
    padding,
    to_text,
    total,
)
from fedldp.protocol.wire.types import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundReply,
    RoundRequest,
)

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
    wrong = _wrong_place(request.run, broadcast.round) or _wrong_arrays(arrays)
    if wrong:
        raise cannot_pack(wrong)
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
    wrong = _wrong_place(run, round) or _wrong_arrays(arrays)
    if wrong:
        raise malformed(wrong)
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
    wrong = _wrong_answer(answer, run, phase)
    if wrong:
        raise cannot_pack(wrong)
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
    wrong = _wrong_answer(answer, run, phase)
    if wrong:
        raise malformed(wrong)
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
    wrong = _wrong_columns(reports)
    if wrong:
        raise cannot_pack(wrong)
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
    wrong = _wrong_columns(reports)
    if wrong:
        raise malformed(wrong)
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
