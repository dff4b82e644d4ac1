"""Metrics of a classifier on labelled examples, because accuracy alone can mislead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.formatting import rounded_count
from fedldp.protocol.roles import Score
from fedldp.protocol.server_loop import Evaluation, Round
from fedldp.reporting.record import Schema

CHOSEN_BY = ("accuracy", "loss", "auc", "average_precision", "balanced_accuracy", "brier")
"""The metrics for choosing runs; not calibration, which can be good for an uninformative model."""

FIGURES = (*CHOSEN_BY[2:], "calibration_error")
"""The metrics of a round besides accuracy and loss; see ``Evaluation``."""


def evaluation(scores: Iterable[Score]) -> tuple[Evaluation, NDArray[np.int64] | None]:
    """Return the combined scores on all pieces of a test set, and the confusion matrix.

    The matrix, and all metrics except accuracy and loss, are None if a piece has no matrix.
    """
    found = list(scores)
    right, loss, total = 0, 0.0, 0
    for score in found:  # from Python 3.12 on, sum() of floats rounds differently
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
    """Return the ``FIGURES`` of a model on a test set; see ``Evaluation``.

    The values equal scikit-learn's, which takes half a second to import; a unit test compares them.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: the probability of each class, shape (n, num_classes).
        confusion: the number of examples of each class (row) predicted as each class (column).
    """
    ranked = [_ranked(labels == k, probabilities[:, k]) for k in _scored(probabilities.shape[1])]
    known = [each for each in ranked if each is not None]
    whole = len(known) == len(ranked)
    misses = np.square(probabilities).sum(1)
    misses += 1 - 2 * probabilities[np.arange(len(labels)), labels]
    scale = 2 if probabilities.shape[1] == 2 else 1  # with two classes, both have the same error
    return {
        "auc": float(np.mean([area for area, _ in known])) if whole else None,
        "average_precision": float(np.mean([area for _, area in known])) if whole else None,
        "balanced_accuracy": balanced_accuracy(confusion),
        "brier": float(np.mean(misses)) / scale,
        "calibration_error": calibration_error(labels, probabilities),
    }


def balanced_accuracy(confusion: NDArray[np.int64]) -> float:
    """Return the mean recall over the classes that occur."""
    support = confusion.sum(1)
    there = support > 0
    return float(np.mean(np.diagonal(confusion)[there] / support[there]))


def calibration_error(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64], bins: int = 10
) -> float:
    """Return how far probabilities are from outcomes: the expected calibration error, 0 to 1.

    Examples are sorted by a probability (of class 1 if there are two classes, else of the predicted
    class) and divided into bins of equal size. In each bin, the mean probability is compared with
    the share of examples that belong to that class; the differences are averaged. On a small test
    set, chance alone makes the error larger than 0.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: the probability of each class, shape (n, num_classes).
        bins: the largest number of bins; each has at least one example.

    Source: C. Guo, G. Pleiss, Y. Sun, K. Weinberger, "On Calibration of Modern Neural Networks",
    ICML 2017; bins of equal size as in K. Nguyen, B. O'Connor, EMNLP 2015.
    """
    if probabilities.shape[1] == 2:
        said, right = probabilities[:, 1], labels == 1
    else:
        said, right = probabilities.max(1), probabilities.argmax(1) == labels
    order = np.argsort(said, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    gaps = [len(part) * abs(said[part].mean() - right[part].mean()) for part in parts]
    return float(sum(gaps) / len(order))


def _scored(num_classes: int) -> range:
    """Return the classes that are each scored against all others; only class 1 if there are two."""
    return range(1, 2) if num_classes == 2 else range(num_classes)


def _ranked(positive: NDArray[np.bool_], score: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the area under the ROC curve, and the average precision, for a class's scores.

    Equal scores form one step, so the order of the examples does not matter.

    Returns:
        None if all examples or no examples belong to the class.
    """
    count = int(positive.sum())
    if count in (0, len(positive)):
        return None
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)
    hits = np.cumsum(positive[order])[ends]
    misses = 1 + ends - hits
    above = hits + np.append(0, hits[:-1])  # twice each step's mean height, which is an integer
    area = int((np.diff(misses, prepend=0) * above).sum()) / (2 * count * (len(order) - count))
    precision = hits / (hits + misses)
    return area, float((np.diff(hits, prepend=0) * precision).sum() / count)


