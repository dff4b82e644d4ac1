"""Scores that tell two canaries of a system apart by what an adversary saw in one trial.

As in ``events``, scores are fitted on some trials, thresholds are chosen on others, and bounds
count fresh trials.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.adversary_views import Transcript
from fedldp.audit.events import Score

Floats = NDArray[np.float64]
Features = Callable[[Transcript], Floats]

_PRIOR = 10.0
"""The weight of the pooled variance, in trials, when variances from few trials are compared."""
_LEARNED = 256


def scores(first: Transcript, second: Transcript) -> Iterator[tuple[str, Score]]:
    """Yield scores, fitted on some trials with each canary."""
    yield "length of the answer", lambda seen: seen.lengths.sum(1)
    for column in range(first.heads.shape[1]):
        if len(np.unique(np.concatenate([first.heads[:, column], second.heads[:, column]]))) > 1:
            yield _HEADS[column % len(_HEADS)], partial(_head, column)
    if len({*first.whole, *second.whole}) <= len(first) // 2 + 2:
        yield "histogram of everything observed", _histogram(first, second)
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
    yield "logistic regression on bits and estimates", _classifier(first, second)


_HEADS = ("refusal", "weight in the report", "epsilon in the report", "sender in the report")


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


def _histogram(first: Transcript, second: Transcript) -> Score:
    a, b = Counter(first.whole), Counter(second.whole)
    ratio = {key: math.log((a[key] + 0.5) / (b[key] + 0.5)) for key in {*a, *b}}
    return lambda seen: np.array([ratio.get(key, 0.0) for key in seen.whole])


def _one_coordinate(first: Transcript, second: Transcript) -> Score:
    a, b = _values(first), _values(second)
    spread = a.std(0) + b.std(0) + 1e-9 * (1 + np.abs(a).max() + np.abs(b).max())
    at = int((np.abs(a.mean(0) - b.mean(0)) / spread).argmax())
    return lambda seen: _values(seen)[:, at]


def _fitted(
    name: str, features: Features, first: Transcript, second: Transcript
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


def _classifier(first: Transcript, second: Transcript) -> Score:
    from sklearn.linear_model import LogisticRegression

    features = np.concatenate([_plain(first), _plain(second)])
    scale = 1e-9 + np.abs(features).max(0)
    labels = np.repeat([1, 0], [len(first), len(second)])
    model: Any = LogisticRegression(C=1.0, max_iter=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is only a weaker test
        model.fit(features / scale, labels)

    def score(seen: Transcript) -> Floats:
        found: Floats = model.decision_function(_plain(seen) / scale)
        return found

    return score


def _plain(seen: Transcript) -> Floats:
    few = seen.values[:, :, :_LEARNED].reshape(len(seen), -1)
    bits = seen.bits.reshape(len(seen), -1)
    return np.concatenate([bits, few.astype(np.float64), seen.lengths, seen.heads], axis=1)
