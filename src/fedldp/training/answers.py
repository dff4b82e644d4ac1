"""What noisy counts of people tell, each figure with a 95 % interval; all of it is post-processing.

A figure's interval is that of the delta method, with the variance max(count, 0) + s^2 for a cell
whose noise has the deviation s: it includes the noise, and the chance of who was asked. A person
with several rows varies less than that, so the interval is conservative. A figure that rests on
fewer than ``SEEN`` deviations of the noise is not seen: it has no value. Nor has one whose interval
is as wide as all of its possible values, or as from an untrained model to a perfect one.

Noise can make an estimate impossible, such as a share below 0. The figure is then the nearest
possible value, which is never further from the truth, so the same half-width still holds. An
interval may reach beyond what is possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.protocol.roles import BELOW, HALF_WIDTH, PRIVATELY, Metrics

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
        below: how far the interval reaches below the value, if that is not half of it; it then
            reaches as far as ``half_width`` above.
    """

    name: str
    value: float | None
    half_width: float
    below: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None if it was not seen."""
        if self.value is None:
            return None
        below = self.half_width if self.below is None else self.below
        return self.value - below, self.value + self.half_width

    @classmethod
    def of(
        cls,
        name: str,
        value: float,
        deviation: float,
        *,
        seen: bool = True,
        within: tuple[float, float] = (0.0, 1.0),
        untrained: float = -math.inf,
    ) -> Answer:
        """Return a figure with a standard deviation; it is not seen if these are not finite.

        Args:
            name: what it is.
            value: the estimate.
            deviation: its standard deviation.
            seen: whether it rests on enough people.
            within: its smallest and its largest possible value; if these are not known, values are
                taken to be at most 1 apart.
            untrained: the value of a model that has learned nothing, if above the smallest.
        """
        low, high = map(float, within)
        half = TWO_SIDED * float(deviation)
        if seen and math.isfinite(value) and 2 * half < high - max(low, untrained):
            return cls(name, min(max(float(value), low), high), half)
        most = high - low if 0 < high - low < math.inf else 1.0
        return cls(name, None, min(most, half) if math.isfinite(half) else most)

    @classmethod
    def between(
        cls, name: str, value: float, low: float, high: float, *, seen: bool, most: float
    ) -> Answer:
        """Return a figure with the ends of its interval, from which it may be unequally far.

        Args:
            name: what it is.
            value: the estimate, between the ends.
            low: the lower end.
            high: the upper end.
            seen: whether it rests on enough people.
            most: at most how far its values may be apart.
        """
        if not seen or high - low >= most:
            return cls(name, None, most)
        return cls(name, value, high - value, value - low)


def as_metrics(answers: Iterable[Answer]) -> Metrics:
    """Return figures as metrics: none without its half-width, and no value where not seen."""
    found: dict[str, float] = {}
    for each in answers:
        if each.value is not None:
            found[PRIVATELY + each.name] = each.value
        found[PRIVATELY + each.name + HALF_WIDTH] = each.half_width
        if each.below is not None:
            found[PRIVATELY + each.name + BELOW] = each.below
    return found


def private_figures(metrics: Metrics) -> Iterator[Answer]:
    """Yield the figures among metrics that people were asked for; see ``as_metrics``."""
    for name, half in metrics.items():
        if name.endswith(HALF_WIDTH):
            figure = name.removesuffix(HALF_WIDTH)
            below = metrics.get(figure + BELOW)
            yield Answer(figure.removeprefix(PRIVATELY), metrics.get(figure), half, below)


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
