"""The figures of a test equal scikit-learn's for any classes, ties and pieces."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    roc_auc_score,
)

from fedldp.core.facts import Doubt
from fedldp.core.kinds import (
    CLASS_MISSING,
    NOT_ABOVE_CHANCE,
    NOT_ABOVE_GUESSING,
    NOT_ABOVE_MOST_FREQUENT,
    ONE_CLASS,
)
from fedldp.protocol.roles import Score
from fedldp.reporting.record import Schema
from fedldp.reporting.scores import (
    FIGURES,
    calibration_error,
    doubts,
    evaluation,
    figures_of,
    scores,
    with_labels_like,
)


def made(classes: int, seed: int, decimals: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels, one of which is rare, and probabilities that carry some information about
    them."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.05] + [0.95 / (classes - 1)] * (classes - 1))
    labels = np.concatenate([np.arange(classes), rng.choice(classes, 150, p=shares)])
    raw = rng.random((len(labels), classes)) + 0.4 * np.eye(classes)[labels]
    rounded = np.round(raw / raw.sum(1, keepdims=True), decimals) + 1e-3  # so that many are equal
    return labels, rounded / rounded.sum(1, keepdims=True)


def table(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    places = np.arange(probabilities.shape[1])
    found: NDArray[np.int64] = confusion_matrix(labels, probabilities.argmax(1), labels=places)
    return found


@pytest.mark.parametrize("decimals", [1, 12])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_figures_equal_those_of_scikit_learn(classes: int, decimals: int) -> None:
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
                "calibration_error": calibration_error(labels, shares),
            },
            abs=1e-12,
        )


def test_without_a_class_its_ranking_figures_are_undefined() -> None:
    labels, shares = made(3, 0, 12)
    there = labels != 1
    found = figures_of(labels[there], shares[there], table(labels[there], shares[there]))
    assert found["auc"] is found["average_precision"] is None
    recalls = [(shares[labels == k].argmax(1) == k).mean() for k in (0, 2)]
    assert found["balanced_accuracy"] == pytest.approx(np.mean(recalls))
    one, two = np.zeros(4, np.int64), np.full((4, 2), 0.5)
    found = figures_of(one, two, table(one, two))
    assert found == {"auc": None, "average_precision": None, "balanced_accuracy": 1.0,
                     "brier": 0.25, "calibration_error": 0.5}  # fmt: skip


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


def test_a_test_in_pieces_has_the_figures_of_a_whole_one() -> None:
    labels, shares = made(3, 1, 2)
    found, confusion = evaluation(pieces(labels, shares, 40))
    assert found._asdict() | figures_of(labels, shares, table(labels, shares)) == found._asdict()
    assert found.accuracy == (shares.argmax(1) == labels).mean()
    assert confusion is not None
    assert confusion.tolist() == table(labels, shares).tolist()
    # If one piece lacks them, accuracy and loss remain.
    found, confusion = evaluation([*pieces(labels, shares, 40), Score(right=1, loss=1.0, total=2)])
    assert confusion is None
    assert [getattr(found, name) for name in FIGURES] == [None] * len(FIGURES)
    assert found.loss == 5 / (len(labels) + 2)


def test_an_evaluation_agrees_with_a_round() -> None:
    labels, shares = made(3, 2, 3)
    schema = Schema(input_shape=(2,), num_classes=3, num_examples=100)
    found = scores(labels, shares, schema)
    expected = figures_of(labels, shares, table(labels, shares))
    assert {name: found[name] for name in FIGURES} == expected
    for k, row in enumerate(found["classes"]):
        assert row["auc"] == pytest.approx(roc_auc_score(labels == k, shares[:, k]), abs=1e-12)


def test_the_accuracy_at_a_client_is_that_on_examples_with_labels_like_its_own() -> None:
    labels, shares = made(3, 2, 3)
    confusion = table(labels, shares)
    recalls = np.diagonal(confusion) / confusion.sum(1)
    counts = np.array([[4, 0, 0], [0, 3, 9], [0, 0, 0], *[[1, 1, 1]] * 9])
    each = with_labels_like(counts, confusion)
    assert each[0] == recalls[0]
    assert each[1] == pytest.approx(recalls[1] / 4 + recalls[2] * 3 / 4)
    assert each[2:] == pytest.approx([recalls.mean()] * 9)  # a client without examples has none
    alike = with_labels_like(confusion.sum(1)[None], confusion)
    assert alike == pytest.approx([(shares.argmax(1) == labels).mean()])
    found = evaluation(
        pieces(labels, shares, 40), None, lambda _, all: with_labels_like(counts, all)
    )
    told = found[0].figures
    assert told["client_accuracy"] == pytest.approx(each.mean())
    assert told["worst_tenth_accuracy"] == pytest.approx(np.sort(each)[:2].mean())  # 1.1 of 11
    f1 = f1_score(labels, shares.argmax(1), average="macro")
    assert told["f1_macro"] == pytest.approx(f1)
    assert "client_accuracy" not in evaluation(pieces(labels, shares, 40))[0].figures


# Doubtful figures


def doubts_of(
    labels: NDArray[np.int64], shares: NDArray[np.float64], *, known: bool = True
) -> list[Doubt]:
    confusion = table(labels, shares)
    tested = figures_of(labels, shares, confusion)
    accuracy = {"accuracy": float((shares.argmax(1) == labels).mean())}
    nothing = dict.fromkeys(tested)
    schema = Schema(input_shape=(2,), num_classes=shares.shape[1], num_examples=100)
    counts = np.bincount(labels, minlength=shares.shape[1])
    return doubts(accuracy | (tested if known else nothing), confusion if known else None, counts,
                  schema)  # fmt: skip


def of_two(positive: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([1 - positive, positive], 1)


RARE = (np.arange(400) % 8 == 0).astype(np.int64)
"""One in eight is positive, so always predicting the other class is right for 87.5 %."""


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_a_model_that_always_predicts_the_most_frequent_class_has_learned_nothing(
    classes: int,
) -> None:
    labels = np.where(np.arange(350) % 5 > 0, 0, np.arange(350) % classes)
    always = np.tile(np.eye(classes)[0] * 0.9 + 0.1 / classes, (350, 1))
    found = figures_of(labels, always, table(labels, always))
    assert found["balanced_accuracy"] == pytest.approx(1 / classes)
    assert found["auc"] == 0.5
    often = float((labels == 0).mean())
    assert doubts_of(labels, always) == [
        NOT_ABOVE_CHANCE(auc=0.5, accuracy=often, most_frequent=often, examples=350, rounded=False)
    ]
    # A model that sometimes predicts another class by chance has that accuracy and nothing more.
    rng = np.random.default_rng(classes)
    noisy = always + 0.3 * rng.random(always.shape)
    (doubt,) = doubts_of(labels, noisy / noisy.sum(1, keepdims=True))
    assert doubt.kind == NOT_ABOVE_CHANCE.name


def test_for_a_model_that_ranks_well_weights_or_a_threshold_are_suggested() -> None:
    rng = np.random.default_rng(0)
    score = 0.1 * RARE + 0.2 * rng.random(400)  # never above one half
    (doubt,) = doubts_of(RARE, of_two(score))
    assert doubt.kind == NOT_ABOVE_GUESSING.name
    assert doubt.values["balanced_accuracy"] == 0.5
    assert doubt.values["auc"] == pytest.approx(roc_auc_score(RARE, score))
    assert doubt.values["threshold"]
    # With its threshold moved, it is less accurate than one class alone, but not doubtful.
    moved = score + 0.35
    assert ((moved >= 0.5) == RARE).mean() < 0.875
    assert doubts_of(RARE, of_two(moved)) == []


def test_with_classes_of_similar_size_a_low_accuracy_gets_a_warning() -> None:
    labels = (np.arange(400) % 5 < 2).astype(np.int64)
    score = 0.42 + 0.3 * labels + 0.3 * np.random.default_rng(0).random(400)
    (doubt,) = doubts_of(labels, of_two(score))
    assert doubt.kind == NOT_ABOVE_MOST_FREQUENT.name
    assert (doubt.values["most_frequent"], doubt.values["auc"]) == (0.6, 1.0)
    assert doubt.values["accuracy"] < 0.65


def test_a_test_that_is_too_small_gets_a_warning() -> None:
    shares = np.full((30, 3), 1 / 3)
    first, second = doubts_of(np.arange(30) % 2, shares)
    assert first == CLASS_MISSING(classes=("2",), more=0)
    assert second.kind == NOT_ABOVE_GUESSING.name
    assert (second.values["balanced_accuracy"], second.values["classes"]) == (0.5, 2)
    assert not second.values["threshold"]
    assert doubts_of(np.zeros(30, np.int64), shares) == [
        CLASS_MISSING(classes=("1", "2"), more=0),
        ONE_CLASS,
    ]


@pytest.mark.slow
def test_few_scores_without_signal_are_mistaken_for_learning() -> None:
    """Two deviations allow about one in forty for two classes, and fewer for more classes."""
    rng = np.random.default_rng(1)
    for classes in (2, 4):
        wrong = 0
        for _ in range(200):
            labels = np.concatenate([np.arange(classes), rng.choice(classes, 120)])
            raw = rng.random((len(labels), classes))
            wrong += not doubts_of(labels, raw / raw.sum(1, keepdims=True))
        assert wrong <= 8
