"""The values that may leave a client, and those that may not."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.errors import PrivacyError
from fedldp.protocol.wire import Counted, Layout, Report, Sensitive

SECRET = 0.123456789


def secret() -> Sensitive[Any]:
    return Sensitive(np.full(3, SECRET))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_sensitive_value_cannot_be_pickled(protocol: int) -> None:
    for holder in (secret(), [secret()], {"update": secret()}):
        with pytest.raises(PrivacyError, match="may not leave"):
            pickle.dumps(holder, protocol)


def test_a_sensitive_value_shows_nothing() -> None:
    value = secret()
    for shown in (repr(value), str(value), f"{value}", f"{value!r}", f"{[value]}", ascii(value)):
        assert "123456" not in shown
        assert "array" not in shown
    with pytest.raises(TypeError):
        json.dumps(value)
    with pytest.raises(TypeError):
        vars(value)


def test_a_sensitive_value_is_not_converted_to_an_array_by_accident() -> None:
    value = secret()
    with pytest.raises((TypeError, ValueError)):
        np.asarray(value, np.float64)
    with pytest.raises(TypeError):
        value + value  # type: ignore[operator]
    with pytest.raises(TypeError):
        bytes(value)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        iter(value)  # type: ignore[call-overload]


# Broadcast and Report are frozen, and cross processes


# Bits on the wire


def one_bit_report(size: int, chunk: int) -> Report:
    return Report(round=1, size=size, payload=bytes(-(-size // 8)), chunk=chunk)


@pytest.mark.parametrize(
    ("size", "chunk", "messages", "bits"),
    [
        (1024, 1024, 1, 1024),  # one message needs no label
        (1024, 1, 1024, 1024 + 1024 * 10),  # labels 0 to 1023 have 10 bits
        (1024, 8, 128, 1024 + 128 * 7),
        (1024, 1000, 2, 1024 + 2 * 1),
        (1032, 8, 129, 1032 + 129 * 8),  # label 128 needs an eighth bit
        (8, 3, 3, 8 + 3 * 2),
        (8, 1, 8, 8 + 8 * 3),
        (16, 15, 2, 16 + 2),
    ],
)
def test_uplink_bits_count_content_and_labels(
    size: int, chunk: int, messages: int, bits: int
) -> None:
    report = one_bit_report(size, chunk)
    assert report.num_messages == messages
    assert report.uplink_bits == bits


@given(size=st.integers(1, 400), data=st.data())
def test_shuffled_messages_cost_what_their_reports_cost(size: int, data: st.DataObject) -> None:
    chunk = data.draw(st.integers(1, size))
    report = one_bit_report(size, chunk)
    shuffled = Counted(round=1, size=size, chunk=chunk, ones=np.zeros(size, np.int64), reports=1)
    # Whole bytes are padded; a shuffler's messages carry only their coordinates.
    padding = 8 * len(report.payload) - size
    assert 0 <= report.uplink_bits - shuffled.uplink_bits <= padding


# Layout


def test_a_layout_splits_a_vector_into_views_of_the_right_shape() -> None:
    layout = Layout(("a", "b", "c"), ((2, 3), (1,), (2, 1, 2)))
    assert layout.sizes == (6, 1, 4)
    assert layout.size == 11
    vector = np.arange(11, dtype=np.float32)
    pieces = layout.split(vector)
    assert {name: piece.shape for name, piece in pieces.items()} == {
        "a": (2, 3), "b": (1,), "c": (2, 1, 2),
    }  # fmt: skip
    assert np.concatenate([p.reshape(-1) for p in pieces.values()]).tolist() == vector.tolist()
    assert all(np.shares_memory(piece, vector) for piece in pieces.values())
