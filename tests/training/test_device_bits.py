"""Bits made on a device, compared with those of the CPU; here both run on CPU tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.core.bounding import Ranges
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.roles import Update
from fedldp.protocol.wire import Sensitive
from fedldp.testing.clients import Roles, senders_of
from fedldp.training.tensors import encode_on_device


def streams(count: int) -> list[Stream]:
    return [Stream.simulation(seed=0, round=1, client=c, purpose="mechanism") for c in range(count)]


@pytest.mark.parametrize(("size", "epsilon"), [(1, 1e-3), (13, 1.0), (650, 9.9), (70_001, 1.0)])
def test_the_same_weights_give_the_same_bits(epsilon: float, size: int) -> None:
    mechanism = TwoPoint(epsilon)
    generator = np.random.default_rng(size)
    weights = generator.normal(0, 0.1, (3, size)).astype(np.float32)
    weights[0, 0], weights[2, -1] = 3e38, -3e38  # the scaled weight is beyond the largest float32
    sizes = (size,) if size == 1 else (size // 2, size - size // 2)
    count = len(sizes)
    ranges = Ranges(np.linspace(-0.01, 0.02, count), np.linspace(0.05, 0.1, count), sizes)
    expected = mechanism.encode_many(ranges.normalise(weights), streams(3))
    found = encode_on_device(mechanism, ranges, torch.from_numpy(weights), streams(3))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


class Given(Stream):
    """A stream with given words; zeros follow them."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = words

    def integers(self, count: int, dtype: Any) -> np.ndarray:
        taken, self.words = self.words[:count], self.words[count:]
        return np.concatenate([taken, np.zeros(count - len(taken))]).astype(dtype)

    def fill(self, buffer: np.ndarray, count: int) -> None:
        buffer[:count] = self.integers(count // 4, np.int32).view(np.uint8)


def test_words_next_to_a_threshold_are_resolved_in_the_same_way() -> None:
    mechanism, size = TwoPoint(1.0), 200
    values = np.linspace(-1.2, 1.2, size).astype(np.float32)
    near = np.array([mechanism.comparison.offset(v) >> 32 for v in values])
    ranges = Ranges.fixed(0.0, 1.0, (size,))
    words = [np.clip(near + shift, -(2**31), 2**31 - 1) for shift in (-131, -1, 0, 1, 131)]
    rows = np.tile(values, (5, 1))
    expected = mechanism.encode_many(ranges.normalise(rows), [Given(each) for each in words])
    found = encode_on_device(
        mechanism, ranges, torch.from_numpy(rows), [Given(each) for each in words]
    )
    np.testing.assert_array_equal(found, expected)
    bits = np.unpackbits(found, axis=1)
    assert bits[1].all()  # just below
    assert not bits[3].any()  # just above


@pytest.mark.parametrize(
    "weights",
    [
        torch.tensor([[0.1, torch.nan]]),
        torch.tensor([[0.1, torch.inf]]),
        torch.zeros(1, 3),
        torch.zeros(2, 2),
        torch.zeros(1, 2, dtype=torch.float64),
    ],
)
def test_values_that_cannot_be_released_are_refused_before_anything_is_drawn(
    weights: torch.Tensor,
) -> None:
    (stream,) = streams(1)
    with pytest.raises(PrivacyError):
        encode_on_device(TwoPoint(1.0), Ranges.fixed(0.0, 1.0, (2,)), weights, [stream])
    (untouched,) = streams(1)
    assert stream.bytes(8).tobytes() == untouched.bytes(8).tobytes()


@pytest.mark.parametrize(
    ("broken", "settings"),
    [(False, {}), (True, {"send": "update"}), (False, {"mechanism": "laplace"})],
)
def test_an_encoder_gives_the_same_reports_on_any_device(
    settings: dict[str, Any], broken: bool
) -> None:
    config = fedldp.recipe("quickstart", **settings)
    roles = Roles(config, Problem((1, 8, 8), 10, 1437))
    encoder, broadcast = roles.encoder(), roles.broadcast
    generator = np.random.default_rng(0)
    size = broadcast.weights.size
    weights = broadcast.weights + generator.normal(0, 0.1, (3, size)).astype(np.float32)
    if broken:
        weights[1, 5] = np.nan
    found = []
    for updates in (weights.copy(), torch.from_numpy(weights.copy())):
        senders = senders_of([1, 1, 1])
        found.append(list(encoder(Sensitive(Update(rows=updates)), broadcast, senders)))
    assert found[0] == found[1]
