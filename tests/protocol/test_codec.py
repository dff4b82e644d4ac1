"""Requests and replies become bytes and back; any other message is refused in one line."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_values import (
    names,
    peak_bytes,
    refusals,
    refused_or_same,
    reports,
    requests,
    same_broadcast,
)

from fedldp.core.bounding import Ranges
from fedldp.core.errors import WireError
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    RoundReply,
    RoundRequest,
    Sensitive,
    pack_arrays,
    pack_reply,
    pack_request,
    read_arrays,
    read_reply,
    read_reply_to,
    read_request,
)

phases = st.integers(0, 2**32 - 1)

BROADCAST = Broadcast(
    round=3,
    weights=np.float32([1.5, -2.0, 0.0]),
    ranges=Ranges.fixed(0.0, [0.1, 0.2], (2, 1)),
    public={"codes": np.array([1, 2], np.uint8)},
)
REQUEST = RoundRequest(run="run 1", phase=2, broadcast=BROADCAST)
ARRAYS = {
    "b": np.array([[1.5, -2.0]], np.float32),
    "a": np.array([True, False]),
    "none": np.zeros(0, np.int64),
    "one": np.array(7, np.uint16),
}
REPORT = Report(
    round=3, size=9, payload=b"ab", chunk=2, weight=2.0, epsilon=0.5, client=7
)  # fmt: skip
PLAIN = Report(round=3, size=8, payload=b"a", chunk=8)
REFUSAL = Refusal(3, Reason.POLICY)
UNREADABLE = Refusal(0, Reason.MALFORMED)


def packed(answer: RoundReply) -> bytes:
    return pack_reply(answer, run="run 1", phase=2)


def pack_again(read: tuple[str, int, RoundReply]) -> bytes:
    run, phase, answer = read
    return pack_reply(answer, run=run, phase=phase)


def check_request(message: bytes) -> bool:
    return refused_or_same(read_request, pack_request, message)


def check_answer(message: bytes) -> bool:
    return refused_or_same(read_reply, pack_again, message)


def check_arrays(message: bytes) -> bool:
    return refused_or_same(read_arrays, pack_arrays, message)


MESSAGES = [
    (pack_request(REQUEST), check_request),
    (pack_request(replace(REQUEST, broadcast=replace(BROADCAST, ranges=None))), check_request),
    (pack_arrays(ARRAYS), check_arrays),
    (packed(REPORT), check_answer),
    (packed(PLAIN), check_answer),
    (packed(REFUSAL), check_answer),
    (pack_reply(UNREADABLE, run="", phase=0), check_answer),
]
every_message = pytest.mark.parametrize(
    ("message", "check"),
    MESSAGES,
    ids=["request", "no ranges", "arrays", "report", "plain report", "refusal", "unreadable"],
)

# There and back


@given(requests)
def test_requests(request: RoundRequest) -> None:
    message = pack_request(request)
    found = read_request(message)
    assert (found.run, found.phase) == (request.run, request.phase)
    assert same_broadcast(found.broadcast, request.broadcast)
    assert pack_request(found) == message


@given(reports() | refusals, names, phases)
def test_answers(answer: RoundReply, run: str, phase: int) -> None:
    message = pack_reply(answer, run=run, phase=phase)
    assert read_reply(message) == (run, phase, answer)
    assert pack_again(read_reply(message)) == message


# The bytes themselves: a change to them is a change of VERSION.


def test_the_bytes_of_a_report() -> None:
    assert packed(REPORT) == (
        b"fedldp\x01\x03" + struct.pack("<Q", 48 + 5 + 24 + 2)
        + struct.pack("<HHIq", 7, 5, 2, 3) + b"run 1"
        + struct.pack("<qqddq", 9, 2, 2.0, 0.5, 7) + b"ab"
    )  # fmt: skip


def test_the_bytes_of_a_refusal() -> None:
    head = b"fedldp\x01\x04" + struct.pack("<Q", 37)
    assert packed(REFUSAL) == head + struct.pack("<HHIq", 8, 5, 2, 3) + b"run 1"
    reasons = "malformed unknown-run wrong-round out-of-range asked-otherwise over-budget"
    assert list(Reason) == [*reasons.split(), "not-kept", "ledger", "policy", "other-weights"]


def test_the_bytes_of_a_request() -> None:
    arrays = pack_arrays(
        {
            "public/codes": BROADCAST.public["codes"],
            "ranges/centers": np.zeros(2),
            "ranges/radii": np.array([0.1, 0.2]),
            "ranges/sizes": np.array([2, 1]),
            "weights": BROADCAST.weights,
        }
    )
    rest = struct.pack("<HHIq", 0, 5, 2, 3) + b"run 1\0\0\0" + arrays[16:]
    assert pack_request(REQUEST) == request_of(rest)


def request_of(rest: bytes) -> bytes:
    return b"fedldp\x01\x02" + struct.pack("<Q", 16 + len(rest)) + rest


# Answers to requests


@pytest.mark.parametrize("answer", [REPORT, REFUSAL])
def test_an_answer_to_another_request_is_refused(answer: Any) -> None:
    for message in (
        packed(replace(answer, round=2)),
        pack_reply(answer, run="run 2", phase=2),
        pack_reply(answer, run="run 1", phase=1),
    ):
        with pytest.raises(WireError, match=r"the request was for round 3, phase 2 of 'run 1'"):
            read_reply_to(REQUEST, message)


def test_a_client_that_could_not_read_the_request_can_say_so() -> None:
    message = pack_reply(UNREADABLE, run="", phase=0)
    assert read_reply_to(REQUEST, message) == UNREADABLE
    for other, phase in ((UNREADABLE, 1), (Refusal(1, Reason.MALFORMED), 0), (PLAIN, 0),
                            (Refusal(0, Reason.POLICY), 0)):  # fmt: skip
        with pytest.raises(WireError, match="run"):
            pack_reply(other, run="", phase=phase)
    with pytest.raises(WireError, match="round is 0"):
        packed(UNREADABLE)


# What cannot be packed


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"round": 0}, "round is 0"),
        ({"round": 1.5}, "out of range"),
        ({"size": 2**63}, "out of range"),
        ({"chunk": 10}, "chunk is 10, not 1 to its size of 9"),
        ({"chunk": 0}, "chunk is 0"),
        ({"weight": float("nan")}, "weight is nan"),
        ({"weight": -1.0}, "weight is -1.0"),
        ({"weight": 10**400}, "out of range"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"epsilon": -0.5}, "epsilon is -0.5"),
        ({"client": -1}, "client is -1"),
        ({"client": 2**63}, "out of range"),
        ({"payload": Sensitive(b"secret")}, "payload is a Sensitive"),
        ({"payload": bytearray(2)}, "payload is a bytearray"),
    ],
)
def test_reports_that_cannot_be_packed(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        packed(replace(REPORT, **change))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        *(({"run": run}, "its run is not 1 to 200") for run in ("", "a\nb", "x" * 201, "\ud800")),
        *(({"phase": phase}, "out of range") for phase in (-1, 2**32, 0.5)),
    ],
)
def test_runs_and_phases_that_cannot_be_packed(given: dict[str, Any], complaint: str) -> None:
    for answer in (REPORT, REFUSAL):
        with pytest.raises(WireError, match=complaint):
            pack_reply(answer, **{"run": "run 1", "phase": 0, **given})
    with pytest.raises(WireError, match=complaint):
        pack_request(replace(REQUEST, **given))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"round": 0}, "round is 0"),
        ({"round": 2**63}, "out of range"),
        ({"weights": np.zeros(3, ">f4")}, "type >f4"),
        ({"weights": np.float32([0, 0, -np.inf])}, "NaN or infinity"),
        ({"weights": Sensitive(np.zeros(3, np.float32))}, "is a Sensitive"),
        ({"ranges": Ranges.fixed(0.0, 1.0, (4, -1))}, "ranges do not match its 3 weights"),
        ({"public": {"x" * 249: np.zeros(1)}}, "printable characters"),
    ],
)
def test_broadcasts_that_cannot_be_packed(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        pack_request(replace(REQUEST, broadcast=replace(BROADCAST, **change)))


# What must not be read


def arrays_of(message: bytes) -> dict[str, Any]:
    rest = message[40:]
    return read_arrays(b"fedldp\x01\x01" + struct.pack("<Q", 16 + len(rest)) + rest)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"weights": None}, "not those of a broadcast"),
        ({"ranges/sizes": None}, "not those of a broadcast"),
        ({"ranges/centers": None}, "not those of a broadcast"),
        ({"other": np.zeros(1)}, "not those of a broadcast"),
        ({"public/": np.zeros(1)}, "not those of a broadcast"),
        ({"weights": np.float32([0, np.nan, 0])}, "NaN or infinity"),
        ({"weights": np.zeros(3)}, "type float64"),
        ({"weights": np.zeros((1, 3), np.float32)}, "shape"),
        ({"ranges/radii": np.array([0.1, np.nan])}, "ranges are refused.*finite"),
        ({"ranges/radii": np.array([0.1, 0.0])}, "ranges are refused.*at least"),
        ({"ranges/radii": np.array([0.1, 1e7])}, "ranges are refused"),
        ({"ranges/centers": np.zeros(2, np.float32)}, "ranges are not a float64"),
        ({"ranges/centers": np.zeros(1)}, "ranges are not a float64"),
        ({"ranges/sizes": np.array([2, 1], np.uint64)}, "ranges are not a float64"),
        ({"ranges/sizes": np.array([2, 2])}, "ranges do not match its 3 weights"),
        ({"ranges/sizes": np.array([3, 0])}, "ranges do not match its 3 weights"),
        ({"ranges/sizes": np.array([-(2**63), 3])}, "ranges do not match its 3 weights"),
        # Sizes whose sum is 3 modulo 2^64
        (
            {
                "ranges/sizes": np.array([2**62] * 3 + [2**62 - 1, 4]),
                "ranges/centers": np.zeros(5),
                "ranges/radii": np.ones(5),
            },
            "ranges do not match its 3 weights",
        ),
    ],
)
def test_requests_that_are_not_read(change: dict[str, Any], complaint: str) -> None:
    message = pack_request(REQUEST)
    arrays = {k: v for k, v in (arrays_of(message) | change).items() if v is not None}
    with pytest.raises(WireError, match=complaint):
        read_request(request_of(message[16:40] + pack_arrays(arrays)[16:]))


@pytest.mark.parametrize("read", [read_request, read_reply, read_arrays])
def test_messages_of_another_kind_are_not_read(read: Callable[[bytes], Any]) -> None:
    kinds = [pack_request(REQUEST), packed(REPORT), packed(REFUSAL), pack_arrays({})]
    refused = 0
    for message in kinds:
        try:
            read(message)
        except WireError as error:
            refused += "of kind" in str(error)
    assert refused == (2 if read is read_reply else 3)


# Damage


@every_message
def test_every_changed_byte(message: bytes, check: Callable[[bytes], bool]) -> None:
    assert not check(message)
    for place, byte in enumerate(message):
        for value in {byte ^ 1 << bit for bit in range(8)} | {0, 255}:
            check(message[:place] + bytes([value]) + message[place + 1 :])


@every_message
def test_cut_and_extended(message: bytes, check: Callable[[bytes], bool]) -> None:
    assert all(check(message[:end]) for end in range(len(message)))
    assert all(check(message + bytes(more)) for more in range(1, 20))
    assert all(check(bytes(more) + message) for more in range(1, 20))


@given(st.binary(max_size=200))
def test_noise(noise: bytes) -> None:
    for kind in range(6):
        message = b"fedldp\x01" + bytes([kind]) + struct.pack("<Q", 16 + len(noise)) + noise
        for check in (check_request, check_answer, check_arrays):
            assert check(noise)
            check(message)


# Memory


@every_message
def test_huge_numbers_take_no_memory(message: bytes, check: Callable[[bytes], bool]) -> None:
    read = {check_request: read_request, check_answer: read_reply, check_arrays: read_arrays}[check]
    for place in range(16, len(message) - 8):
        for number in (2**62, 2**32 - 1, 2**40):
            huge = message[:place] + struct.pack("<Q", number) + message[place + 8 :]
            assert peak_bytes(read, huge) < 1 << 14  # type: ignore[arg-type]


@pytest.mark.slow
def test_reading_takes_no_more_than_the_message_allows() -> None:
    size = 1 << 16
    each = Ranges.fixed(0.0, 1.0, (1,) * size)
    whole = Ranges.fixed(0.0, 1.0, (size,))
    weights = np.zeros(size, np.float32)
    for ranges, factor in ((each, 4.0), (whole, 0.5)):
        broadcast = Broadcast(round=1, weights=weights, ranges=ranges)
        message = pack_request(replace(REQUEST, broadcast=broadcast))
        assert peak_bytes(read_request, message) < factor * len(message)
    many = {f"{number:x}": np.zeros(0) for number in range(5000)}
    message = pack_request(replace(REQUEST, broadcast=replace(BROADCAST, public=many)))
    assert peak_bytes(read_request, message) < 12 * len(message)
    message = packed(replace(PLAIN, payload=bytes(size)))
    assert peak_bytes(read_reply, message) < 1.1 * len(message)
