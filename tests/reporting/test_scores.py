"""Figures of a test: scikit-learn's, whatever the classes, ties and pieces."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    roc_auc_score,
)

from fedldp.protocol.roles import Score
from fedldp.reporting.schema import Schema
from fedldp.reporting.scores import FIGURES, evaluation, figures_of, scores


def made(classes: int, seed: int, decimals: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels, of which one is rare, and probabilities that say something of them."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.05] + [0.95 / (classes - 1)] * (classes - 1))
    labels = np.concatenate([np.arange(classes), rng.choice(classes, 150, p=shares)])
    raw = rng.random((len(labels), classes)) + 0.4 * np.eye(classes)[labels]
    rounded = np.round(raw / raw.sum(1, keepdims=True), decimals) + 1e-3  # many are equal
    return labels, rounded / rounded.sum(1, keepdims=True)


def table(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    places = np.arange(probabilities.shape[1])
    found: NDArray[np.int64] = confusion_matrix(labels, probabilities.argmax(1), labels=places)
    return found


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_figures_are_those_of_scikit_learn(classes: int, decimals: int) -> None:
    for seed in range(5):
        labels, shares = made(classes, seed, decimals)
        found = figures_of(labels, shares, table(labels, shares))
        if classes == 2:
            auc = roc_auc_score(labels, shares[:, 1])
            precision = average_precision_score(labels, shares[:, 1])
        else:
            auc = roc_auc_score(labels, shares, multi_class="ovr")
            precision = average_precision_score(np.eye(classes)[labels], shares)
        assert found == pytest.approx(
            {
                "auc": auc,
                "average_precision": precision,
                "balanced_accuracy": balanced_accuracy_score(labels, shares.argmax(1)),
                "brier": brier_score_loss(labels, shares if classes > 2 else shares[:, 1]),
            },
            abs=1e-12,
        )


def test_without_a_class_what_ranks_it_is_not_defined() -> None:
    labels, shares = made(3, 0, 12)
    there = labels != 1
    found = figures_of(labels[there], shares[there], table(labels[there], shares[there]))
    assert found["auc"] is found["average_precision"] is None
    recalls = [(shares[labels == k].argmax(1) == k).mean() for k in (0, 2)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    one, two = np.zeros(4, np.int64), np.full((4, 2), 0.5)
    found = figures_of(one, two, table(one, two))
    assert found == {"auc": None, "average_precision": None, "balanced_accuracy": 1.0,
                     "brier": 0.25}  # fmt: skip


def pieces(labels: NDArray[np.int64], shares: NDArray[np.float64], size: int) -> list[Score]:
    return [
        Score(
            right=int((shares[part].argmax(1) == labels[part]).sum()),
            loss=1.0,
            total=len(labels[part]),
            confusion=table(labels[part], shares[part]),
            labels=labels[part],
            probabilities=shares[part],
        )
        for part in (slice(start, start + size) for start in range(0, len(labels), size))
    ]


def test_a_test_in_pieces_has_the_figures_of_the_whole() -> None:
    labels, shares = made(3, 1, 2)
    found, confusion = evaluation(pieces(labels, shares, 40))
    assert found._asdict() | figures_of(labels, shares, table(labels, shares)) == found._asdict()
    assert found.accuracy == (shares.argmax(1) == labels).mean()
    assert confusion is not None
    assert confusion.tolist() == table(labels, shares).tolist()
    # One piece without them leaves accuracy and loss.
    found, confusion = evaluation([*pieces(labels, shares, 40), Score(right=1, loss=1.0, total=2)])
    assert confusion is None
    assert [getattr(found, name) for name in FIGURES] == [None] * 4
    assert found.loss == 5 / (len(labels) + 2)


def test_an_evaluation_says_what_a_round_does() -> None:
    labels, shares = made(3, 2, 3)
    schema = Schema(input_shape=(2,), num_classes=3, num_examples=100)
    found = scores(labels, shares, schema)
    expected = figures_of(labels, shares, table(labels, shares))
    assert {name: found[name] for name in FIGURES} == expected
    for k, row in enumerate(found["classes"]):
        assert row["auc"] == pytest.approx(roc_auc_score(labels == k, shares[:, k]), abs=1e-12)
