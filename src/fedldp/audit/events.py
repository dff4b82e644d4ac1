"""Events that tell two inputs apart: found on some trials, counted on others.

An event is "the score of what is seen is at least (or at most) a threshold". Scores are functions
of what the adversary sees; some are fitted on one half of the trials given here, and all thresholds
are chosen on the other half. No choice made here can make a bound wrong, because a bound counts
fresh trials; a bad choice only makes it weak.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.bounds import epsilon_lower, smallest_found
from fedldp.audit.observations import Floats, Observations
from fedldp.mechanisms import Mechanism

ObservedRounds = Sequence[Observations]
"""What is seen of one input, in one round or several rounds."""
Score = Callable[[Any], Floats]
"""Gives a number for each trial; the number of a trial depends on that trial only."""

_MOST_BITS = 512
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


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """The lower bound on epsilon that a game gave.

    Attributes:
        lower: the bound on epsilon.
        trials: the number of fresh trials in which the event was counted, over both inputs.
        attack: the pair and the event, for the reader.
        delta: the delta at which epsilon is bounded.
        false_hits: how often the event occurred with the input for which it is rarer.
        confidence: the confidence level of the bound from this event.
    """

    lower: float
    trials: int
    attack: str
    delta: float
    false_hits: int
    confidence: float

    def finds(self, proven: float | None) -> float | None:
        """Return the smallest epsilon that the game would have shown to exceed ``proven``."""
        return smallest_found(
            proven,
            self.false_hits,
            self.trials // 2,
            delta=self.delta,
            confidence=self.confidence,
        )


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
    hits: Callable[[Distinguisher, int], int],
    count: int,
    *,
    delta: float,
    confidence: float,
) -> LowerBound:
    """Return the largest bound that some events give.

    Args:
        events: chosen on other trials; they share the probability of error that ``confidence``
            leaves.
        hits: returns in how many of the trials with the first (0) or second (1) input an event
            occurred.
        count: number of trials with each input.
        delta: the delta at which epsilon is bounded.
        confidence: the confidence level of the bound.
    """
    each = 1 - (1 - confidence) / len(events)
    bounds = [
        epsilon_lower(
            hits(event, int(event.swapped)),
            count,
            hits(event, int(not event.swapped)),
            count,
            delta=delta,
            confidence=each,
        )
        for event in events
    ]
    at = int(np.argmax(bounds))
    event = events[at]
    return LowerBound(
        lower=bounds[at],
        trials=2 * count,
        attack=event.name,
        delta=delta,
        false_hits=hits(event, int(not event.swapped)),
        confidence=each,
    )


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


def scores(first: ObservedRounds, second: ObservedRounds, *, inputs: Sequence[NDArray[Any]],
           learned: bool) -> Iterator[tuple[str, Score]]:  # fmt: skip
    """Yield scores that may tell two inputs apart, fitted on some trials.

    Args:
        first: trials with one input, an ``Observations`` for each round.
        second: trials with the other input.
        inputs: the two inputs of the last round, which differ.
        learned: whether to train a classifier as well.
    """
    yield "length or refusal", lambda r: _lengths(r)
    yield "histogram of lengths and refusals", _histogram(_length_keys, first, second)
    if _distinct(first, second) <= len(first[0]) // 2 + 2:
        yield "histogram of whole reports", _histogram(_whole_keys, first, second)
    if len(first) > 1:
        yield "equal reports in two rounds", _equal
    mechanism = first[-1].mechanism
    if hasattr(mechanism, "log_ratio") and (first[-1].lengths >= 0).all():
        yield "log-likelihood ratio", _log_ratio(mechanism, inputs)
    yield from _decoded_scores(mechanism, inputs)
    if learned:
        yield "logistic regression on bits and estimates", _classifier(first, second)


def _lengths(reports: ObservedRounds) -> Floats:
    total: Floats = np.sum([seen.lengths for seen in reports], axis=0, dtype=np.float64)
    return total


def _length_keys(reports: ObservedRounds) -> list[Any]:
    return list(zip(*(seen.lengths.tolist() for seen in reports), strict=True))


def _whole_keys(reports: ObservedRounds) -> list[Any]:
    return list(zip(*(seen.whole for seen in reports), strict=True))


def _distinct(first: ObservedRounds, second: ObservedRounds) -> int:
    return len({*_whole_keys(first), *_whole_keys(second)})


def _equal(reports: ObservedRounds) -> Floats:
    keys = _whole_keys(reports)
    return np.array([len(set(key)) == 1 for key in keys], np.float64)


def _histogram(
    keys: Callable[[ObservedRounds], list[Any]], first: ObservedRounds, second: ObservedRounds
) -> Score:
    """Return the log-ratio of each outcome's two frequencies; 0 for an unseen outcome."""
    a, b = Counter(keys(first)), Counter(keys(second))
    ratio = {key: math.log((a[key] + 0.5) / (b[key] + 0.5)) for key in {*a, *b}}
    return lambda reports: np.array([ratio.get(key, 0.0) for key in keys(reports)])


