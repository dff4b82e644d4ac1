"""What noisy counts of people tell, each figure with a 95 % interval; all of it is post-processing.

A figure's interval is that of the delta method, with the variance max(count, 0) + s^2 for a cell
whose noise has the deviation s: it includes the noise, and the chance of who was asked. A person
with several rows varies less than that, so the interval is conservative. A figure that rests on
fewer than ``SEEN`` deviations of the noise is not seen: it has no value.

Noise can make an estimate impossible, such as a share below 0. The figure is then the nearest
possible value, which is never further from the truth, so the same half-width still holds. An
interval may reach beyond what is possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.protocol.roles import HALF_WIDTH, PRIVATELY, Metrics

Floats = NDArray[np.float64]

SEEN = 3
"""A figure that rests on less than this many standard deviations of its noise is not seen."""

TWO_SIDED = 1.96
"""Half of a 95 % interval, in standard deviations."""


@dataclass(frozen=True)
class Answer:
    """A private figure.

    Attributes:
        name: what it is.
        value: its value, one that is possible; None if it was not seen.
        half_width: half of its 95 % interval; if it was not seen, at most how far its values
            may be apart.
    """

    name: str
    value: float | None
    half_width: float

    @classmethod
    def of(
        cls,
        name: str,
        value: float,
        deviation: float,
        *,
        seen: bool = True,
        within: tuple[float, float] = (0.0, 1.0),
    ) -> Answer:
        """Return a figure with a standard deviation; it is not seen if these are not finite.

        Args:
            name: what it is.
            value: the estimate.
            deviation: its standard deviation.
            seen: whether it rests on enough people.
            within: its smallest and its largest possible value; if these are not known, values are
                taken to be at most 1 apart.
        """
        low, high = map(float, within)
        half = TWO_SIDED * float(deviation)
        if seen and math.isfinite(value) and math.isfinite(half):
            return cls(name, min(max(float(value), low), high), half)
        most = high - low if 0 < high - low < math.inf else 1.0
        return cls(name, None, min(most, half) if math.isfinite(half) else most)


def as_metrics(answers: Iterable[Answer]) -> Metrics:
    """Return figures as metrics: none without its half-width, and no value where not seen."""
    found: dict[str, float] = {}
    for each in answers:
        if each.value is not None:
            found[PRIVATELY + each.name] = each.value
        found[PRIVATELY + each.name + HALF_WIDTH] = each.half_width
    return found


def mean_of(values: Floats, counts: Floats, noise: float) -> tuple[float, float]:
    """Return the mean of what stands for each cell, weighted by noisy counts, and its deviation.

    Args:
        values: what stands for each cell, shape (cells,); 0 and 1 give a share.
        counts: the noisy number of people in each cell, shape (cells,).
        noise: the standard deviation of each count's noise.
    """
    total = counts.sum()
    with np.errstate(all="ignore"):
        mean = values @ counts / total
        variance = np.square(values - mean) @ (np.maximum(counts, 0) + noise**2)
        return float(mean), float(np.sqrt(variance) / abs(total))


def is_seen(counts: Floats, noise: float) -> bool:
    """Return whether a total of noisy counts is above ``SEEN`` deviations of its noise."""
    return bool(counts.sum() > SEEN * noise * math.sqrt(counts.size))
