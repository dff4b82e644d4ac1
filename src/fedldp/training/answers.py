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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.deferred import special
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


# Figures of a model, from people by label and band of its score

MOST_TIED = 0.2
"""With more pairs of a positive and a negative in one band, the AUC is not shown."""

LEAST_SHARE_FOR_SHIFT = 0.1
"""Below this share of the rarer class, the interval of the shift would be too short."""

_MOST_SHIFT = 9.0
"""A shift of the log odds is at most this large."""


def combined(name: str, answers: Sequence[Answer], factor: float, **bounds: Any) -> Answer:
    """Return the sum of figures times a factor, with the ``bounds`` of ``Answer.of``.

    Its interval holds however they depend on each other.
    """
    values = [math.nan if each.value is None else each.value for each in answers]
    halves = [each.half_width for each in answers]
    return Answer.of(name, factor * sum(values), factor * sum(halves) / TWO_SIDED, **bounds)


def accuracies(counts: Floats, noise: float) -> list[Answer]:
    """Return the accuracy and the balanced accuracy, from people by label and whether right."""
    rates = [mean_of(np.array([0.0, 1.0]), own, noise) for own in counts]
    value, deviation = np.mean([rate for rate, _ in rates]), math.hypot(*(d for _, d in rates))
    accuracy = mean_of(np.tile([0.0, 1.0], len(counts)), counts.ravel(), noise)
    return [
        Answer.of("accuracy", *accuracy, seen=is_seen(counts.ravel(), noise)),
        Answer.of(
            "balanced accuracy",
            float(value),
            deviation / len(counts),
            seen=all(is_seen(own, noise) for own in counts),
            untrained=1 / len(counts),
        ),
    ]


def both_seen(negatives: Floats, positives: Floats, noise: float) -> bool:
    """Return whether both classes' totals are seen."""
    return is_seen(negatives, noise) and is_seen(positives, noise)


def auc(
    negatives: Floats, positives: Floats, noise: float, seen: bool, name: str = "AUC"
) -> Answer:
    """Return the AUC, with half of the pairs in one band; not seen if too many are in one."""
    n, p = negatives.sum(), positives.sum()
    below = np.cumsum(negatives) - negatives / 2
    above = p - np.cumsum(positives) + positives / 2
    with np.errstate(all="ignore"):
        area = positives @ below / (n * p)
        slopes = np.concatenate([above / (n * p) - area / n, below / (n * p) - area / p])
        variance = slopes**2 @ (np.maximum(np.append(negatives, positives), 0) + noise**2)
        seen = seen and bool(negatives @ positives / (n * p) <= MOST_TIED)
    return Answer.of(name, area, math.sqrt(variance), seen=seen, untrained=0.5)


def at_thresholds(
    negatives: Floats, positives: Floats, noise: float, edges: Floats, seen: bool
) -> list[Answer]:
    """Return the balanced accuracy at 0.5, and at the edge where it is largest, with that edge.

    At the edge that was chosen by the same counts it is a little too large, and it is not seen
    where the edge is not. The interval of the edge holds every edge that may be better: its
    balanced accuracy is not seen to be smaller. Two edges' accuracies go up together; leaving this
    out makes the interval wider. What is best between two edges is not known, so the next edge on
    either side is in it, too.
    """
    found = [_balanced(negatives, positives, noise, at) for at in range(1, edges.size + 1)]
    accuracy, deviation = np.array(found).T
    best, half = int(np.argmax(accuracy)), int(np.searchsorted(edges, 0.0))
    apart = TWO_SIDED * np.hypot(deviation, deviation[best])
    (may,) = np.nonzero(~(accuracy < accuracy[best] - apart))  # also what is not a number
    ends = edges[[max(may[0] - 1, 0), best, min(may[-1] + 1, edges.size - 1)]]
    low, value, high = map(float, special.expit(ends))
    most = float(np.ptp(special.expit(edges)))
    threshold = Answer.between("threshold", value, low, high, seen=seen, most=most)
    told = threshold.value is not None
    return [
        Answer.of("balanced accuracy at 0.5", *found[half], seen=seen, untrained=0.5),
        Answer.of("balanced accuracy at the threshold", *found[best], seen=told, untrained=0.5),
        threshold,
    ]


def _balanced(negatives: Floats, positives: Floats, noise: float, at: int) -> tuple[float, float]:
    """Return the balanced accuracy if class 1 is predicted from the band ``at`` on."""
    predicted = (np.arange(negatives.size) >= at).astype(float)
    found, spared = mean_of(predicted, positives, noise), mean_of(1 - predicted, negatives, noise)
    return (found[0] + spared[0]) / 2, math.hypot(found[1], spared[1]) / 2


def shift_of(counts: Floats, noise: float, risk: Floats, share: float, seen: bool) -> list[Answer]:
    """Return what to add to the log odds so that the mean prediction is the observed share."""
    rarer = min(share, 1 - share)
    if not rarer >= LEAST_SHARE_FOR_SHIFT:
        return []
    total = np.maximum(counts.sum(axis=0), 0)
    score = special.logit(risk)  # infinite where all predictions of a band are 0 or 1
    shift = 0.0
    for _ in range(60):
        q = special.expit(score + shift)
        slope = float((q * (1 - q) * total).sum()) + 1e-6
        shift += float(np.clip(((1 - q) * counts[1] - q * counts[0]).sum() / slope, -1, 1))
        shift = min(max(shift, -_MOST_SHIFT), _MOST_SHIFT)
    variance = (q * (1 - q) * total + noise**2 * ((1 - q) ** 2 + q**2)).sum()
    deviation, within = math.sqrt(variance) / slope, (-_MOST_SHIFT, _MOST_SHIFT)
    return [Answer.of("shift of the log odds", shift, deviation, seen=seen, within=within)]


def observed_by_band(
    negatives: Floats, positives: Floats, noise: float, edges: Floats
) -> list[Answer]:
    """Return the observed share of class 1 in each band of the predicted probability."""
    ends = [0.0, *special.expit(edges), 1.0]
    found = []
    for at, counts in enumerate(np.stack([negatives, positives], 1)):
        share, deviation = mean_of(np.array([0.0, 1.0]), counts, noise)
        name = f"observed share, predicted {ends[at]:.3g} to {ends[at + 1]:.3g}"
        found.append(Answer.of(name, share, deviation, seen=is_seen(counts, noise)))
    return found
