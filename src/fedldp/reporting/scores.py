"""How good a classifier is on labelled examples: more than its accuracy, which can mislead."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.formatting import rounded_count
from fedldp.protocol.roles import Score
from fedldp.protocol.server_loop import Evaluation, Round
from fedldp.reporting.schema import FEW, Schema

FIGURES = ("auc", "average_precision", "balanced_accuracy", "brier")
"""What rounds have beside accuracy and loss; see ``Evaluation``."""


def evaluation(scores: Iterable[Score]) -> tuple[Evaluation, NDArray[np.int64] | None]:
    """Return what the scores on all pieces of a test say together, and the confusion matrix.

    The matrix is None, and so are all figures but accuracy and loss, where a piece has none.
    """
    found = list(scores)
    right, loss, total = 0, 0.0, 0
    for score in found:  # sum() of floats rounds otherwise from Python 3.12 on
        right += score.right
        loss += score.loss
        total += score.total
    own = [score.own_right for score in found if score.own_right is not None]
    named = {"local_accuracy": sum(own) / total} if len(own) == len(found) else {}
    confusion: Any = None
    figures: dict[str, float | None] = {}
    tables = [score.confusion for score in found if score.confusion is not None]
    labels = [score.labels for score in found if score.labels is not None]
    rows = [score.probabilities for score in found if score.probabilities is not None]
    if len(tables) == len(labels) == len(rows) == len(found):
        confusion = sum(tables)
        figures = figures_of(np.concatenate(labels), np.concatenate(rows), confusion)
    return Evaluation(right / total, loss / total, named, **figures), confusion


def figures_of(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64], confusion: NDArray[np.int64]
) -> dict[str, float | None]:
    """Return the ``FIGURES`` of a model on a test; see ``Evaluation``.

    They are those of scikit-learn, which takes half a second to import; the test compares them.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: of each class, shape (n, num_classes).
        confusion: how many examples of each class (row) were taken for each (column).
    """
    ranked = [_ranked(labels == k, probabilities[:, k]) for k in _scored(probabilities.shape[1])]
    known = [each for each in ranked if each is not None]
    whole = len(known) == len(ranked)
    misses = np.square(probabilities).sum(1)
    misses += 1 - 2 * probabilities[np.arange(len(labels)), labels]
    scale = 2 if probabilities.shape[1] == 2 else 1  # both classes miss by the same
    return {
        "auc": float(np.mean([area for area, _ in known])) if whole else None,
        "average_precision": float(np.mean([area for _, area in known])) if whole else None,
        "balanced_accuracy": balanced_accuracy(confusion),
        "brier": float(np.mean(misses)) / scale,
    }


def balanced_accuracy(confusion: NDArray[np.int64]) -> float:
    """Return the mean recall of the classes that are there."""
    support = confusion.sum(1)
    there = support > 0
    return float(np.mean(np.diagonal(confusion)[there] / support[there]))


def _scored(num_classes: int) -> range:
    """Return the classes that are each scored against all others: of two, the second."""
    return range(1, 2) if num_classes == 2 else range(num_classes)


def _ranked(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the area under the ROC curve, and the average precision, of a class's scores.

    Equal scores are one step, so the order of the examples changes nothing.

    Returns:
        None where all examples are of the class, or none is.
    """
    count = int(positive.sum())
    if count in (0, len(positive)):
        return None
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)
    hits = np.cumsum(positive[order])[ends]
    misses = 1 + ends - hits
    above = hits + np.append(0, hits[:-1])  # twice the mean height of each step: integers
    area = int((np.diff(misses, prepend=0) * above).sum()) / (2 * count * (len(order) - count))
    precision = hits / (hits + misses)
    return area, float((np.diff(hits, prepend=0) * precision).sum() / count)


def scores(
    labels: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    schema: Schema,
) -> dict[str, Any]:
    """Return a model's figures on a test, JSON-ready.

    The ``FIGURES`` are those of ``Evaluation``. Precision is 0 where a class was never predicted.
    "most_frequent" is what always naming the most frequent class would give.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: of each class, shape (n, num_classes).
        schema: of the model.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    places = np.arange(schema.num_classes)
    predicted = probabilities.argmax(1)
    precision, recall, f1, support = precision_recall_fscore_support(
        labels, predicted, labels=places, zero_division=0.0
    )
    confusion = confusion_matrix(labels, predicted, labels=places)
    figures = figures_of(labels, probabilities, confusion)
    areas = [_ranked(labels == label, probabilities[:, label]) for label in places]
    there = support > 0
    return {
        "examples": len(labels),
        "accuracy": float(np.mean(predicted == labels)),
        "balanced_accuracy": figures["balanced_accuracy"],
        "most_frequent": float(support.max() / len(labels)),
        "f1_macro": float(np.mean(f1[there])),
        "auc": figures["auc"],
        "average_precision": figures["average_precision"],
        "brier": figures["brier"],
        "classes": [
            {
                "class": schema.class_name(label),
                "examples": int(support[label]),
                "precision": float(precision[label]),
                "recall": float(recall[label]) if there[label] else None,
                "f1": float(f1[label]) if there[label] else None,
                "auc": None if (ranked := areas[label]) is None else ranked[0],
            }
            for label in range(schema.num_classes)
        ],
        "confusion": confusion.tolist(),
    }


def doubts(
    accuracy: float | None,
    most_frequent: float,
    examples: int,
    few: int | None,
    *,
    is_rounded: bool,
) -> list[str]:
    """Return what makes a model's figures doubtful, in words.

    Args:
        accuracy: on the test, 0 to 1; None where it was not tested so.
        most_frequent: the share of the test's most frequent class.
        examples: of the test.
        few: clients with fewer than ``FEW`` examples, where that is known.
        is_rounded: whether ``few`` is rounded up, and ``examples`` is to be told so.
    """
    found = []
    tested = f"about {rounded_count(examples):,}" if is_rounded else f"{examples:,}"
    # Two deviations: as far as such a test's share of one class may well be from its own mean.
    spread = 2 * math.sqrt(most_frequent * (1 - most_frequent) / examples)
    if accuracy is not None and accuracy <= most_frequent + spread:
        found.append(
            f"accuracy {100 * accuracy:.2f} % is not above the {100 * most_frequent:.2f} % of "
            f"always naming the most frequent class, as far as {tested} examples can tell: the "
            "model has learned nothing else that shows; try more clients, more rounds or a larger "
            "epsilon"
        )
    if few:
        found.append(
            f"{'up to ' if is_rounded else ''}{few:,} "
            f"{'client has' if few == 1 else 'clients have'} fewer than {FEW} examples: "
            "so little data trains a model badly"
        )
    return found


def most_frequent(counts: NDArray[np.int64]) -> float:
    """Return the share of the most frequent class, 0 to 1, from the examples of each."""
    return float(counts.max() / counts.sum())


def final_of(record: Round, most_frequent: float | None) -> dict[str, float | None]:
    """Return what a run's document says of its final model.

    Args:
        record: of the last round.
        most_frequent: the share of the test's most frequent class, where it is known.
    """
    names = ("accuracy", "loss", *FIGURES)
    return {name: getattr(record, name) for name in names} | {"most_frequent": most_frequent}
