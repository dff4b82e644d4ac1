"""How good a classifier is on labelled examples: more than its accuracy, which can mislead."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.formatting import rounded_count
from fedldp.reporting.schema import FEW, Schema


def scores(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64], schema: Schema
) -> dict[str, Any]:
    """Return a model's figures on a test, JSON-ready.

    "auc" is the area under the ROC curve: of two classes, that of the second; of more, the mean of
    each class against all others, and None unless each of them is there and so is another.
    Precision is 0 where a class was never predicted. "balanced_accuracy" is the mean recall of the
    classes that are there, and "most_frequent" what always naming the most frequent one would give.

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
    areas = [_area(labels == label, probabilities[:, label]) for label in places]
    there = support > 0
    known = [area for area in areas if area is not None]
    mean_area = areas[1] if len(areas) == 2 else float(np.mean(known)) if known else None
    return {
        "examples": len(labels),
        "accuracy": float(np.mean(predicted == labels)),
        "balanced_accuracy": float(np.mean(recall[there])),
        "most_frequent": float(support.max() / len(labels)),
        "f1_macro": float(np.mean(f1[there])),
        "auc": mean_area if len(known) == len(areas) else None,
        "classes": [
            {
                "class": schema.class_name(label),
                "examples": int(support[label]),
                "precision": float(precision[label]),
                "recall": float(recall[label]) if there[label] else None,
                "f1": float(f1[label]) if there[label] else None,
                "auc": areas[label],
            }
            for label in range(schema.num_classes)
        ],
        "confusion": confusion_matrix(labels, predicted, labels=places).tolist(),
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


def most_frequent(labels: NDArray[np.int64]) -> float:
    """Return the share of the most frequent label, 0 to 1."""
    return float(np.bincount(labels).max() / len(labels))


def _area(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float | None:
    from sklearn.metrics import roc_auc_score

    if positive.all() or not positive.any():
        return None
    return float(roc_auc_score(positive, score))
