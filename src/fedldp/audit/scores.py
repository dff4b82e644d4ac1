"""What tells two inputs apart: events, and the scores that they are made of.

An event is "the score of what is seen is at least (or at most) a threshold". Scores are functions
of what the adversary sees in one trial; some are fitted on one half of the trials given here, and
all thresholds are chosen on the other half. No choice made here can make a bound wrong, because a
bound counts fresh trials; a bad choice only makes it weak.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.observations import Floats, Observations, Rounds
from fedldp.mechanisms import Mechanism

if TYPE_CHECKING:
    from fedldp.audit.adversary_views import Transcript

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


_CLASSIFIER = "logistic regression on bits and estimates"
_MOST_BITS = 512
_FEW_CODES = 4096
_PRIOR = 10.0
"""The weight of the pooled variance, in trials, when variances from few trials are compared."""
_LEARNED = 256

_HEADS = ("refusal", "weight in the report", "epsilon in the report", "sender in the report")


# Reports of a mechanism


def of_reports(
    first: Rounds, second: Rounds, inputs: Sequence[NDArray[Any]]
) -> Iterator[tuple[str, Score]]:
    """Yield scores that may tell two inputs apart, fitted on some trials.

    Args:
        first: trials with one input, an ``Observations`` for each round.
        second: trials with the other input.
        inputs: the two inputs of the last round, which differ.
    """
    yield "length or refusal", _lengths
    yield "histogram of lengths and refusals", _histogram(_length_keys, first, second)
    if len({*_whole_keys(first), *_whole_keys(second)}) <= len(first[0]) // 2 + 2:
        yield "histogram of whole reports", _histogram(_whole_keys, first, second)
    if len(first) > 1:
        yield "equal reports in two rounds", _equal
    mechanism = first[-1].mechanism
    if hasattr(mechanism, "log_ratio") and (first[-1].lengths >= 0).all():
        yield "log-likelihood ratio", _log_ratio(mechanism, inputs)
    yield from _decoded_scores(mechanism, inputs)
    widths = [min(seen.rows.shape[1], _MOST_BITS // 8) for seen in first]
    yield _CLASSIFIER, _classifier(partial(_features, widths), first, second)


def _lengths(reports: Rounds) -> Floats:
    total: Floats = np.sum([seen.lengths for seen in reports], axis=0, dtype=np.float64)
    return total


def _length_keys(reports: Rounds) -> list[Any]:
    return list(zip(*(seen.lengths.tolist() for seen in reports), strict=True))


def _whole_keys(reports: Rounds) -> list[Any]:
    return list(zip(*(seen.whole for seen in reports), strict=True))


def _equal(reports: Rounds) -> Floats:
    keys = _whole_keys(reports)
    return np.array([len(set(key)) == 1 for key in keys], np.float64)


def _log_ratio(mechanism: Any, inputs: Sequence[NDArray[Any]]) -> Score:
    def score(reports: Rounds) -> Floats:
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


def _features(widths: Sequence[int], reports: Rounds) -> Floats:
    columns = []
    for seen, width in zip(reports, widths, strict=True):
        rows = np.zeros((len(seen), width), np.uint8)
        shared = min(width, seen.rows.shape[1])
        rows[:, :shared] = seen.rows[:, :shared]
        columns.append(np.unpackbits(rows, axis=1).astype(np.float64))
        columns.append(np.clip(seen.decoded[:, :_MOST_BITS], -1e12, 1e12))
        columns.append(seen.lengths[:, None].astype(np.float64))
    return np.concatenate(columns, axis=1)


# Coordinates of a long report


def of_codes(first: NDArray[Any], second: NDArray[Any]) -> Iterator[tuple[str, Score]]:
    """Yield scores of the codes of coordinates, shape (n,), fitted on some of them."""
    yield "value", lambda seen: seen.astype(np.float64)
    codes, at = np.unique(np.concatenate([first, second]), return_inverse=True)
    if len(codes) > _FEW_CODES:
        return
    of_first = np.bincount(at[: len(first)], minlength=len(codes))
    of_second = np.bincount(at[len(first) :], minlength=len(codes))
    ratio = np.log((of_first + 0.5) / (of_second + 0.5))

    def score(seen: NDArray[Any]) -> Floats:
        place = np.minimum(np.searchsorted(codes, seen), len(codes) - 1)
        found: Floats = np.where(codes[place] == seen, ratio[place], 0.0)
        return found

    yield "histogram", score


def of_code_pairs() -> Iterator[tuple[str, Score]]:
    """Yield scores of pairs of codes, shape (n, 2)."""
    yield "their difference", lambda pairs: (pairs[:, 0] - pairs[:, 1]).astype(np.float64)
    yield "their absolute difference", lambda pairs: np.abs(pairs[:, 0] - pairs[:, 1]).astype(float)
    yield "their sum", lambda pairs: pairs.sum(1).astype(np.float64)


# Transcripts of a system


def of_transcripts(first: Transcript, second: Transcript) -> Iterator[tuple[str, Score]]:
    """Yield scores, fitted on some trials with each canary."""
    yield "length of the answer", lambda seen: seen.lengths.sum(1)
    for column in range(first.heads.shape[1]):
        if len(np.unique(np.concatenate([first.heads[:, column], second.heads[:, column]]))) > 1:
            yield _HEADS[column % len(_HEADS)], partial(_head, column)
    if len({*first.whole, *second.whole}) <= len(first) // 2 + 2:
        yield "histogram of everything observed", _histogram(_everything, first, second)
    if first.lengths.shape[1] > 1:
        yield "equal payloads in all rounds", lambda seen: seen.same
        yield from _fitted("change between rounds", _between, first, second)
        yield "L1 norm of the change between rounds", lambda seen: np.abs(_between(seen)).sum(1)
    yield "estimate projected onto the difference of the updates", partial(_along, 0)
    yield "estimate projected onto the signs of the updates' difference", partial(_along, 1)
    yield "L1 norm of the estimate", lambda seen: np.abs(_values(seen)).sum(1)
    yield "largest absolute value in the estimate", lambda seen: np.abs(_values(seen)).max(1)
    yield "one coordinate of the estimate", _one_coordinate(first, second)
    yield from _fitted("estimate", _values, first, second)
    yield _CLASSIFIER, _classifier(_plain, first, second)


def _head(column: int, seen: Transcript) -> Floats:
    return seen.heads[:, column]


def _along(column: int, seen: Transcript) -> Floats:
    """Return a projection of the estimate, summed over rounds: see ``Transcript.along``."""
    found: Floats = seen.along[:, column::2].sum(1)
    return found


def _values(seen: Transcript) -> Floats:
    return seen.values.reshape(len(seen), -1).astype(np.float64)


def _between(seen: Transcript) -> Floats:
    """Return how the estimate of each later round differs from the estimate of the first round."""
    change = seen.values[:, 1:].astype(np.float64) - seen.values[:, :1]
    return change.reshape(len(seen), -1)


def _everything(seen: Transcript) -> Sequence[bytes]:
    return seen.whole


def _one_coordinate(first: Transcript, second: Transcript) -> Score:
    a, b = _values(first), _values(second)
    spread = a.std(0) + b.std(0) + 1e-9 * (1 + np.abs(a).max() + np.abs(b).max())
    at = int((np.abs(a.mean(0) - b.mean(0)) / spread).argmax())
    return lambda seen: _values(seen)[:, at]


def _fitted(
    name: str, features: Callable[[Transcript], Floats], first: Transcript, second: Transcript
) -> Iterator[tuple[str, Score]]:
    """Yield scores from Gaussians fitted to each coordinate, based on their means and variances.

    Coordinates are treated as independent; in reports they are independent, or nearly so.
    """
    a, b = features(first), features(second)
    scale = np.abs(np.concatenate([a, b])).max(0)
    scale[scale == 0] = 1.0
    a, b = a / scale, b / scale
    (mean_a, var_a), (mean_b, var_b) = ((x.mean(0), x.var(0)) for x in (a, b))
    pooled = (var_a + var_b) / 2
    floor = 1e-12
    weights = (mean_a - mean_b) / (pooled + floor) / scale
    yield f"{name}: linear discriminant", lambda seen: features(seen) @ weights
    signs = np.sign(mean_a - mean_b) / scale
    onto_signs = "projection onto the signs of the mean difference"
    yield f"{name}: {onto_signs}", lambda seen: features(seen) @ signs
    share = _PRIOR / (_PRIOR + len(first))
    one, other = ((1 - share) * var + share * pooled + floor for var in (var_a, var_b))

    def quadratic(seen: Transcript) -> Floats:
        x = features(seen) / scale
        found: Floats = ((x - mean_b) ** 2 / other - (x - mean_a) ** 2 / one).sum(1) / 2
        return found

    yield f"{name}: quadratic discriminant", quadratic
    trust = np.where(np.abs(np.log(one / other)) > 0.7, 1 / other - 1 / one, 0.0) / scale**2

    def sizes(seen: Transcript) -> Floats:
        found: Floats = features(seen) ** 2 @ trust
        return found

    yield f"{name}: squares of the coordinates whose variances differ", sizes


def _plain(seen: Transcript) -> Floats:
    few = seen.values[:, :, :_LEARNED].reshape(len(seen), -1)
    bits = seen.bits.reshape(len(seen), -1)
    return np.concatenate([bits, few.astype(np.float64), seen.lengths, seen.heads], axis=1)


# Scores of any trials


def _histogram(keys: Callable[[Any], Iterable[Hashable]], first: Any, second: Any) -> Score:
    """Return the log-ratio of each outcome's two frequencies; 0 for an unseen outcome."""
    a, b = Counter(keys(first)), Counter(keys(second))
    ratio = {key: math.log((a[key] + 0.5) / (b[key] + 0.5)) for key in {*a, *b}}
    return lambda seen: np.array([ratio.get(key, 0.0) for key in keys(seen)])


def _classifier(features: Callable[[Any], Floats], first: Any, second: Any) -> Score:
    """Return the scores of a logistic regression trained on these trials.

    Everything is fitted on the trials given here, so that the score of a new trial depends on that
    trial only, and new trials stay independent.
    """
    from sklearn.linear_model import LogisticRegression

    of_first, of_second = features(first), features(second)
    known = np.concatenate([of_first, of_second])
    scale = 1e-9 + np.abs(known).max(0)
    labels = np.repeat([1, 0], [len(of_first), len(of_second)])
    model: Any = LogisticRegression(C=1.0, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is only a weaker test
        model.fit(known / scale, labels)

    def score(seen: Any) -> Floats:
        found: Floats = model.decision_function(features(seen) / scale)
        return found

    return score
