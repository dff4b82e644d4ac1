"""The sign of a noisy vector: the sign of the Gaussian report with the same noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedldp.algorithms.calibration import PerRun
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.personalized.mechanism_gaussian_sign import GaussianSign

SIZE = 20_003


def stream(number: int, simulated: bool) -> Stream:
    return Stream(bytes([number]) * 32, simulated=simulated)


@pytest.mark.parametrize("simulated", [True, False])
def test_the_report_is_the_sign_of_the_gaussian_report(simulated: bool) -> None:
    values = np.linspace(-0.02, 0.02, SIZE)
    sign, whole = GaussianSign(1.0, 0.01), Gaussian(1.0, 0.01)
    noisy = np.frombuffer(whole.encode(values, stream(3, simulated)), "<i4")
    payload = sign.encode(values, stream(3, simulated))
    assert 8 * len(payload) == -(-sign.payload_bits(SIZE) // 8) * 8
    bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=SIZE)
    assert (bits == (noisy >= 0)).all()
    assert sign.event(SIZE) == whole.event(SIZE)
    assert sign.summing(SIZE, 10) is None


def test_a_bit_estimates_its_stated_expectation() -> None:
    sign = GaussianSign(1.0, 0.02)
    values = np.full(SIZE, 0.005)
    aggregate = sign.aggregate(SIZE)
    for number in range(20):
        aggregate.add(sign.encode(values, stream(number, simulated=True)))
    found, expected = aggregate.mean().mean(), sign.expected(values)[0]
    # Gaussian.clip scales the vector down: its norm is 0.7.
    assert abs(expected - 0.005) < 2e-4
    assert abs(found - expected) < 5 * np.sqrt(sign.variance(values)[0] / SIZE / 20)


def test_signs_are_calibrated_as_the_noise_itself() -> None:
    common = PerRun(epsilon=2.0, delta=1e-5, clip=1.5, rounds=12)
    signs = replace(common, kind=GaussianSign).gaussian(0)
    assert isinstance(signs, GaussianSign)
    assert (signs.clip, signs.sigma) == (1.5, common.sigma(0))
