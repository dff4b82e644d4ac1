"""Exact samplers of discrete noise, from random integers alone: no floats are involved.

A sample is a count of grid steps. Scales are powers of two, so most comparisons need no division.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020,
Algorithms 1 to 3.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedldp.core.randomness import Stream

LARGEST_SCALE_BITS = 22
"""All arithmetic is in 64 bits. It overflows with a probability below 2^-1000 for each sample."""

# How many samples are drawn at a time, which bounds the memory.
_BLOCK = 1 << 16


def discrete_laplace(count: int, scale_bits: int, stream: Stream) -> NDArray[np.int64]:
    """Return independent integers y with probability proportional to exp(-|y|/t), t = 2^scale_bits.

    Args:
        count: the number of samples.
        scale_bits: from 0 to ``LARGEST_SCALE_BITS``.
        stream: the amount read depends on the samples, never on a client's data.

    Source: Algorithm 2. |y| = u + t v; u is below t and kept with probability exp(-u/t), v counts
    successes of probability 1/e, and one of the two zeros is dropped.
    """

    def attempt(wanted: int) -> NDArray[np.int64]:
        low = uniform_below(2 * wanted + 16, 1 << scale_bits, stream)
        low = low[bernoulli_exp(low, scale_bits, stream)]
        magnitude: NDArray[np.int64] = low + (_geometric(low.size, stream) << scale_bits)
        negative: NDArray[np.bool_] = uniform_below(low.size, 2, stream) == 1
        kept: NDArray[np.bool_] = ~negative | (magnitude > 0)
        magnitude[negative] *= -1
        return magnitude[kept]

    return _first_accepted(count, attempt)


def gaussian_steps(size: int, scale_bits: int, stream: Stream) -> NDArray[np.int64]:
    """Return Gaussian noise in steps: exact, or idealised (rounded) in a simulation.

    Args:
        size: the number of samples.
        scale_bits: the deviation is 2^scale_bits steps.
        stream: as for ``discrete_laplace``.
    """
    if stream.simulated:
        drawn = stream.generator().standard_normal(size)
        drawn *= 1 << scale_bits
        return np.rint(drawn, out=drawn).astype(np.int64)
    return discrete_gaussian(size, scale_bits, stream)


def discrete_gaussian(count: int, sigma_bits: int, stream: Stream) -> NDArray[np.int64]:
    """Return independent integers y with probability proportional to exp(-y^2/(2 sigma^2)).

    Args:
        count: the number of samples.
        sigma_bits: sigma = 2^sigma_bits; from 0 to ``LARGEST_SCALE_BITS``.
        stream: as for ``discrete_laplace``.

    Source: Algorithm 3, with t = sigma: a discrete Laplace y of scale sigma is accepted with
    probability exp(-(|y| - sigma)^2/(2 sigma^2)).
    """
    unit_bits = 2 * sigma_bits + 1  # log2 of 2 sigma^2

    def attempt(wanted: int) -> NDArray[np.int64]:
        candidates = discrete_laplace(3 * wanted // 2 + 16, sigma_bits, stream)
        square = (np.abs(candidates) - (1 << sigma_bits)) ** 2
        accepted = bernoulli_exp(square & ((1 << unit_bits) - 1), unit_bits, stream)
        whole = square >> unit_bits
        far = whole.nonzero()[0]
        accepted[far] &= _geometric(far.size, stream) >= whole[far]
        return candidates[accepted]

    return _first_accepted(count, attempt)


def bernoulli_exp(
    numerators: NDArray[np.int64], denominator_bits: int, stream: Stream
) -> NDArray[np.bool_]:
    """Return True with probability exp(-g) for each g = numerator / 2^denominator_bits.

    Args:
        numerators: from 0 to 2^denominator_bits, shape (n,).
        denominator_bits: up to 45.
        stream: as for ``discrete_laplace``.

    Source: Algorithm 1. Trials with probability g/k for k = 1, 2, ..., until one fails at an odd k.
    """
    result = np.empty(numerators.size, np.bool_)
    going = np.arange(numerators.size)
    k = 1
    while going.size:
        drawn = uniform_below(going.size, k << denominator_bits, stream)
        success = drawn < numerators[going]
        result[going[~success]] = k % 2 == 1
        going = going[success]
        k += 1
    return result


def uniform_below(count: int, bound: int, stream: Stream) -> NDArray[np.int64]:
    """Return independent uniform integers from 0 to ``bound`` - 1, by rejection; bound <= 2^63."""
    mask = (1 << (bound - 1).bit_length()) - 1
    drawn: NDArray[np.int64] = stream.integers(count, np.int64) & mask
    if mask == bound - 1:
        return drawn  # the bound is a power of two, so no value is rejected
    while (rejected := (drawn >= bound).nonzero()[0]).size:
        drawn[rejected] = stream.integers(rejected.size, np.int64) & mask
    return drawn


def _geometric(count: int, stream: Stream) -> NDArray[np.int64]:
    """Return the number of trials with probability 1/e that succeed before the first failure."""
    successes = np.zeros(count, np.int64)
    going = np.arange(count)
    while going.size:
        going = going[bernoulli_exp(np.ones(going.size, np.int64), 0, stream)]
        successes[going] += 1
    return successes


def _first_accepted(count: int, attempt: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the first ``count`` accepted samples of a sequence of independent candidates.

    Args:
        count: the number of samples to return.
        attempt: takes roughly the number of samples wanted, and returns the accepted ones among the
            next candidates.
    """
    samples = np.empty(count, np.int64)
    filled = 0
    while filled < count:
        accepted = attempt(min(count - filled, _BLOCK))[: count - filled]
        samples[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return samples
