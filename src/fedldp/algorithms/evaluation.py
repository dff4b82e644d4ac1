"""A private evaluation of a model for two classes: what is asked in two looks, and what it tells.

    look       people by the model's score, over a wide public grid; no labels
    question   people by label and band of the score, between quantiles of the look

Bands follow the scores of the model that is evaluated, so that few pairs of people are tied. No
figure rests on a shape of the scores' distribution. AUC and the other figures are those of people,
each with weight 1.

Source: G. Cormode, I. Markov, "Federated Calibration and Evaluation of Binary Classifiers", VLDB
2023, for histograms of scores by label. The two looks, the number of bands and the rules for what
is seen are ours; ``benchmarks/evaluation_coverage.py`` measures the coverage of the intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.answers import TWO_SIDED, Answer, is_seen, mean_of
from fedldp.core.deferred import special
from fedldp.training.questions import LabelsByBand, Question, Scores

Floats = NDArray[np.float64]

LOOK_SHARE = Fraction(1, 5)
"""The look's share of an evaluation's budget."""

_TAIL = (8.0, 12.0, 16.0, 64.0)
GRID = (*(-each for each in reversed(_TAIL[1:])), *np.arange(-9, 6.01, 0.25).tolist(), *_TAIL)
"""The public edges of the look, in log odds of class 1."""

FEWEST_BANDS, MOST_BANDS = 8, 40
"""The numbers of bands between quantiles; the edge at the log odds 0 adds one band."""

MOST_TIED = 0.2
"""With more pairs of a positive and a negative in one band, the AUC is not shown."""

LEAST_SHARE_FOR_SHIFT = 0.1
"""Below this share of the rarer class, the interval of the shift would be too short."""

LOOK = Question((Scores(GRID),))
BY_BAND = LabelsByBand(MOST_BANDS + 1)

_NEAR = 0.02
"""Quantiles as near to the edge 0 are left out: no band would be left between them."""

_LEAST_MASS = 0.01
"""The share of people in a band is at least about this, whatever noise makes of the look."""

_FINE = 8
"""The parts into which a cell of the grid is divided, with equal numbers of people in each."""

_ENDS = np.array([1.5 * GRID[0], *GRID, 1.5 * GRID[-1]])


@dataclass(frozen=True)
class Look:
    """The first look: the noisy number of people in each cell of ``GRID``.

    Attributes:
        counts: without the cell for NaN, shape (len(GRID) + 1,).
        noise: the standard deviation of each count's noise.
    """

    counts: Floats
    noise: float

    def edges(self, bands: int, share: float) -> NDArray[np.float32]:
        """Return the edges of the question's bands as clients are told them, and 0 among them.

        Args:
            bands: the number of bands between quantiles.
            share: the share of class 1, as far as it is known; if it is rare, bands are finer among
                the higher scores, where its people are.
        """
        power = 1.5 if share < 0.3 else 1.0
        levels = 1 - (1 - np.arange(1, bands) / bands) ** power
        rising = self.distribution() + 1e-9 * np.arange(_ENDS.size)
        found = np.interp(levels, rising, _ENDS)
        return np.unique(np.append(found[abs(found) > _NEAR], 0.0).astype(np.float32))

    def distribution(self) -> Floats:
        """Return the share of people below each of ``_ENDS``, from 0 to 1, never falling."""
        total = np.cumsum(self.counts) / max(self.counts.sum(), 1.0)
        up = np.maximum.accumulate(total)
        down = np.minimum.accumulate(total[::-1])[::-1]
        rising = np.concatenate([[0.0], ((up + down) / 2).clip(0, 1)])
        rising[-1] = 1.0
        return np.asarray(np.maximum.accumulate(rising), np.float64)

    def fine(self) -> tuple[Floats, Floats]:
        """Return scores, as log odds, and the share of people at each."""
        widths = np.diff(_ENDS)
        inside = (np.arange(_FINE) + 0.5) / _FINE
        scores = (_ENDS[:-1, None] + widths[:, None] * inside).ravel()
        return scores, np.repeat(np.diff(self.distribution()) / _FINE, _FINE)

    def mean_prediction(self) -> Answer:
        """Return the mean predicted probability of class 1."""
        middles = special.expit(np.convolve(_ENDS, [0.5, 0.5], "valid"))
        seen = is_seen(self.counts, self.noise)
        return Answer.of("mean prediction", *mean_of(middles, self.counts, self.noise), seen=seen)


def bands_for(people: float, share: float, noise: float) -> int:
    """Return how many bands make ties cost little beside the noise and the sampling error.

    Args:
        people: how many people are asked.
        share: the share of class 1, as far as it is known.
        noise: the standard deviation of a count's noise, in people.
    """
    rarer = people * min(share, 1 - share)
    found = (4.3 * rarer / noise) ** 0.4
    if rarer > 9 * noise:
        found = max(found, math.sqrt(5 * math.sqrt(rarer)))
    return int(min(max(found, FEWEST_BANDS), MOST_BANDS))


def evaluated(counts: Floats, noise: float, edges: Floats, look: Look) -> list[Answer]:
    """Return the figures of a model.

    Args:
        counts: the noisy number of people by label and band, without those whose score is NaN,
            shape (2, bands); bands behind the last edge hold noise alone and are left out.
        noise: the standard deviation of each count's noise.
        edges: the edges of the bands, as clients were told them, ascending.
        look: the first look.
    """
    counts = counts[:, : edges.size + 1]
    negatives, positives = counts
    seen = is_seen(negatives, noise) and is_seen(positives, noise)
    scores, people = look.fine()
    band = np.searchsorted(edges, scores, side="right")
    risk = _means(special.expit(scores), people, band, edges.size + 1)
    share = mean_of(np.repeat([0.0, 1.0], negatives.size), counts.ravel(), noise)
    return [
        _auc(negatives, positives, noise, seen),
        *_at_thresholds(negatives, positives, noise, edges, seen),
        Answer.of("observed share of class 1", *share, seen=is_seen(positives, noise)),
        look.mean_prediction(),
        _brier(counts, noise, band, look),
        *_shift(counts, noise, risk, share[0], seen),
        *_by_band(negatives, positives, noise, edges),
    ]


def _auc(negatives: Floats, positives: Floats, noise: float, seen: bool) -> Answer:
    n, p = negatives.sum(), positives.sum()
    below = np.cumsum(negatives) - negatives / 2
    above = p - np.cumsum(positives) + positives / 2
    with np.errstate(all="ignore"):
        area = positives @ below / (n * p)
        slopes = np.concatenate([above / (n * p) - area / n, below / (n * p) - area / p])
        variance = slopes**2 @ (np.maximum(np.append(negatives, positives), 0) + noise**2)
        tied = negatives @ positives / (n * p)
    return Answer.of("AUC", area, math.sqrt(variance), seen=seen and tied <= MOST_TIED)


def _at_thresholds(
    negatives: Floats, positives: Floats, noise: float, edges: Floats, seen: bool
) -> list[Answer]:
    """Return the balanced accuracy at 0.5, and at the edge where it is largest, with that edge.

    At the edge that was chosen by the same counts it is a little too large.
    """
    found = [_balanced(negatives, positives, noise, at) for at in range(1, edges.size + 1)]
    best = int(np.argmax([accuracy for accuracy, _ in found]))
    half = int(np.searchsorted(edges, 0.0))
    near = special.expit(edges[[max(best - 1, 0), min(best + 1, edges.size - 1)]])
    return [
        Answer.of("balanced accuracy at 0.5", *found[half], seen=seen),
        Answer.of("balanced accuracy at the threshold", *found[best], seen=seen),
        Answer.of(
            "threshold",
            float(special.expit(edges[best])),
            (near[1] - near[0]) / 2 / TWO_SIDED,
            seen=seen,
        ),
    ]


def _balanced(negatives: Floats, positives: Floats, noise: float, at: int) -> tuple[float, float]:
    """Return the balanced accuracy if class 1 is predicted from the band ``at`` on."""
    predicted = (np.arange(negatives.size) >= at).astype(float)
    found, spared = mean_of(predicted, positives, noise), mean_of(1 - predicted, negatives, noise)
    return (found[0] + spared[0]) / 2, math.hypot(found[1], spared[1]) / 2


def _brier(counts: Floats, noise: float, band: NDArray[np.int64], look: Look) -> Answer:
    """Return the Brier score; a band's mean squared miss comes from the look, and so its noise."""
    scores, people = look.fine()
    risk, bands = special.expit(scores), counts.shape[1]
    total, look_total = max(float(counts.sum()), 1.0), max(float(look.counts.sum()), 1.0)
    mass = np.maximum(np.bincount(band, people, bands), _LEAST_MASS)
    missed, slopes = [], np.zeros(scores.size)
    for label, row in enumerate(counts):
        miss = np.square(risk - label)
        missed.append(_means(miss, people, band, bands))
        slopes += (np.maximum(row, 0) / total / mass)[band] * (miss - missed[-1][band])
    of_cells = slopes.reshape(-1, _FINE).mean(axis=1) / look_total
    value, deviation = mean_of(np.concatenate(missed), counts.ravel(), noise)
    deviation = math.hypot(deviation, look.noise * float(np.linalg.norm(of_cells)))
    return Answer.of("Brier score", value, deviation, seen=is_seen(counts.ravel(), noise))


