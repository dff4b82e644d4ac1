"""The results of attacks, with their intervals and ROC curves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from fedldp.audit.bounds import probability_at_least, probability_at_most
from fedldp.audit.results import (
    LEVELS,
    AttackResult,
    Estimate,
    Kind,
    Measure,
    Roc,
    verdict_of_attack,
)
from fedldp.core.errors import ConfigError

CONFIDENCE = 0.95
"""The confidence of every interval here. The intervals are statistical, and prove nothing; the
bounds in ``audit.bounds`` do."""

_BOOTSTRAPS = 400
_POINTS = 200


def judged(
    subject: str,
    kind: Kind,
    attack: str,
    measure: Measure,
    measured: Estimate | None,
    **told: Any,
) -> AttackResult:
    """Return an attack's result with its verdict; keyword arguments are fields of the result."""
    return AttackResult(
        subject=subject,
        kind=kind,
        attack=attack,
        measure=measure,
        measured=measured,
        confidence=CONFIDENCE,
        verdict=verdict_of_attack(measure, measured, told["baseline"]),
        **told,
    )


def curve(
    scores: NDArray[np.floating],
    truth: NDArray[np.bool_],
    groups: NDArray[np.integer],
    seed: int,
) -> Roc:
    """Return the ROC curve of ``scores``, where larger scores mean yes.

    The intervals come from a bootstrap over groups: scores of one group are dependent, because they
    come from one report. Groups must be independent: no score may depend on the truth of another
    group. The intervals of true-positive rates are at least as wide as Clopper and Pearson's, since
    a bootstrap has no width if every report gives the same answer. Thresholds are chosen on the
    same trials that are counted, as is usual for these curves.

    Args:
        scores: shape (m,).
        truth: the right answers, shape (m,).
        groups: the report that each score comes from, shape (m,).
        seed: the seed of the bootstrap.

    Raises:
        ConfigError: all answers are yes, or all are no.
    """
    if truth.all() or not truth.any():
        raise ConfigError("truth: all answers are the same; give both kinds")
    order = np.argsort(-scores, kind="stable")
    scores, truth = scores[order], truth[order]
    ends = np.flatnonzero(np.append(np.diff(scores) != 0, True))  # equal scores pass together
    names, places = np.unique(groups[order], return_inverse=True)
    one = np.ones((1, len(names)))
    fpr, tpr = (each[0] for each in _rates(truth, ends, one[:, places]))
    area = float(_area(fpr[None], tpr[None])[0])
    levels = [_tpr(fpr[None], tpr[None], level)[0] for level in LEVELS]
    areas, found = [], []
    for weights in _resampled(len(names), seed):
        no, yes = _rates(truth, ends, weights[:, places])
        usable = np.isfinite(no[:, -1]) & np.isfinite(yes[:, -1])
        no, yes = no[usable], yes[usable]
        areas.append(_area(no, yes))
        found.append([_tpr(no, yes, level) for level in LEVELS])
    positives = int(truth.sum())
    drawn = [np.concatenate([each[at] for each in found]) for at in range(len(LEVELS))]
    return Roc(
        points=_thinned(fpr, tpr),
        auc=_around(area, np.concatenate(areas), len(names)),
        levels=tuple(
            (level, _widened(_around(float(value), some, len(names)), positives))
            for level, value, some in zip(LEVELS, levels, drawn, strict=True)
        ),
        positives=positives,
        negatives=len(truth) - positives,
    )


def ratio_estimate(above: NDArray[np.floating], below: NDArray[np.floating], seed: int) -> Estimate:
    """Return the sum of ``above`` over the sum of ``below``, shape (n,) each; pairs independent."""
    drawn = []
    for weights in _resampled(len(above), seed):
        over, under = weights @ above, weights @ below
        drawn.append(over[under > 0] / under[under > 0])
    return _around(float(above.sum() / below.sum()), np.concatenate(drawn), len(above))


def _resampled(count: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield how often each of ``count`` items is drawn, shape (bootstraps, count), in parts."""
    generator = np.random.default_rng([seed, count])
    for _ in range(_BOOTSTRAPS // 20):
        yield generator.multinomial(count, np.full(count, 1 / count), 20).astype(np.float64)


Rates = NDArray[np.float64]


def _rates(
    truth: NDArray[np.bool_], ends: NDArray[np.intp], weights: NDArray[np.float64]
) -> tuple[Rates, Rates]:
    """Return false- and true-positive rates at each threshold, shape (bootstraps, thresholds)."""
    yes = np.cumsum(weights * truth, 1)[:, ends]
    no = np.cumsum(weights * ~truth, 1)[:, ends]
    with np.errstate(invalid="ignore"):  # bootstraps without positives are left out
        return no / no[:, -1:], yes / yes[:, -1:]


def _area(fpr: Rates, tpr: Rates) -> Rates:
    steps = np.diff(fpr, axis=1, prepend=0)
    heights = tpr - np.diff(tpr, axis=1, prepend=0) / 2
    return np.asarray((steps * heights).sum(1))


def _tpr(fpr: Rates, tpr: Rates, level: float) -> Rates:
    return np.asarray(np.where(fpr <= level, tpr, 0.0).max(1, initial=0.0))


def _around(value: float, drawn: NDArray[np.floating], groups: int) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    # With few groups, the interval is too narrow by a factor of sqrt(n/(n - 1)) times the ratio of
    # the Student quantile to the normal quantile.
    few = max(2, groups)
    wider = math.sqrt(few / (few - 1)) * float(student.isf(tail, few - 1) / norm.isf(tail))
    return Estimate(
        value=value,
        low=min(value, value + wider * (float(low) - value)),
        high=max(value, value + wider * (float(high) - value)),
    )


def _widened(estimate: Estimate, count: int) -> Estimate:
    hits, tail = round(estimate.value * count), (1 - CONFIDENCE) / 2
    return Estimate(
        value=estimate.value,
        low=max(0.0, min(probability_at_least(hits, count, tail), estimate.low)),
        high=min(1.0, max(probability_at_most(hits, count, tail), estimate.high)),
    )


def _thinned(fpr: Rates, tpr: Rates) -> tuple[tuple[float, float], ...]:
    """Return a few points of the curve, evenly spaced along it."""
    fpr, tpr = np.append(0.0, fpr), np.append(0.0, tpr)
    along = fpr + tpr
    kept = np.unique(np.searchsorted(along, np.linspace(0, along[-1], _POINTS)))
    return tuple(
        (round(float(fpr[at]), 6), round(float(tpr[at]), 6)) for at in kept.clip(max=len(fpr) - 1)
    )
