"""How good a classifier is on labelled examples: more than its accuracy, which can mislead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.formatting import rounded_count
from fedldp.protocol.roles import Score
from fedldp.protocol.server_loop import Evaluation, Round
from fedldp.reporting.schema import FEW, Schema

CHOSEN_BY = ("accuracy", "loss", "auc", "average_precision", "balanced_accuracy", "brier")
"""What runs may be compared, and chosen, by. A model that says nothing can be well calibrated."""

FIGURES = (*CHOSEN_BY[2:], "calibration_error")
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
        "calibration_error": calibration_error(labels, probabilities),
    }


def balanced_accuracy(confusion: NDArray[np.int64]) -> float:
    """Return the mean recall of the classes that are there."""
    support = confusion.sum(1)
    there = support > 0
    return float(np.mean(np.diagonal(confusion)[there] / support[there]))


def calibration_error(
    labels: NDArray[np.int64], probabilities: NDArray[np.float64], bins: int = 10
) -> float:
    """Return how far probabilities are from what happens: the expected calibration error, 0 to 1.

    Examples are sorted by their probability (of class 1 where there are two, else of the class that
    is named) and cut into bins of equal size. In each, the mean probability is compared with the
    share of examples that it is right for; the differences are averaged. On a small test chance
    alone makes it larger than 0.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: of each class, shape (n, num_classes).
        bins: at most; there is one example in each at least.

    Source: C. Guo, G. Pleiss, Y. Sun, K. Weinberger, "On Calibration of Modern Neural Networks",
    ICML 2017; bins of equal size as K. Nguyen, B. O'Connor, EMNLP 2015.
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


def named(probabilities: NDArray[np.float64], threshold: float | None) -> NDArray[np.int64]:
    """Return the class of each example, shape (n,); see ``scores``."""
    if threshold is None:
        return np.asarray(probabilities.argmax(1), np.int64)
    return np.asarray(probabilities[:, 1] >= threshold, np.int64)


