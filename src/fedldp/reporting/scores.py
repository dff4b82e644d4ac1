"""Metrics of a classifier on labelled examples, because accuracy alone can mislead."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.statement import Statement, scores_are_private
from fedldp.core.facts import Doubt
from fedldp.core.formatting import rounded_count, with_class_name
from fedldp.core.kinds import (
    CLASS_MISSING,
    FEW_EXAMPLES,
    FEW_EXAMPLES_AT_CLIENTS,
    IMBALANCED_TEST,
    NOT_ABOVE_CHANCE,
    NOT_ABOVE_GUESSING,
    NOT_ABOVE_MEAN,
    NOT_ABOVE_MOST_FREQUENT,
    NOT_CALIBRATED,
    ONE_CLASS,
    ONE_SEED,
    PRIVATE_ROWS,
    TRAINED_ON,
)
from fedldp.data.label_range import LabelRange, centred
from fedldp.protocol.roles import Score
from fedldp.protocol.server_loop import MODEL_SCORES, Evaluation, Round
from fedldp.reporting.record import Schema
from fedldp.training.answers import TWO_SIDED, private_figures

FIGURES = ("auc", "average_precision", "balanced_accuracy", "brier", "calibration_error")
"""The metrics of a round besides accuracy and loss; see ``Evaluation``."""

CHOSEN_BY = (
    *("accuracy", "loss", *FIGURES[:-1]),
    *("f1_macro", "client_accuracy", "worst_tenth_accuracy"),
)
"""The metrics for choosing runs; not calibration, which can be good for an uninformative model."""

CHOSEN_BY_FOR_NUMBERS = ("r2", "loss")
"""The metrics for choosing runs whose labels are numbers."""

LESS_IS_BETTER = ("loss", "brier", "calibration_error", "mae", "calibration_gap")
"""The metrics of which a smaller value is better."""

FEW_TESTED = 100
"""The number of test examples below which a score says little about others."""

UNCALIBRATED = 0.1
"""The calibration error above which probabilities should not be read as frequencies."""


@dataclass(frozen=True)
class TestSet:
    """What is known of the examples on which a score was measured.

    Attributes:
        examples: how many there are.
        classes: how many classes occur among them.
        most_frequent: the share of the most frequent class, 0 to 1.
        is_private: whether they are clients' private rows.
        deviation: how far labels that are numbers are from their mean, on average.
    """

    __test__ = False  # this is no test of pytest's

    examples: int | None = None
    classes: int | None = None
    most_frequent: float | None = None
    is_private: bool = False
    deviation: float | None = None

    @classmethod
    def of(cls, counts: NDArray[np.int64], is_private: bool) -> Self:
        """Return the test set with this number of examples of each class, at least one in all."""
        classes = int(np.count_nonzero(counts))
        return cls(int(counts.sum()), classes, most_frequent(counts), is_private)

    @classmethod
    def of_run(
        cls, final: Mapping[str, Any], confusion: Sequence[Any] | None, privacy: Statement
    ) -> Self:
        """Return the test set of a run, given its final scores, confusion and statement."""
        is_private = scores_are_private(privacy.warnings)
        if confusion is None:
            return cls(most_frequent=final["most_frequent"], is_private=is_private)
        return cls.of(np.array(confusion).sum(1), is_private)

    def baseline(self, metric: str) -> float | None:
        """Return the value of a metric without any learning; None if that is not known."""
        classes = self.classes
        guesses = {
            "accuracy": self.most_frequent,
            "balanced_accuracy": 1 / classes if classes else None,
            "auc": 0.5,
            "r2": 0.0,
            "mae": self.deviation,
        }
        return guesses.get(metric)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A score with what a reader needs to judge it.

    Attributes:
        metric: the metric.
        value: its value, or the mean over seeds; None if it was not measured.
        interval: a confidence interval; None if it is not known.
        baseline: the value without any learning; None if that is not known.
        rows: "public"; or, of private rows, "covered" by an epsilon, or "uncovered".
        doubts: why the score may say less than it seems.
    """

    metric: str
    value: float | None
    interval: tuple[float, float] | None = None
    baseline: float | None = None
    rows: Literal["public", "covered", "uncovered"] = "public"
    doubts: tuple[Doubt, ...] = ()

    @property
    def is_better(self) -> bool | None:
        """Whether the value is better than its baseline; None if one of them is not known."""
        if self.value is None or self.baseline is None:
            return None
        if self.metric in LESS_IS_BETTER:
            return self.value < self.baseline
        return self.value > self.baseline

    @classmethod
    def of(
        cls,
        metric: str,
        values: Sequence[float],
        on: TestSet,
        doubts: Iterable[Doubt] = (),
        *,
        calibration_error: float | None = None,
        over_seeds: bool = True,
    ) -> Self:
        """Return a figure, with the doubts that follow from how it was measured.

        Args:
            metric: the metric.
            values: its values, one per seed; the figure is their mean.
            on: the test set.
            doubts: what is doubtful about the runs; one of each kind is kept.
            calibration_error: see ``calibration_error``.
            over_seeds: whether the figure stands for a set of seeds, and not for one run.
        """
        found = {each.kind: each for each in reversed(list(doubts))}
        more = []
        if on.is_private:
            more.append(PRIVATE_ROWS)
        if on.examples is not None and on.examples < FEW_TESTED:
            more.append(FEW_EXAMPLES(fewer_than=FEW_TESTED))
        if over_seeds and len(values) == 1:
            more.append(ONE_SEED)
        if metric == "accuracy" and is_imbalanced(on.most_frequent):
            more.append(IMBALANCED_TEST(most_frequent=on.most_frequent))
        if metric in ("loss", "brier") and (calibration_error or 0.0) > UNCALIBRATED:
            more.append(NOT_CALIBRATED(error=calibration_error))
        return cls(
            metric=metric,
            value=math.fsum(values) / len(values) if values else None,
            baseline=on.baseline(metric),
            rows="uncovered" if on.is_private else "public",
            doubts=(*reversed(found.values()), *(more if values else ())),
        )