def _shift(counts: Floats, noise: float, risk: Floats, share: float, seen: bool) -> list[Answer]:
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
        shift = min(max(shift, -9.0), 9.0)
    variance = (q * (1 - q) * total + noise**2 * ((1 - q) ** 2 + q**2)).sum()
    return [Answer.of("shift of the log odds", shift, math.sqrt(variance) / slope, seen=seen)]


def _by_band(negatives: Floats, positives: Floats, noise: float, edges: Floats) -> list[Answer]:
    """Return the observed share of class 1 in each band of the predicted probability."""
    ends = [0.0, *special.expit(edges), 1.0]
    found = []
    for at, counts in enumerate(np.stack([negatives, positives], 1)):
        share, deviation = mean_of(np.array([0.0, 1.0]), counts, noise)
        name = f"observed share, predicted {ends[at]:.3g} to {ends[at + 1]:.3g}"
        found.append(Answer.of(name, share, deviation, seen=is_seen(counts, noise)))
    return found


def _means(values: Floats, people: Floats, band: NDArray[np.int64], bands: int) -> Floats:
    """Return the mean of values over the people in each band."""
    weights = people + 1e-12  # a band without people has the mean over its width
    mass = np.bincount(band, weights, bands)
    with np.errstate(invalid="ignore"):
        found = np.bincount(band, weights * values, bands) / mass
    return np.where(mass > 0, found, 0.5)
