"""Named arrays become bytes and back exactly, with one encoding, at a cost bounded by their
size."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from wire_values import arrays, peak_bytes, same_arrays

from fedldp.core.errors import WireError
from fedldp.protocol.wire import pack_arrays, read_arrays


@given(arrays)
def test_packed_arrays_are_read_back(values: dict[str, np.ndarray[Any, Any]]) -> None:
    message = pack_arrays(values)
    found = read_arrays(message)
    assert same_arrays(found, values)
    assert list(found) == sorted(values, key=str.encode)
    assert pack_arrays(found) == message


def test_the_memory_layout_of_an_array_does_not_matter() -> None:
    plain = np.arange(12, dtype=np.int32).reshape(3, 4)
    wanted = pack_arrays({"x": plain, "y": plain[0]})
    for other in (np.asfortranarray(plain), plain.astype(">i4"), plain[::-1][::-1], plain.T.T):
        assert pack_arrays({"y": other[0], "x": other}) == wanted
    strided = np.repeat(plain, 2, axis=1)[:, ::2]
    assert pack_arrays({"x": strided, "y": strided[0]}) == wanted


def test_arrays_are_read_as_read_only_views() -> None:
    message = pack_arrays({"x": np.arange(5.0), "odd": np.zeros(3, np.uint8)})
    for found in read_arrays(message).values():
        assert np.shares_memory(found, np.frombuffer(message, np.uint8))
        assert found.flags.aligned
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (np.array(["text"]), "has the type"),
        (np.zeros(1, np.float16), "has the type"),
        (np.zeros(1, [("a", "f4")]), "has the type"),
        (np.zeros((0, 3)), "exactly one axis if the array has no elements"),
        (np.zeros((1,) * 33), "at most 32 axes"),
        (np.frombuffer(b"\2", np.bool_), "neither 0 nor 1"),
        (np.ma.masked_array([1.0], [True]), "is a MaskedArray"),
        ([1.0], "is a list"),
        (np.float64(1), "is a float64"),
    ],
)
def test_arrays_that_cannot_be_packed(value: Any, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        pack_arrays({"x": value})


@pytest.mark.parametrize("name", ["", "a\n", "\ud800", "x" * 256, "\x00"])
def test_names_that_cannot_be_packed(name: str) -> None:
    with pytest.raises(WireError, match="printable characters"):
        pack_arrays({name: np.zeros(1)})


# Damaged messages


def framed(body: bytes) -> bytes:
    """Return ``body`` behind a frame that states its true length."""
    return b"fedldp\x01\x01" + struct.pack("<Q", 16 + len(body)) + body


def entry(name: bytes, number: int, shape: tuple[int, ...], content: bytes, zero: int = 0) -> bytes:
    return (
        struct.pack("<HBBI", len(name), number, len(shape), zero)
        + name + bytes(-len(name) % 8)
        + struct.pack(f"<{len(shape)}Q", *shape)
        + content + bytes(-len(content) % 8)
    )  # fmt: skip


def listed(*entries: bytes, count: int | None = None) -> bytes:
    number = len(entries) if count is None else count
    return framed(struct.pack("<Q", number) + b"".join(entries))


U1 = 2  # the number of uint8
SOUND = entry(b"a", U1, (2,), b"xy")


def test_the_encoding_by_hand() -> None:
    message = listed(SOUND, entry("é".encode(), 9, (1, 1), struct.pack("<f", 0.5)))
    wanted = {"a": np.frombuffer(b"xy", np.uint8), "é": np.float32([[0.5]])}
    assert same_arrays(read_arrays(message), wanted)
    assert pack_arrays(wanted) == message


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (listed(entry(b"a", U1, (0, 2**62), b"")), "without elements has several axes"),
        (listed(entry(b"a", U1, (2**62,), b"")), "ends before"),
        (listed(entry(b"a", U1, (2**32, 2**32), b"")), "ends before"),  # 0 modulo 2^64
        (listed(entry(b"a", 10, (2**61,), b"")), "ends before"),  # 0 bytes modulo 2^64
        (listed(entry(b"a", U1, (1,) * 33, b"x")), "header of an array"),
        (listed(entry(b"a", 11, (1,), b"x")), "header of an array"),
        (listed(entry(b"a", U1, (1,), b"x", zero=1)), "header of an array"),
        (listed(entry(b"a", 0, (1,), b"\2")), "boolean"),
        (listed(entry(b"", U1, (1,), b"x")), "order of their names"),
        (listed(entry(b"\n", U1, (1,), b"x")), "a name is not"),
        (listed(entry(b"\xc1\x81", U1, (1,), b"x")), "a name is not"),  # "A", in two bytes
        (listed(entry(b"x" * 256, U1, (1,), b"x")), "a name is not"),
        (listed(SOUND, SOUND), "order of their names"),
        (listed(entry(b"b", U1, (1,), b"x"), SOUND), "order of their names"),
        (listed(SOUND, count=2), "ends before"),
        (listed(SOUND, count=0), "bytes follow"),
        (listed(SOUND[:-1] + b"\1"), "must be zero"),
        (listed(SOUND + bytes(8), count=1), "bytes follow"),
        (framed(b""), "ends before"),
        (b"", "fewer than any message"),
        (b"PK\x03\x04" + bytes(20), "does not start"),
        (b"fedldp\x02" + bytes(20), "version 2, and this is version 1"),
        (b"fedldp\x01\x02" + struct.pack("<Q", 16), "kind 2, not 1"),
        (b"fedldp\x01\x01" + struct.pack("<Q", 17), "states a length of 17"),
    ],
)
def test_crafted_messages(message: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        read_arrays(message)
    assert peak_bytes(read_arrays, message) < 1 << 14


@pytest.mark.parametrize("message", [bytearray(listed(SOUND)), memoryview(listed(SOUND)), "text"])
def test_only_bytes_are_read(message: Any) -> None:
    with pytest.raises(WireError, match="not bytes"):
        read_arrays(message)


# Memory


def test_large_arrays_need_almost_nothing() -> None:
    message = pack_arrays({"a": np.zeros(1 << 20, np.bool_), "x": np.zeros((512, 512))})
    assert peak_bytes(read_arrays, message) < len(message) // 100
