"""Curves and intervals agree with their definitions, and intervals have their stated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

from fedldp.audit.attacks.intervals import (
    CONFIDENCE,
    curve,
)
from fedldp.audit.results import LEVELS


def drawn(seed: int, *, shift: float, groups: int = 40, each: int = 20, of_group: float = 0.0):  # type: ignore[no-untyped-def]
    """Return scores, truth and groups; within a group, scores are dependent, and so are truths."""
    generator = np.random.default_rng(seed)
    rates = generator.beta(0.5, 0.5, groups) if of_group else np.full(groups, 0.5)
    truth = generator.random((groups, each)) < rates[:, None]
    scores = generator.normal(size=truth.shape) + shift * truth
    scores += of_group * generator.normal(size=(groups, 1))
    return scores.ravel(), truth.ravel(), np.repeat(np.arange(groups), each)


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("digits", [1, 12])
def test_a_curve_agrees_with_scikit_learn(shift: float, digits: int) -> None:
    scores, truth, groups = drawn(1, shift=shift)
    scores = scores.round(digits)  # with one digit there are ties
    found = curve(scores, truth, groups, seed=0)
    assert found.auc.value == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    for level in LEVELS:
        assert dict(found.levels)[level].value == pytest.approx(tpr[fpr <= level].max(), abs=1e-12)
    for x, y in found.points:
        assert np.hypot(fpr - x, tpr - y).min() < 1e-5
    assert found.points[0] == (0.0, 0.0)
    assert found.points[-1] == (1.0, 1.0)
    assert (found.positives, found.negatives) == (truth.sum(), (~truth).sum())


def share_held(shift: float, right: float, repeats: int, **more: float) -> float:
    held = 0
    for seed in range(repeats):
        auc = curve(*drawn(seed, shift=shift, **more), seed=seed).auc
        held += auc.low <= right <= auc.high
    return held / repeats


@pytest.mark.slow
def test_an_interval_contains_the_true_area_as_often_as_it_says() -> None:
    """Of 30 intervals, at least 95 % minus two deviations contain it; without groups, many would
    not."""
    least = CONFIDENCE - 2 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / 30)
    assert share_held(0.0, 0.5, 30, of_group=2.0) >= least
    scores, truth, groups = drawn(0, shift=0.0, of_group=2.0)
    alone = curve(scores, truth, np.arange(len(groups)), seed=0).auc
    together = curve(scores, truth, groups, seed=0).auc
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_no_hit_at_all_bounds_a_rate_as_exactly_as_trials_can() -> None:
    truth = np.arange(200) % 2 == 0
    scores = np.where(truth, 0.0, 1.0)  # always wrong
    found = dict(curve(scores, truth, np.arange(200), seed=0).levels)[0.01]
    assert found.value == 0
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 100))
