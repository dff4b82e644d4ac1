"""What the steps of DP-SGD compute and release from a client's examples; no training happens here.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import SampledGaussian
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream

_RESOLUTION = 1 << 53
"""Numpy's random floats are multiples of one over this number."""


def sampling_rate(batch_size: int, num_clients: int, num_examples: int) -> float:
    """Return the public sampling rate for steps of ``batch_size``, given the mean client size.

    The rate is rounded up so that a random float is below it with exactly this probability.

    Raises:
        ConfigError: clients have too few examples for such a batch.
    """
    share = Fraction(batch_size * num_clients, num_examples)
    if share > 1:
        raise ConfigError(
            f"batch_size = {batch_size}: {num_clients} clients have {num_examples / num_clients:g} "
            "examples on average; give at most that many"
        )
    return math.ceil(share * _RESOLUTION) / _RESOLUTION


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """What one client's steps in a round compute from its examples; all of this is public.

    Each step samples every example independently, scales each gradient down to the norm ``clip``,
    adds them up with noise N(0, (``noise_multiplier`` ``clip``)^2) in every coordinate, and divides
    by ``batch_size``.

    Attributes:
        steps: the number of steps.
        sampling_rate: the probability that a step samples an example.
        batch_size: the divisor of the sums.
        clip: the largest L2 norm of one example's gradient.
        noise_multiplier: the noise's standard deviation over ``clip``.
    """

    steps: int
    sampling_rate: float
    batch_size: int
    clip: float
    noise_multiplier: float

    @property
    def event(self) -> SampledGaussian:
        """The event that all steps together release about one example."""
        return SampledGaussian(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.steps,
        )

    def samples(self, stream: Stream, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield, for each step, the indices of the sampled examples; a step may sample none.

        Args:
            stream: the client's stream for "batches".
            count: how many examples the client has.
        """
        generator = stream.generator()
        for _ in range(self.steps):
            yield np.flatnonzero(generator.random(count) < self.sampling_rate)
