"""Sampled Gaussian releases, against integration, direct convolution, dp-accounting and Renyi.

Compositions by hand round each outcome down, so they cost no more than the true composition.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from accounting_oracles import sampled_delta
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import norm

from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.accounting.numerics.subsampled import (
    SampledRelease,
    fixed_size_sample,
    poisson_sample,
    sampled_epsilon,
)

Law = NDArray[np.float64]

OTHERS = {"poisson": 0, "fixed-size": -1}

noises = st.floats(-0.5, 1.3).map(lambda exponent: 10.0**exponent)
rates = st.floats(-3, 0).map(lambda exponent: 10.0**exponent)
deltas = st.sampled_from([1e-2, 1e-5, 1e-9])
samples = st.sampled_from(["poisson", "fixed-size"])
releases = st.builds(SampledRelease, noise_multiplier=noises, sampling_rate=rates, sample=samples)


def mixture(y: Law, one: SampledRelease, mean: float) -> Law:
    s, q, others = one.noise_multiplier, one.sampling_rate, OTHERS[one.sample]
    return np.asarray((1 - q) * norm.pdf(y, others, s) + q * norm.pdf(y, mean, s))


def composed_by_hand(one: SampledRelease, orders: str, delta: float) -> float:
    """Return the epsilon of releases of P against Q (">") or Q against P ("<"), by convolution."""
    grid, s = 2e-3, one.noise_multiplier
    y = np.linspace(-2 - 8 * s, 2 + 8 * s, 100_001)
    p, q = mixture(y, one, 1.0) * (y[1] - y[0]), mixture(y, one, -1.0) * (y[1] - y[0])
    points = np.rint(np.log(p / q) / grid).astype(int)
    p, q = np.bincount(points - points.min(), p), np.bincount(points - points.min(), q)
    first, second = np.ones(1), np.ones(1)
    for order in orders:
        # The loss of Q against P has the opposite sign.
        step = (p, q) if order == ">" else (q[::-1], p[::-1])
        first, second = fftconvolve(first, step[0]), fftconvolve(second, step[1])
    second = np.maximum(second, 0.0)  # no rounding errors times e^epsilon
    low, high = 0.0, 40.0
    for _ in range(40):
        middle = (low + high) / 2
        if np.maximum(first - math.exp(middle) * second, 0.0).sum() > delta:
            low = middle
        else:
            high = middle
    return low


def one_release(noise: float, rate: float, sample: str) -> SampledRelease:
    return SampledRelease(noise_multiplier=noise, sampling_rate=rate, sample=sample)  # type: ignore[arg-type]


# One release: the pairs


@pytest.mark.parametrize("sample", OTHERS)
@pytest.mark.parametrize(
    ("noise", "rate"), [(0.05, 0.3), (0.3, 1e-4), (1.0, 0.01), (1.0, 0.999), (8.0, 0.2), (1e5, 0.5)]
)
def test_losses_are_just_above_the_exact_pair(sample: str, noise: float, rate: float) -> None:
    losses = one_release(noise, rate, sample).losses(exponent=92.0)
    assert float(np.exp(losses.log_masses).sum()) == pytest.approx(1, abs=1e-10)
    for epsilon in (0.0, 0.3 * rate / noise, 3 * rate / noise, 2.0):
        exact = sampled_delta(noise, rate, OTHERS[sample], epsilon)
        assert exact <= losses.delta(epsilon) <= exact * (1 + 1e-4) + 1e-38


@settings(max_examples=10)
@given(one=releases, delta=deltas)
def test_one_release_costs_at_least_its_exact_pair(one: SampledRelease, delta: float) -> None:
    found = sampled_epsilon({one: 1}, delta)
    exact = sampled_delta(one.noise_multiplier, one.sampling_rate, OTHERS[one.sample], found)
    assert exact <= delta


@pytest.mark.slow
def test_populations_written_out_cost_no_more_than_the_fixed_size_pair() -> None:
    """All samples of two of four members, with values within the clip, for every replacement."""
    noise, y = 0.8, np.linspace(-9, 9, 4001)
    ends = (-1.0, 0.2, 1.0)
    worst = 0.0
    for *others, old, new in itertools.product(ends, repeat=5):
        laws = []
        for member in (old, new):
            sums = [sum(pair) for pair in itertools.combinations([*others, member], 2)]
            laws.append(np.mean([norm.pdf(y, total, noise) for total in sums], axis=0))
        excess = np.maximum(laws[0] - math.exp(0.7) * laws[1], 0.0)
        worst = max(worst, float(np.trapezoid(excess, y)))
    # Attained if the others are at one end and the member moves to the other
    stated = fixed_size_sample(noise, 2, 4).losses(exponent=92.0).delta(0.7)
    assert stated == pytest.approx(worst, rel=1e-5)


# Many releases


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "steps"),
    [
        (poisson_sample(1.0, 0.05), 20),
        (poisson_sample(3.0, 0.5), 20),
        (fixed_size_sample(2.0, 1, 10), 8),
    ],
)
def test_composition_is_just_above_direct_convolution(one: SampledRelease, steps: int) -> None:
    found = sampled_epsilon({one: steps}, 1e-4)
    alternating = "><" * (steps // 2)
    lower = [
        composed_by_hand(one, orders, 1e-4) for orders in (">" * steps, "<" * steps, alternating)
    ]
    assert max(lower) <= found
    if one.sample == "poisson":  # all orders are equal
        assert min(lower) == pytest.approx(found, rel=1e-4)
    else:
        assert found <= 1.1 * max(lower)


@pytest.mark.parametrize(("noise", "steps"), [(0.01, 1), (0.4, 7), (5.0, 300), (1e7, 7)])
def test_with_everyone_sampled_both_samplings_are_the_plain_gaussian(
    noise: float, steps: int
) -> None:
    exact = gaussian_epsilon(2 * math.sqrt(steps) / noise, 1e-5)
    everyone = sampled_epsilon({fixed_size_sample(noise, 9, 9): steps}, 1e-5)
    for found in (sampled_epsilon({poisson_sample(noise, 1.0): steps}, 1e-5), everyone):
        assert found == pytest.approx(exact, rel=1e-12)


def test_releases_of_several_kinds_compose() -> None:
    first, second = poisson_sample(1.0, 0.01), poisson_sample(0.8, 0.02)
    both = sampled_epsilon({first: 100, second: 100}, 1e-5)
    assert sampled_epsilon({first: 200}, 1e-5) < both < sampled_epsilon({second: 200}, 1e-5)
    assert sampled_epsilon({first: 100, second: 0}, 1e-5) == sampled_epsilon({first: 100}, 1e-5)


def test_no_pure_guarantee_and_nothing_released() -> None:
    one = poisson_sample(1.0, 0.01)
    assert sampled_epsilon({one: 1}, 0.0) == math.inf
    assert sampled_epsilon({one: 1}, 1e-305) == math.inf
    assert sampled_epsilon({one: 0}, 0.0) == sampled_epsilon({}, 1e-5) == 0.0
    # If the sampling rate is below delta, delta covers being sampled at all.
    assert sampled_epsilon({poisson_sample(0.5, 1e-6): 5}, 1e-5) == 0.0