OfClients = Callable[[Sequence[Score], NDArray[np.int64]], NDArray[np.float64]]
"""Gives the accuracy at each client from a test's scores and its confusion matrix."""


def evaluation(
    scores: Iterable[Score],
    label_range: LabelRange | None = None,
    of_clients: OfClients | None = None,
) -> tuple[Evaluation, NDArray[np.int64] | None]:
    """Return the combined scores on all pieces of a test set, and the confusion matrix.

    The matrix, and all metrics except accuracy and loss, are None if a piece has no matrix.

    Args:
        scores: the score of each piece.
        label_range: the range of labels that are numbers, which have no accuracy and no matrix.
        of_clients: see ``OfClients``; None if the accuracy at a client must not be known.
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
    if label_range is not None:
        made = of_numbers(np.concatenate(labels), np.concatenate(rows)[:, 0], label_range)
        return Evaluation(None, loss / total, made), None
    if len(tables) == len(labels) == len(rows) == len(found):
        confusion = sum(tables)
        figures = figures_of(np.concatenate(labels), np.concatenate(rows), confusion)
        named["f1_macro"] = f1_macro(confusion)
        if of_clients is not None:
            each = np.sort(of_clients(found, confusion))
            worst = each[: -(-len(each) // 10)]
            named |= {"client_accuracy": each.mean(), "worst_tenth_accuracy": worst.mean()}
            named = {name: float(value) for name, value in named.items()}
    return Evaluation(right / total, loss / total, named, **figures), confusion


def of_numbers(
    labels: NDArray[np.int64], outputs: NDArray[np.float64], label_range: LabelRange
) -> dict[str, float]:
    """Return the scores of a model for labels that are numbers.

    "r2" is the share of the labels' variance that is explained, which may be below 0. If all
    labels are equal it is 1 without any error and 0 otherwise, as in scikit-learn. "mae" is the
    mean absolute error, and "calibration_gap" how far the mean prediction is from the mean
    label, on average over 10 equal parts of the examples by prediction; both are in the labels'
    unit.

    Args:
        labels: shape (n,), n of at least 1.
        outputs: the model's outputs, shape (n,).
        label_range: the range of the labels.
    """
    said, true = outputs.clip(-1, 1), centred(labels)
    spread = float(np.square(true - true.mean()).sum())
    parts = np.array_split(np.argsort(said, kind="stable"), min(10, len(said)))
    gaps = [len(part) * abs(said[part].mean() - true[part].mean()) for part in parts]
    error = float(np.square(said - true).sum())
    return {
        "r2": 1 - error / spread if labels.min() < labels.max() else float(not error),
        "mae": float(np.abs(said - true).mean()) * label_range.half,
        "calibration_gap": float(sum(gaps) / len(said)) * label_range.half,
    }


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

    The ``FIGURES`` are defined as in ``Evaluation``. "most_frequent" is the accuracy of always
    predicting the most frequent class.

    Args:
        labels: shape (n,), n of at least 1.
        probabilities: the probability of each class, shape (n, num_classes).
        schema: the model's schema; if its counts are rounded, so are the numbers of examples, but
            not those in the confusion matrix; see ``told_matrix``.
        threshold: for two classes, the smallest probability of class 1 at which class 1 is
            predicted; with None, the more probable class is predicted. AUC, average precision and
            the Brier score do not depend on it.
    """
    count, predicted = schema.num_classes, named(probabilities, threshold)
    confusion = np.bincount(count * labels + predicted, minlength=count**2).reshape(count, count)
    figures = figures_of(labels, probabilities, confusion)
    areas = [_ranked(labels == label, probabilities[:, label]) for label in range(count)]
    classes = [
        {"class": schema.class_name(label), **each, "auc": None if area is None else area[0]}
        for label, (each, area) in enumerate(
            zip(by_class(confusion, schema.rounded), areas, strict=True)
        )
    ]
    return {
        **told_count(len(labels), schema.rounded),
        "accuracy": float(np.mean(predicted == labels)),
        "most_frequent": most_frequent(confusion.sum(1)),
        "f1_macro": f1_macro(confusion),
        **figures,
        "classes": classes,
        "confusion": confusion.tolist(),
    }


