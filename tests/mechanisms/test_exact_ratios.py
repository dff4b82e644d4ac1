"""Mechanisms stay within their events: the worst ratio of probabilities in exact fractions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from fedldp.core.randomness import Stream
from fedldp.mechanisms import find_mechanism
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.piecewise import Piecewise
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.mechanisms.two_point_l1 import TwoPointL1

SIZE = 650


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


class Fixed(Stream):
    """A stream whose next comparison is with the integer ``word`` of ``bits`` bits."""

    def __init__(self, word: int, bits: int) -> None:
        super().__init__(bytes(32), simulated=True)
        self.word, self.width = word, bits

    def integers(self, count: int, dtype: Any) -> Any:
        high = (self.word >> (self.width - 32)) - (1 << 31)
        return np.full(count, high if dtype is np.int32 else self.word & 0xFFFFFFFF, dtype)


@pytest.mark.parametrize(
    ("epsilon", "bits"), [(1e-6, 64), (1e-4, 32), (1.0, 32), (10.0, 64), (20.0, 64), (32.0, 32)]
)
def test_two_point_keeps_both_outcomes_possible_for_every_input(epsilon: float, bits: Any) -> None:
    if bits == 32 and epsilon > 10:
        return
    mechanism = TwoPoint(epsilon, bits)
    least = mechanism.threshold_min
    assert mp.log(mp.mpf(2**bits - least) / least) <= mp.mpf(epsilon)
    for kind in (np.float32, np.float64):
        for x in (-3e38, -1.0, np.nextafter(kind(-1), kind(0)), 0.0, 1.0, 3e38):
            values = np.array([x], kind)
            assert mechanism.encode(values, Fixed(least - 1, bits))[0] >> 7 == 1
            assert mechanism.encode(values, Fixed(2**bits - least, bits))[0] >> 7 == 0


@pytest.mark.parametrize("bits", [64, 32])
def test_two_point_l1_norm_of_the_thresholds_is_within_the_proof(bits: Any) -> None:
    for epsilon, d, clip in itertools.product((0.01, 1.0, 10.0), (1, 7, SIZE), (0.3, 5.0)):
        mechanism = TwoPointL1(epsilon, clip, bits)
        limit = mechanism.l1_limit(d)
        for values in (np.ones(d), np.full(d, limit / d), np.full(d, np.nextafter(limit / d, -9))):
            thresholds = mechanism.bits.thresholds(mechanism.bound(values))
            norm = sum(abs(Fraction(2 * t, 2**bits) - 1) for t in thresholds)
            allowed = mp.tanh(mp.mpf(epsilon) / 2) * mp.mpf(clip)
            assert mp.mpf(norm.numerator) / norm.denominator <= allowed


def test_piecewise_ratio_is_within_its_event() -> None:
    for epsilon, d in itertools.product((1e-6, 1e-3, 1.0, 30.0, 4000.0), (1, SIZE)):
        mechanism = Piecewise(epsilon)
        cell, sent = mechanism.window(d), mechanism.num_sent(d)
        exact = sent * mp.log(mp.mpf(cell.high) / cell.low)
        assert exact <= mp.mpf(mechanism.event(d).epsilon) <= mp.mpf(epsilon)
        assert cell.total < 2**64


def exceeds(ratio: Fraction, epsilon: float) -> bool:
    with mp.workdps(60):
        return bool(mp.log(mp.mpf(ratio.numerator) / ratio.denominator) > epsilon)


@pytest.mark.parametrize(
    ("categories", "epsilon"),
    [(2, 1e-6), (3, 1e-3), (10, 1.0), (65_536, 10.0), (2, 31.99), (3, 32.0)],
)
def test_categories_cost_at_most_their_epsilon(epsilon: float, categories: int) -> None:
    window = KRR(epsilon, categories).window
    assert window.low >= 1
    assert window.total < 2**64
    assert not exceeds(Fraction(window.high, window.low), epsilon)
    variants = ("symmetric", "optimised")
    for variant in variants:
        unary: Any = find_mechanism("unary")
        law = unary(epsilon, categories, variant).law
        one, zero = Fraction(law.if_one, 2**64), Fraction(law.if_zero, 2**64)
        assert not exceeds(one * (1 - zero) / (zero * (1 - one)), epsilon)