def _log_ratio(mechanism: Any, inputs: Sequence[NDArray[Any]]) -> Score:
    def score(reports: ObservedRounds) -> Floats:
        seen = reports[-1]
        found = np.zeros(len(seen))
        came = seen.lengths >= 0
        if came.any():
            found[came] = mechanism.log_ratio(seen.rows[came], *inputs)
        return found

    return score


def _decoded_scores(
    mechanism: Mechanism, inputs: Sequence[NDArray[Any]]
) -> Iterator[tuple[str, Score]]:
    one, other = (_as_bounded(mechanism, values) for values in inputs)
    changed = one - other
    scale = np.abs(changed).max()
    direction = changed / scale if scale else changed
    at = int(np.abs(direction).argmax())
    along = "estimate projected onto the difference of the inputs"
    yield along, lambda r: r[-1].decoded @ direction
    yield "estimate of one coordinate", lambda r: r[-1].decoded[:, at]
    yield "sum of the estimated coordinates", lambda r: r[-1].decoded.sum(1)
    yield "L1 norm of the estimate", lambda r: np.abs(r[-1].decoded).sum(1)
    yield "distances of the estimate from both inputs", lambda r: _nearer(r[-1], one, other)


def _nearer(seen: Observations, one: Floats, other: Floats) -> Floats:
    found: Floats = np.abs(seen.decoded - other).sum(1) - np.abs(seen.decoded - one).sum(1)
    return found


def _as_bounded(mechanism: Mechanism, values: NDArray[Any]) -> Floats:
    """Return the values that the mechanism should randomise, or finite values near them."""
    try:
        bounded = mechanism.bound(values.copy())
    except Exception:  # a fallback is enough, because only a score depends on the result
        bounded = values
    return np.clip(np.nan_to_num(bounded.astype(np.float64)), -1e9, 1e9)


def _classifier(first: ObservedRounds, second: ObservedRounds) -> Score:
    """Return the scores of a logistic regression trained on these trials."""
    from sklearn.linear_model import LogisticRegression

    # Everything is fitted on the trials given here, so that the score of a new trial depends on
    # that trial only, and new trials stay independent.
    widths = [min(seen.rows.shape[1], _MOST_BITS // 8) for seen in first]
    features = np.concatenate([_features(first, widths), _features(second, widths)])
    scale = 1e-9 + np.abs(features).max(0)
    labels = np.repeat([1, 0], [len(first[0]), len(second[0])])
    model = LogisticRegression(C=1.0, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is only a weaker test
        model.fit(features / scale, labels)

    def score(reports: ObservedRounds) -> Floats:
        found: Floats = model.decision_function(_features(reports, widths) / scale)
        return found

    return score


def _features(reports: ObservedRounds, widths: Sequence[int]) -> Floats:
    columns = []
    for seen, width in zip(reports, widths, strict=True):
        rows = np.zeros((len(seen), width), np.uint8)
        shared = min(width, seen.rows.shape[1])
        rows[:, :shared] = seen.rows[:, :shared]
        columns.append(np.unpackbits(rows, axis=1).astype(np.float64))
        columns.append(np.clip(seen.decoded[:, :_MOST_BITS], -1e12, 1e12))
        columns.append(seen.lengths[:, None].astype(np.float64))
    return np.concatenate(columns, axis=1)