def f1_macro(confusion: NDArray[np.int64]) -> float:
    """Return the mean F1 of the classes that have examples."""
    return float(np.mean([one["f1"] for one in by_class(confusion) if one["examples"]]))


def with_labels_like(
    counts: NDArray[np.int64], confusion: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return a model's accuracy at each client, on test examples with labels like the client's.

    It is the mean recall of the classes, each weighted by its share of the client's examples.
    Classes without test examples, and clients without any others, are left out.

    Args:
        counts: how many examples of each class each client has, shape (clients, classes).
        confusion: the confusion matrix.

    Returns:
        Shape (clients with examples,).
    """
    tested = confusion.sum(1) > 0
    recalls = np.diagonal(confusion)[tested] / confusion.sum(1)[tested]
    own = counts[:, tested]
    own = own[own.any(1)]
    found: NDArray[np.float64] = own @ recalls / own.sum(1)
    return found


def by_class(confusion: NDArray[np.int64], rounded: bool = False) -> list[dict[str, Any]]:
    """Return the number of examples, precision, recall and F1 of each class.

    Precision is None for a class that was never predicted, recall and F1 for one without examples.

    Args:
        confusion: the number of examples of each class (row) predicted as each class (column).
        rounded: whether the numbers of examples are rounded up; see ``told_count``.
    """
    rows = zip(np.diagonal(confusion), confusion.sum(1), confusion.sum(0), strict=True)
    return [
        {
            "examples": rounded_count(support) if rounded else support,
            "precision": right / taken if taken else None,
            "recall": right / support if support else None,
            "f1": 2 * right / (support + taken) if support else None,
        }
        for right, support, taken in (map(int, row) for row in rows)
    ]


def told_matrix(confusion: NDArray[np.int64], rounded: bool) -> list[list[Any]]:
    """Return a confusion matrix as it is told: counts, or shares of each row to two digits.

    Args:
        confusion: the number of examples of each class (row) predicted as each class (column).
        rounded: see ``told_count``.
    """
    if not rounded:
        return confusion.tolist()  # type: ignore[no-any-return]
    shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    return np.round(shares, 2).tolist()  # type: ignore[no-any-return]


def told_count(examples: int, rounded: bool) -> dict[str, Any]:
    """Return the number of test examples as facts and documents tell it.

    Args:
        examples: the number.
        rounded: whether it is rounded up, because the examples are rows of a user's own.
    """
    return {"examples": rounded_count(examples) if rounded else examples, "rounded": rounded}


FEW = 10
"""The number of examples below which a client has too few to train on."""


def doubts(
    tested: Mapping[str, float | None] | None,
    confusion: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    schema: Schema,
    few: int = 0,
) -> list[Doubt]:
    """Return what makes a model's metrics doubtful.

    Args:
        tested: "accuracy", "auc" and "balanced_accuracy" on the test set; None if the model was not
            tested.
        confusion: the confusion matrix on the test set, if it is known.
        counts: the number of test examples of each class, shape (num_classes,); their sum is at
            least 1. See ``counts_of``.
        schema: the model's schema; if its counts are rounded, so is the number of test examples.
        few: the number of clients with fewer than ``FEW`` examples, if it is public.
    """
    found: list[Doubt] = []
    if tested is not None and schema.num_classes == 1:
        r2, tests = tested.get("r2"), int(counts.sum())
        if r2 is not None and r2 <= 16 / tests:  # four times the deviation of r2, 2 sqrt(r2/n)
            found.append(NOT_ABOVE_MEAN(r2=r2, **told_count(tests, schema.rounded)))
    elif tested is not None:
        missing = [schema.class_name(int(label)) for label in np.flatnonzero(counts == 0)]
        if missing:
            found.append(CLASS_MISSING(classes=tuple(missing[:3]), more=max(0, len(missing) - 3)))
        doubt = _doubt(tested, confusion, counts, schema.rounded)
        found += [] if doubt is None else [doubt]
    if few and (tested is None or found):  # not of a model that has learned all the same
        found.append(FEW_EXAMPLES_AT_CLIENTS(clients=few, fewer_than=FEW))
    return found


def _doubt(
    tested: Mapping[str, float | None],
    confusion: NDArray[np.int64] | None,
    counts: NDArray[np.int64],
    rounded: bool,
) -> Doubt | None:
    """If a model is not two standard deviations above guessing, return why it may be worth little.

    Accuracy decides only if neither AUC nor balanced accuracy is known. If most examples belong to
    one class, always predicting that class is right most of the time, and even a model that ranks
    the examples well may be right less often.
    """
    accuracy, auc = tested["accuracy"], tested["auc"]
    balanced = tested["balanced_accuracy"]
    assert accuracy is not None
    often, classes = most_frequent(counts), int(np.count_nonzero(counts))
    on = told_count(int(counts.sum()), rounded)
    if classes == 1:
        return ONE_CLASS
    if auc is not None and auc <= 0.5 + 2 * auc_deviation(counts):
        return NOT_ABOVE_CHANCE(auc=auc, accuracy=accuracy, most_frequent=often, **on)
    above = accuracy > often + 2 * math.sqrt(often * (1 - often) / counts.sum())
    low = NOT_ABOVE_MOST_FREQUENT(accuracy=accuracy, most_frequent=often, auc=auc, **on)
    if auc is None and (balanced is None or confusion is None):
        return None if above else low
    if balanced is None or confusion is None or _is_above(balanced, classes, confusion):
        return None if above or auc is None or is_imbalanced(often) else low
    return NOT_ABOVE_GUESSING(
        balanced_accuracy=balanced, classes=classes, auc=auc, threshold=len(counts) == 2, **on
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


def figures(
    final: Mapping[str, float | None], on: TestSet, doubts: Iterable[Doubt]
) -> list[Figure]:
    """Return the figures of one model, for each metric that is known.

    Args:
        final: its metrics by name.
        on: the test set.
        doubts: what is doubtful about them.
    """
    told = list(doubts)
    error = final.get("calibration_error")
    return [
        Figure.of(name, [value], on, told, calibration_error=error, over_seeds=False)
        for name in ("accuracy", "loss", *FIGURES, *MODEL_SCORES)
        if (value := final.get(name)) is not None
    ]


_ASKED = {
    "AUC": "auc",
    "balanced accuracy at 0.5": "balanced_accuracy",
    "balanced accuracy": "balanced_accuracy",
    "accuracy": "accuracy",
    "Brier score": "brier",
    "mean absolute error": "mae",
    "held-out accuracy": "accuracy",
}
"""The metrics among the figures that people are asked for."""


_SHARE_OF = re.compile(r"observed share of class \d+")

_OF_MODEL = ("AUC", "accuracy", "balanced accuracy", "Brier score", "R2", "mean absolute error")
"""The beginnings of the names of figures that are better on people a model was trained on."""


def answers_of(metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return private figures as JSON shows them; one that was not seen has no value."""
    return [
        {
            "question": each.name,
            "value": each.value,
            "deviation": max(each.half_width, each.below or 0.0) / TWO_SIDED,
            "interval": each.interval and list(each.interval),
            "seen": each.value is not None,
        }
        for each in private_figures(metrics)
    ]


_NUMBER = r"(-?\d+(?:\.\d+)?(?:e[-+]\d+)?)"
_BAND = re.compile(rf"observed (share(?: of class \d+)?|mean), predicted {_NUMBER} to {_NUMBER}")


@dataclass(frozen=True)
class Band:
    """What was observed of the people with predictions in a band.

    Attributes:
        low: the lowest prediction.
        high: the highest prediction.
        observed: the share or the mean; None if it was not seen.
        half_width: half of its 95 % interval.
    """

    low: float
    high: float
    observed: float | None
    half_width: float


def calibrations_of(metrics: Mapping[str, float], classes: Sequence[str]) -> dict[str, list[Band]]:
    """Return the bands of predictions that people were asked about, by what was observed.

    Args:
        metrics: a system's own metrics.
        classes: the names of the classes; see ``formatting.with_class_name``.
    """
    found: dict[str, list[Band]] = {}
    for each in private_figures(metrics):
        if matched := _BAND.fullmatch(each.name):
            what, low, high = matched.groups()
            what = with_class_name("share of class 1" if what == "share" else what, classes)
            found.setdefault(what, []).append(
                Band(float(low), float(high), each.value, each.half_width)
            )
    return found


def answers_in(rounds: Iterable[Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return all that people were asked for in a run, with the number of the round.

    Args:
        rounds: the system's own metrics of each round, from the first on.
    """
    return [
        {"round": number, **answer}
        for number, metrics in enumerate(rounds, 1)
        for answer in answers_of(metrics)
    ]


def asked_figures(metrics: Mapping[str, float], *, trained_on: bool = True) -> list[Figure]:
    """Return the figures that people were asked for; a statement covers them.

    Args:
        metrics: the system's own metrics.
        trained_on: whether these people are those the model was trained on.
    """
    # An evaluation counts class 1 of two classes, and each of more.
    of_class = [each for each in private_figures(metrics) if _SHARE_OF.fullmatch(each.name)]
    on = TestSet(classes=max(2, len(of_class)))
    return [
        Figure(
            metric=(metric := _ASKED.get(each.name, each.name)),
            value=each.value,
            interval=each.interval,
            baseline=on.baseline(metric),
            rows="covered",
            doubts=(TRAINED_ON,) if trained_on and each.name.startswith(_OF_MODEL) else (),
        )
        for each in private_figures(metrics)
    ]


def final_of(record: Round, most_frequent: float | None) -> dict[str, float | None]:
    """Return the scores of the final model for a run's document.

    Args:
        record: the record of the last round.
        most_frequent: the share of the test set's most frequent class, if it is known.
    """
    names = ("accuracy", "loss", *FIGURES)
    found = {name: getattr(record, name) for name in names} | {"most_frequent": most_frequent}
    return found | {name: record.metrics[name] for name in MODEL_SCORES if name in record.metrics}


def counts_of(labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """Return the number of examples of each class, shape (num_classes,)."""
    return np.bincount(labels if num_classes > 1 else 0 * labels, minlength=num_classes)
