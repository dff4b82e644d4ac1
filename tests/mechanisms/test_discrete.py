"""The discrete samplers against their definition: exactly in small cases, otherwise by sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scripted import Words, deployed

from fedldp.core.randomness import Stream
from fedldp.mechanisms import discrete
from fedldp.mechanisms.discrete import (
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    uniform_below,
)

SAMPLES = 500_000
FALSE_ALARM = 1e-9

Sampler = Callable[[int, int, Stream], np.ndarray]


# Uniform integers


def test_uniform_integers_are_truncated_words_drawn_again_if_too_large() -> None:
    script: Any = Words(0, 7, -1, 4 + 8, 5, 1 << 62, *(3, 6, -3), *(2 + 16,))
    # 7, -1 and 5 are too large; 3, 6 and -3 (5) replace them; of these, 6 and 5 are replaced.
    script.words.append(4)
    assert uniform_below(6, 5, script).tolist() == [0, 3, 2, 4, 4, 0]
    assert script.words == []


@pytest.mark.parametrize("bound", [1, 2, 1 << 22, 1 << 62, 1 << 63])
def test_powers_of_two_need_one_word_each(bound: int) -> None:
    script: Any = Words(-1, 0, bound - 1)
    assert uniform_below(3, bound, script).tolist() == [bound - 1, 0, bound - 1]


# Coins of probability exp(-g)


@pytest.mark.parametrize(
    ("numerator", "bits"), [(0, 2), (1, 2), (3, 2), (4, 2), (1, 0), (0, 0), (1, 1), (5, 3)]
)
def test_coins_have_the_exact_probability(
    monkeypatch: pytest.MonkeyPatch, numerator: int, bits: int
) -> None:
    # One coin for each sequence of the first ``depth`` uniform integers; the next integer ends it.
    depth = 4
    total = math.prod(k << bits for k in range(1, depth + 1))
    going, sequences = np.arange(total), np.arange(total)
    bounds = []

    def enumerate_words(count: int, bound: int, stream: Stream) -> np.ndarray:
        nonlocal going, sequences
        assert count == going.size
        bounds.append(bound)
        if len(bounds) > depth:
            return np.full(count, bound - 1 if numerator < bound else numerator)
        words, sequences = sequences % bound, sequences // bound
        going, sequences = going[words < numerator], sequences[words < numerator]
        return words

    monkeypatch.setattr(discrete, "uniform_below", enumerate_words)
    heads = bernoulli_exp(np.full(total, numerator), bits, deployed()).sum()
    assert bounds == [k << bits for k in range(1, len(bounds) + 1)]
    g = Fraction(numerator, 1 << bits)
    series = sum((-g) ** j / math.factorial(j) for j in range(depth + 1))
    assert Fraction(int(heads), total) == series
    assert abs(float(series) - math.exp(-g)) <= g ** (depth + 1) / math.factorial(depth + 1)


# The two distributions


def laplace_weight(y: np.ndarray, scale: float) -> np.ndarray:
    return np.exp(-np.abs(y) / scale)


def gaussian_weight(y: np.ndarray, scale: float) -> np.ndarray:
    return np.exp(-((y / scale) ** 2) / 2)


CASES = [(discrete_laplace, laplace_weight), (discrete_gaussian, gaussian_weight)]


def fit(samples: np.ndarray, weight: Callable[..., np.ndarray], bits: int) -> float:
    """Return the p-value of samples under the distribution of the given weights.

    At each end, values of too small a probability are counted together.
    """
    scale = 1 << bits
    support = np.arange(-40 * scale, 40 * scale + 1)
    probabilities = weight(support, scale)
    probabilities /= probabilities.sum()
    common = support[probabilities * len(samples) >= 20]
    low, high = int(common[0]), int(common[-1])
    clipped = np.clip(samples, low - 1, high + 1)
    inside = probabilities[(support >= low) & (support <= high)]
    tails = (1 - inside.sum()) / 2
    expected = np.array([tails, *inside, tails]) * len(samples)
    observed = np.bincount(clipped - (low - 1), minlength=high - low + 3)
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, expected.size - 1))


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "weight"), CASES)
@pytest.mark.parametrize("bits", [0, 1, 6])
def test_small_scales_fit_the_exact_probabilities(
    sampler: Sampler, weight: Callable[..., np.ndarray], bits: int
) -> None:
    samples = sampler(SAMPLES, bits, deployed())
    assert samples.shape == (SAMPLES,)
    assert samples.dtype == np.int64
    assert fit(samples, weight, bits) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "ideal"), [(discrete_laplace, stats.laplace), (discrete_gaussian, stats.norm)]
)
@pytest.mark.parametrize("bits", [12, 22])
def test_deployed_scales_fit_the_continuous_distribution(
    sampler: Sampler, ideal: Any, bits: int
) -> None:
    samples = sampler(SAMPLES, bits, deployed(1))
    # Cells of equal probability, with fine ones in the tails; a half step is 2^-13 at most.
    tail = np.array([1e-4, 1e-3])
    levels = np.concatenate([tail, np.linspace(0.01, 0.99, 99), 1 - tail[::-1]])
    expected = np.diff(np.concatenate([[0], levels, [1]])) * SAMPLES
    cells = np.searchsorted(ideal.ppf(levels), (samples + 0.5) / (1 << bits))
    observed = np.bincount(cells, minlength=expected.size)
    assert stats.chisquare(observed, expected).pvalue > FALSE_ALARM
    # The low bits of fine noise are uniform, and neighbouring samples are independent.
    assert stats.chisquare(np.bincount(samples & 15, minlength=16)).pvalue > FALSE_ALARM
    assert abs(np.corrcoef(samples[:-1], samples[1:])[0, 1]) < 7 / math.sqrt(SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "weight"), CASES)
def test_the_number_drawn_at_a_time_does_not_change_the_distribution(
    monkeypatch: pytest.MonkeyPatch, sampler: Sampler, weight: Callable[..., np.ndarray]
) -> None:
    monkeypatch.setattr(discrete, "_BLOCK", 100)
    assert fit(sampler(30_000, 2, deployed()), weight, 2) > FALSE_ALARM
