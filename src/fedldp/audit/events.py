"""Events that tell two inputs apart: found on some trials, counted on others.

An event is "the score of what is seen is at least (or at most) a threshold". Scores are functions
of what the adversary sees; some are fitted on one half of the trials given here, and all thresholds
are chosen on the other half. No choice made here can make a bound wrong, because a bound counts
fresh trials; a bad choice only makes it weak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.bounds import LowerBound, epsilon_lower
from fedldp.audit.observations import Floats

Score = Callable[[Any], Floats]
"""Gives a number for each trial; the number of a trial depends on that trial only."""

_MOST_THRESHOLDS = 96


@dataclass(frozen=True, eq=False)
class Distinguisher:
    """An event, and how it was found.

    Attributes:
        name: the name of the score.
        score: the function that scores each trial.
        threshold: the threshold of the score.
        above: True if the event is a score of at least the threshold; False if it is a score of at
            most the threshold.
        swapped: whether the event is likelier under the second input.
        promise: a guess at the bound on epsilon that the event will give.
    """

    name: str
    score: Score
    threshold: float
    above: bool
    swapped: bool
    promise: float

    def hits(self, trials: Any) -> int:
        """Return the number of trials in which the event occurred."""
        scores = self.score(trials)
        inside = scores >= self.threshold if self.above else scores <= self.threshold
        return int(inside.sum())


def best(scores: Iterable[tuple[str, Score]], first: Any, second: Any, *, delta: float,
         trials: int) -> tuple[Distinguisher, Distinguisher]:  # fmt: skip
    """Return two events, the more promising first: the best of those likelier under each input.

    Few trials do not show rare outcomes, so they cannot decide between these two.

    Args:
        scores: scores that were fitted on other trials.
        first: trials with one input.
        second: trials with the other input.
        delta: the delta at which epsilon will be bounded.
        trials: how many trials of each input will count the events.
    """
    found = [
        each
        for name, score in scores
        for each in _thresholds(name, score, first, second, delta, trials)
    ]
    one, other = (
        max((each for each in found if each.swapped == swapped), key=lambda each: each.promise)
        for swapped in (False, True)
    )
    return (one, other) if one.promise >= other.promise else (other, one)


def lower_bound(
    events: Sequence[Distinguisher],
    hits: NDArray[np.int64],
    count: int,
    *,
    delta: float,
    confidence: float,
) -> LowerBound:
    """Return the largest bound that some events give.

    Args:
        events: chosen on other trials; they share the probability of error that ``confidence``
            leaves.
        hits: in how many of the trials with the first and the second input each event occurred,
            shape (events, 2).
        count: number of trials with each input.
        delta: the delta at which epsilon is bounded.
        confidence: the confidence level of the bound.
    """
    each = 1 - (1 - confidence) / len(events)
    bounds = []
    for event, both in zip(events, hits.tolist(), strict=True):
        likelier, rarer = both[::-1] if event.swapped else both
        lower = epsilon_lower(likelier, count, rarer, count, delta=delta, confidence=each)
        bounds.append(
            LowerBound(
                lower=lower,
                trials=2 * count,
                attack=event.name,
                delta=delta,
                false_hits=rarer,
                confidence=each,
            )
        )
    return max(bounds, key=lambda bound: bound.lower)


def _thresholds(
    name: str, score: Score, first: Any, second: Any, delta: float, trials: int
) -> Iterator[Distinguisher]:
    a, b = np.sort(score(first)), np.sort(score(second))
    pooled = np.unique(np.concatenate([a, b]))
    if len(pooled) > _MOST_THRESHOLDS:
        pooled = pooled[np.linspace(0, len(pooled) - 1, _MOST_THRESHOLDS).astype(int)]
    for above in (True, False):
        if above:
            of_a, of_b = (len(s) - np.searchsorted(s, pooled, side="left") for s in (a, b))
        else:
            of_a, of_b = (np.searchsorted(s, pooled, side="right") for s in (a, b))
        for swapped in (False, True):
            hits, others = (of_b, of_a) if swapped else (of_a, of_b)
            promise = _promise(hits, others, len(a), delta, trials)
            at = int(promise.argmax())
            yield Distinguisher(name, score, float(pooled[at]), above, swapped, float(promise[at]))


def _promise(
    hits: NDArray[Any], others: NDArray[Any], seen: int, delta: float, trials: int
) -> Floats:
    """Guess the bound that ``trials`` new trials will give, with a discount for luck in few trials.

    Rates are shifted by four standard deviations of the new trials and by 1.5 of the trials seen.
    Otherwise the luckiest of about a thousand events would be chosen.
    """
    p, q = hits / (seen + 1), (others + 0.5) / (seen + 1)
    spread = 16 / trials + 2.25 / seen
    low = p - np.sqrt(p * (1 - p) * spread) - delta
    high = np.minimum(1, q + np.sqrt(q * spread) + 8 / trials)
    guess: Floats = np.where(low > 0, np.log(np.maximum(low, 1e-300) / high), -math.inf)
    return guess