def named(probabilities: NDArray[np.float64], threshold: float | None) -> NDArray[np.int64]:
    """Return the predicted class of each example, shape (n,); see ``scores``."""
    if threshold is None:
        return np.asarray(probabilities.argmax(1), np.int64)
    return np.asarray(probabilities[:, 1] >= threshold, np.int64)


def scores(
    labels: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    schema: Schema,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return a model's metrics on a test set, JSON-ready.

    The ``FIGURES`` are defined as in ``Evaluation``. Precision is 0 where a class was never
    predicted. "most_frequent" is the accuracy of always predicting the most frequent class.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: the probability of each class, shape (n, num_classes).
        schema: the model's schema.
        threshold: for two classes, the smallest probability of class 1 at which class 1 is
            predicted; with None, the more probable class is predicted. AUC, average precision and
            the Brier score do not depend on it.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    places = np.arange(schema.num_classes)
    predicted = named(probabilities, threshold)
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
        "calibration_error": figures["calibration_error"],
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


FEW = 10
"""The number of examples below which a client has too few to train on."""


def doubts(
    tested: Mapping[str, float | None] | None,
    confusion: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    schema: Schema,
    few: int = 0,
) -> list[str]:
    """Return what makes a model's metrics doubtful, in words.

    Args:
        tested: "accuracy", "auc" and "balanced_accuracy" on the test set; None if the model was not
            tested.
        confusion: the confusion matrix on the test set, if it is known.
        counts: the number of test examples of each class, shape (num_classes,); their sum is at
            least 1.
        schema: the model's schema; if its counts are rounded, the text also rounds the number of
            test examples.
        few: the number of clients with fewer than ``FEW`` examples, if it is public.
    """
    examples = int(counts.sum())
    told = f"at most {rounded_count(examples):,}" if schema.rounded else f"{examples:,}"
    found = []
    if tested is not None:
        doubt = _doubt(tested, confusion, counts, f"as far as {told} examples can tell")
        found += [*_untold(counts, schema), *([] if doubt is None else [doubt])]
    if few:
        found.append(
            f"{few:,} {'client has' if few == 1 else 'clients have'} fewer than {FEW} examples: "
            "too few to train a model well"
        )
    return found


_REMEDY = "try more clients, more rounds or a larger epsilon"


def _untold(counts: NDArray[np.int64], schema: Schema) -> list[str]:
    """Return which metrics are not defined because the test set lacks examples of a class."""
    missing = [schema.class_name(int(label)) for label in np.flatnonzero(counts == 0)]
    if not missing:
        return []
    named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return [
        f"the test set has no example of class {named}: AUC and average precision are not "
        "defined; test on examples of every class"
    ]


def _doubt(
    tested: Mapping[str, float | None],
    confusion: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    as_far: str,
) -> str | None:
    """If a model is not two standard deviations above guessing, return why it may be worth little.

    Accuracy decides only if neither AUC nor balanced accuracy is known. If most examples belong to
    one class, always predicting that class is right most of the time, and even a model that ranks
    the examples well may be right less often.
    """
    accuracy, auc = tested["accuracy"], tested["auc"]
    balanced = tested["balanced_accuracy"]
    assert accuracy is not None
    often, classes = most_frequent(counts), int(np.count_nonzero(counts))
    always = f"the {100 * often:.2f} % of always predicting the most frequent class"
    if classes == 1:
        return (
            "the test set has only one class, so it cannot show whether the model learned anything"
        )
    if auc is not None and auc <= 0.5 + 2 * auc_deviation(counts):
        return (
            f"AUC {auc:.4f} is not above the 0.5 of a random order, {as_far}: there is no sign "
            f"that the model has learned anything, although its accuracy is {100 * accuracy:.2f} "
            f"%, compared with {always}; {_REMEDY}"
        )
    above = accuracy > often + 2 * math.sqrt(often * (1 - often) / counts.sum())
    low = f"accuracy {100 * accuracy:.2f} % is not above {always}, {as_far}"
    if auc is None and (balanced is None or confusion is None):
        return (
            None
            if above
            else f"{low}: there is no sign that the model has learned anything; {_REMEDY}"
        )
    if balanced is None or confusion is None or _is_above(balanced, classes, confusion):
        if above or auc is None or is_imbalanced(often):
            return None
        return f"{low}, although the AUC of {auc:.4f} shows that the model tells classes apart"
    level = (
        f"balanced accuracy {100 * balanced:.2f} % is not above the {100 / classes:.2f} % of "
        f"guessing, {as_far}"
    )
    if auc is None:
        return f"{level}: there is no sign that the model has learned anything; {_REMEDY}"
    threshold = ", or move the threshold (fedldp evaluate --threshold)" if len(counts) == 2 else ""
    return (
        f"{level}, although the AUC of {auc:.4f} shows that the model tells classes apart: its "
        "predictions are hardly better than always predicting the same class; give rare classes "
        f"more weight (class_weights){threshold}"
    )


def auc_deviation(counts: NDArray[np.int64]) -> float:
    """Return an upper bound on the standard deviation of an uninformative score's AUC.

    For one class against all others the deviation is sqrt((n + 1)/(12 n_1 n_0)), or less if scores
    are tied. For a mean over classes it is at most the mean of the classes' deviations, however
    their AUCs depend on each other.

    Args:
        counts: the number of examples of each class, each at least 1.

    Source: Mann, Whitney 1947.
    """
    total = counts.sum()
    own = counts[list(_scored(len(counts)))].astype(float)
    return float(np.mean(np.sqrt((total + 1) / (12 * own * (total - own)))))


def _is_above(balanced: float, classes: int, confusion: NDArray[np.int64]) -> bool:
    """Return whether a balanced accuracy is more than two standard deviations above guessing."""
    return balanced > 1 / classes + 2 * _balanced_deviation(confusion)


def _balanced_deviation(confusion: NDArray[np.int64]) -> float:
    """Return balanced accuracy's standard deviation if classes are guessed as often as in a matrix.

    If a class is guessed with probability q, the share of its n examples that are guessed right has
    variance q (1 - q)/n; a class that is always or never guessed contributes none.
    """
    support, guessed = confusion.sum(1), confusion.sum(0) / confusion.sum()
    there = support > 0
    variance = (guessed * (1 - guessed))[there] / support[there]
    return float(np.sqrt(variance.sum()) / there.sum())


IMBALANCED = 0.6
"""The share of a test set's most frequent class above which accuracy says little."""


def is_imbalanced(most_frequent: float | None) -> bool:
    """Return whether AUC and balanced accuracy are shown before accuracy; False for None."""
    return most_frequent is not None and most_frequent > IMBALANCED


def most_frequent(counts: NDArray[np.int64]) -> float:
    """Return the share of the most frequent class, 0 to 1, given the number of examples of each."""
    return float(counts.max() / counts.sum())


def final_of(record: Round, most_frequent: float | None) -> dict[str, float | None]:
    """Return the scores of the final model for a run's document.

    Args:
        record: the record of the last round.
        most_frequent: the share of the test set's most frequent class, if it is known.
    """
    names = ("accuracy", "loss", *FIGURES)
    return {name: getattr(record, name) for name in names} | {"most_frequent": most_frequent}