def scores(
    labels: NDArray[np.int64],
    probabilities: NDArray[np.float64],
    schema: Schema,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return a model's figures on a test, JSON-ready.

    The ``FIGURES`` are those of ``Evaluation``. Precision is 0 where a class was never predicted.
    "most_frequent" is what always naming the most frequent class would give.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: of each class, shape (n, num_classes).
        schema: of the model.
        threshold: of two classes, the probability from which class 1 is named; None: the more
            probable class is. AUC, average precision and the Brier score do not depend on it.
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


def doubts(
    tested: Mapping[str, float | None] | None,
    confusion: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    schema: Schema,
) -> list[str]:
    """Return what makes a model's figures doubtful, in words.

    Args:
        tested: "accuracy", "auc" and "balanced_accuracy" on the test; None where it was not tested
            so.
        confusion: of that test, where it is known.
        counts: the test's examples of each class, shape (num_classes,), one example at least.
        schema: of the model; where its counts are rounded, so is what is told of the test's.
    """
    examples = int(counts.sum())
    told = f"at most {rounded_count(examples):,}" if schema.rounded else f"{examples:,}"
    found = []
    if tested is not None:
        doubt = _doubt(tested, confusion, counts, f"as far as {told} examples can tell")
        found += [*_untold(counts, schema), *([] if doubt is None else [doubt])]
    few = schema.few
    if few:
        found.append(
            f"{'up to ' if schema.rounded else ''}{few:,} "
            f"{'client has' if few == 1 else 'clients have'} fewer than {FEW} examples: "
            "so little data trains a model badly"
        )
    return found


_REMEDY = "try more clients, more rounds or a larger epsilon"


def _untold(counts: NDArray[np.int64], schema: Schema) -> list[str]:
    """Return which figures a test cannot give, for want of examples of a class."""
    missing = [schema.class_name(int(label)) for label in np.flatnonzero(counts == 0)]
    if not missing:
        return []
    named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return [
        f"the test has no example of class {named}: AUC and average precision are not defined; "
        "test on examples of every class"
    ]


def _doubt(
    tested: Mapping[str, float | None],
    confusion: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    as_far: str,
) -> str | None:
    """Return why a model may be worth little, by two deviations of what guessing gives.

    Accuracy decides only where neither AUC nor balanced accuracy is known: where most examples are
    of one class, naming that class is right most of the time, and a model that ranks the examples
    well may be right less often.
    """
    accuracy, auc = tested["accuracy"], tested["auc"]
    balanced = tested["balanced_accuracy"]
    assert accuracy is not None
    often, classes = most_frequent(counts), int(np.count_nonzero(counts))
    always = f"the {100 * often:.2f} % of always naming the most frequent class"
    if classes == 1:
        return "the test has one class only: nothing there shows whether the model learned anything"
    if auc is not None and auc <= 0.5 + 2 * auc_deviation(counts):
        return (
            f"AUC {auc:.4f} is not above the 0.5 of a random order, {as_far}: the model has "
            f"learned nothing that shows, although its accuracy is {100 * accuracy:.2f} %, beside "
            f"{always}; {_REMEDY}"
        )
    above = accuracy > often + 2 * math.sqrt(often * (1 - often) / counts.sum())
    low = f"accuracy {100 * accuracy:.2f} % is not above {always}, {as_far}"
    if auc is None and (balanced is None or confusion is None):
        return None if above else f"{low}: the model has learned nothing that shows; {_REMEDY}"
    if balanced is None or confusion is None or _is_above(balanced, classes, confusion):
        if above or auc is None or is_imbalanced(often):
            return None
        return f"{low}, although the AUC of {auc:.4f} shows that the model tells classes apart"
    level = (
        f"balanced accuracy {100 * balanced:.2f} % is not above the {100 / classes:.2f} % of "
        f"guessing, {as_far}"
    )
    if auc is None:
        return f"{level}: the model has learned nothing that shows; {_REMEDY}"
    threshold = ", or move the threshold (fedldp evaluate --threshold)" if len(counts) == 2 else ""
    return (
        f"{level}, although the AUC of {auc:.4f} shows that the model tells classes apart: its "
        f"answers are hardly better than always the same one; give rare classes more weight "
        f"(class_weights){threshold}"
    )


def auc_deviation(counts: NDArray[np.int64]) -> float:
    """Return the standard deviation of the AUC of a score that says nothing, at most.

    Of one class against all others it is sqrt((n + 1)/(12 n_1 n_0)), less where scores are equal;
    of a mean over classes at most the mean of theirs, however they depend on each other.

    Args:
        counts: examples of each class, each at least 1.

    Source: Mann, Whitney 1947.
    """
    total = counts.sum()
    own = counts[list(_scored(len(counts)))].astype(float)
    return float(np.mean(np.sqrt((total + 1) / (12 * own * (total - own)))))


def _is_above(balanced: float, classes: int, confusion: NDArray[np.int64]) -> bool:
    """Return whether a balanced accuracy is above that of guessing."""
    return balanced > 1 / classes + 2 * _balanced_deviation(confusion)


def _balanced_deviation(confusion: NDArray[np.int64]) -> float:
    """Return the standard deviation of the balanced accuracy of a guess with these frequencies.

    A class that is guessed with probability q is met in a share of its n examples whose variance is
    q (1 - q)/n; of one that is always or never guessed there is none.
    """
    support, guessed = confusion.sum(1), confusion.sum(0) / confusion.sum()
    there = support > 0
    variance = (guessed * (1 - guessed))[there] / support[there]
    return float(np.sqrt(variance.sum()) / there.sum())


IMBALANCED = 0.6
"""Share of a test's most frequent class above which accuracy says little."""


def is_imbalanced(most_frequent: float | None) -> bool:
    """Return whether AUC and balanced accuracy come before accuracy; not where it is not known."""
    return most_frequent is not None and most_frequent > IMBALANCED


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
