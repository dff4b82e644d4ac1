"""Intervals of scores: the resamples, the spread over seeds, and paired differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.data import Examples
from fedldp.data.label_range import LabelRange
from fedldp.experiments.advising.intervals import (
    DRAWS,
    EVERYBODY,
    LEAST,
    Estimate,
    HeldPeople,
    resampled,
    resampled_numbers,
    weighted,
)
from fedldp.reporting.scores import figures_of, of_numbers

METRICS = ("auc", "balanced_accuracy", "calibration_error")


def drawn(seed: int, rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and coarse probabilities, so that some of them are equal."""
    draw = np.random.default_rng(seed)
    labels = np.append(np.arange(classes), draw.integers(0, classes, rows - classes))
    shares = np.round(draw.dirichlet(np.ones(classes), rows), 1) + 0.05
    return labels, shares / shares.sum(1, keepdims=True)


def scored(labels: np.ndarray, shares: np.ndarray) -> dict[str, float | None]:
    classes = shares.shape[1]
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (labels, shares.argmax(1)), 1)
    return figures_of(labels, shares, confusion) | {"accuracy": confusion.trace() / len(labels)}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(12, 60), st.integers(2, 4))
def test_a_resample_scores_as_its_rows_do(seed: int, rows: int, classes: int) -> None:
    labels, shares = drawn(seed, rows, classes)
    weights = np.random.default_rng(seed).integers(0, 3, (3, rows))
    weights[0] = 1
    found = resampled(labels, shares, weights.astype(float))
    whole = scored(labels, shares)
    for metric in (*METRICS, "accuracy"):
        assert found[metric][0] == pytest.approx(whole[metric], abs=1e-12)
    for number in (1, 2):
        taken = np.repeat(np.arange(rows), weights[number])
        if len(np.unique(labels[taken])) < classes:
            assert math.isnan(found["auc"][number])
            continue
        again = scored(labels[taken], shares[taken])
        for metric in ("auc", "balanced_accuracy", "accuracy"):  # bins differ in a resample
            assert found[metric][number] == pytest.approx(again[metric], abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(12, 60))
def test_a_resample_of_numbers_scores_as_its_rows_do(seed: int, rows: int) -> None:
    draw, within = np.random.default_rng(seed), LabelRange(-10.0, 30.0)
    labels = within.steps(draw.normal(5, 9, rows))
    outputs = draw.normal(0, 0.4, rows).clip(-1, 1)
    weights = draw.integers(0, 3, (3, rows))
    weights[0] = 1
    true, said = within.numbers(labels), within.restored(outputs)
    found = resampled_numbers(true, said, weights.astype(float))
    whole = of_numbers(labels, outputs, within)
    assert {metric: each[0] for metric, each in found.items()} == pytest.approx(whole, abs=1e-9)
    for number in (1, 2):
        taken = np.repeat(np.arange(rows), weights[number])
        again = of_numbers(labels[taken], outputs[taken], within)
        for metric in ("r2", "mae"):  # bins differ in a resample
            assert found[metric][number] == pytest.approx(again[metric], abs=1e-9)


def test_equal_numbers_have_no_r2() -> None:
    found = resampled_numbers(np.full(20, 3.0), np.linspace(2, 4, 20), np.ones((2, 20)))
    assert np.isnan(found["r2"]).all()
    assert found["mae"] == pytest.approx(found["mae"][0])


def test_a_person_is_resampled_with_all_rows() -> None:
    whose = np.repeat(np.arange(40), 3)
    people = HeldPeople(Examples(np.zeros((120, 1), np.float32), whose % 2, whose), 2, {})
    weights = people._weights
    assert weights.shape == (DRAWS + 1, 120)
    assert (weights[0] == 1).all()
    by_person = weights.reshape(-1, 40, 3)
    assert (by_person == by_person[:, :, :1]).all()
    assert (by_person[:, :, 0].sum(1) == 40).all()


def row(digest: str, shares: np.ndarray) -> dict[str, object]:
    return {"digest": digest, "predicted": [shares[:, 1].tolist()]}


def test_a_difference_on_the_same_people_is_paired() -> None:
    labels, shares = drawn(1, 400, 2)
    nearly = shares + np.array([0.001, -0.001])
    people = HeldPeople(Examples(np.zeros((400, 1), np.float32), labels), 2, {})
    both = []
    for name, each in (("one", shares), ("other", nearly)):
        found = people.scores(row(name, each))
        assert found is not None
        both.append(Estimate.of([found["auc"][0]] * 2, [found["auc"][1:]] * 2))
    widths = [each.interval[1] - each.interval[0] for each in both]
    gap = weighted([(1, both[0]), (-1, both[1])])
    assert min(widths) > 0.05
    assert gap.interval[1] - gap.interval[0] < min(widths) / 10


@pytest.mark.slow
def test_intervals_hold_the_true_value_as_often_as_they_say() -> None:
    """The AUC of shifted normal scores is known; each trial draws people and the noise of runs."""
    draw, trials = np.random.default_rng(0), 200
    true = 0.5 * (1 + math.erf(1 / math.sqrt(4 * (1 + 0.5**2))))
    intervals = []
    for trial in range(trials):
        labels = np.arange(120) % 2
        values = labels + draw.normal(size=120)
        people = HeldPeople(Examples(np.zeros((120, 1), np.float32), labels), 2, {})
        means, resamples = [], []
        for seed in range(3):
            score = 1 / (1 + np.exp(-(values + 0.5 * draw.normal(size=120))))
            found = people.scores(row(f"{trial} {seed}", np.stack([1 - score, score], 1)))
            assert found is not None
            means.append(found["auc"][0])
            resamples.append(found["auc"][1:])
        intervals.append(Estimate.of(means, resamples).interval)
    assert sum(low <= true <= high for low, high in intervals) >= 0.9 * trials
    assert np.mean([high - low for low, high in intervals]) < 0.3


def test_what_is_unknown_has_no_interval() -> None:
    spread = np.linspace(-0.01, 0.01, DRAWS)
    one = Estimate.of([0.8], [0.8 + spread])
    two = Estimate.of([0.7, 0.9], [0.8 + spread] * 2)
    assert (one.of_seeds, one.interval, one.sign) == (None, None, None)
    assert two.of_seeds == pytest.approx(12.7062 * 0.1, rel=1e-4)  # Student's t of one degree
    assert weighted([(1, two), (-1, one)]).interval is None
    assert weighted([(1, two), (-1, None)]) is None
    assert Estimate.of([], []) is None
    few = np.array([1] * (LEAST - 1) + [0] * 50)
    people = HeldPeople(Examples(np.zeros((len(few), 1), np.float32), few), 2, {})
    found = people.scores(row("few", np.stack([1 - few, few], 1)))
    assert found is not None
    assert found["auc"][0] == 1
    assert np.isnan(found["auc"][1:]).all()
    assert people.scores({"digest": "without"}, EVERYBODY) is None
