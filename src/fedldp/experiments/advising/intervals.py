"""Intervals of scores, and of differences between scores, at 95 %.

Two things vary: who is in the test set, and a run's noise. A bootstrap over people measures the
first, and the spread over seeds the second. The same resamples score every run, so that a
difference between two runs on the same people is paired.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data import Dataset, Examples, read_table
from fedldp.data.columns import identity, of_each
from fedldp.data.label_range import LabelRange
from fedldp.data.people import as_numbers, count_of
from fedldp.experiments.advising.plan import AdviceRequest
from fedldp.experiments.runs import Row
from fedldp.experiments.table import half_width
from fedldp.reporting.scores import TestSet

DRAWS = 200
"""The number of resamples of the people in the test set."""

LEAST = 10
"""With fewer people, or fewer of a class, a score has no interval: resamples of so few differ too
little."""

MOST_GROUPS = 20
"""The largest number of values of a column by which people are grouped."""

BINS = 10
"""The bins of a calibration error or gap, each with as many rows; see ``reporting.scores``."""

EVERYBODY = ("", "")
"""The part of the test set that is all of it."""

_FAR = 1.959964
"""The 97.5 % quantile of a standard normal variable."""

Part = tuple[str, str]
"""A part of the test set: a column, and the value that its rows have there, as a model sees it."""

Resamples = NDArray[np.float64]
"""A score on the rows as they are, and on each resample; nan where it is not defined."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """A score, or a difference of scores.

    Attributes:
        value: the mean over seeds.
        resampled: the same on each resample of the people, shape (DRAWS,).
        of_seeds: half the width of the mean's interval over seeds; None for fewer than two seeds,
            whose spread is unknown.
    """

    value: float
    resampled: Resamples
    of_seeds: float | None

    @classmethod
    def of(cls, values: Sequence[float], resampled: Sequence[Resamples]) -> Estimate | None:
        """Return the mean over the seeds of one contestant; None if there is none.

        Args:
            values: one for each seed.
            resampled: the same on each resample, for each seed.
        """
        if not values or len(resampled) != len(values):
            return None
        mean = math.fsum(values) / len(values)
        return cls(mean, np.mean(resampled, axis=0), half_width(values))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval at 95 %; None if a part of what varies is not known.

        Source: G. Y. Zou, A. Donner, "Construction of confidence limits about effect measures: A
        general approach", Statistics in Medicine 27 (2008): half-widths add in squares.
        """
        if self.of_seeds is None or np.isnan(self.resampled).any():
            return None
        half = math.hypot(_FAR * float(np.std(self.resampled)), self.of_seeds)
        return self.value - half, self.value + half

    @property
    def sign(self) -> int | None:
        """1 if the whole interval is above 0, -1 if it is below; None if it is neither."""
        low, high = self.interval or (-1.0, 1.0)
        return 1 if low > 0 else -1 if high < 0 else None


def weighted(terms: Iterable[tuple[float, Estimate | None]], start: float = 0.0) -> Estimate | None:
    """Return a start plus a weighted sum of estimates; None if one of them is not known."""
    found = list(terms)
    known = [(factor, each) for factor, each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    halves = [each.of_seeds and factor * each.of_seeds for factor, each in known]
    certain = [half for half in halves if half is not None]
    return Estimate(
        start + math.fsum(factor * each.value for factor, each in known),
        start + np.sum([factor * each.resampled for factor, each in known], axis=0),
        math.hypot(*certain) if len(certain) == len(halves) else None,
    )


class HeldPeople:
    """The people of a test set, resampled, and the parts of it that are scored by themselves.

    Args:
        test: the test set.
        num_classes: the number of classes.
        parts: which rows are in each part, shape (n,).
        label_range: the range of labels that are numbers.
        sites: the sites' names, in order; a part ("", NAME) has a site's own people.
    """

    def __init__(
        self,
        test: Examples,
        num_classes: int,
        parts: Mapping[Part, NDArray[np.bool_]],
        label_range: LabelRange | None = None,
        sites: Sequence[str] = (),
    ) -> None:
        self.labels, self.num_classes, self.sites = test.labels, num_classes, sites
        self._range = label_range
        self.parts = {EVERYBODY: np.ones(len(test), np.bool_), **parts}
        rows = np.arange(len(test)) if test.people is None else test.people
        self._people = as_numbers(rows)
        self._known: dict[tuple[str, Part], Mapping[str, Resamples]] = {}

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        """How often each row is in each resample; the first has every row once."""
        count = int(self._people.max()) + 1
        drawn = numbered_generator(0, 5).multinomial(count, np.full(count, 1 / count), DRAWS)
        return np.concatenate([np.ones((1, count)), drawn])[:, self._people]

    def test_set(self, part: Part, is_private: bool) -> TestSet:
        """Return what is known of a part, which has rows.

        Args:
            part: the part.
            is_private: whether they are clients' private rows.
        """
        labels = self.labels[self.parts[part]]
        if self._range is None:
            return TestSet.of(np.bincount(labels, minlength=self.num_classes), is_private)
        numbers = self._range.numbers(labels)
        deviation = float(np.abs(numbers - numbers.mean()).mean())
        return TestSet(examples=len(labels), is_private=is_private, deviation=deviation)

    def scores(self, row: Row, part: Part = EVERYBODY) -> Mapping[str, Resamples] | None:
        """Return the scores of a run's predictions; None if the run did not keep them."""
        if "predicted" not in row:
            return None
        key = (row["digest"], part)
        if key not in self._known:
            inside = self.parts[part]
            labels, whose = self.labels[inside], self._people[inside]
            said = np.array(row["predicted"], np.float64).T[inside]
            of_class = [count_of(whose)]
            if self._range is None:
                of_class = [count_of(whose[labels == k]) for k in range(self.num_classes)]
            weights = self._weights[:, inside]
            if min(of_class) < LEAST:  # the score counts, but its resamples say too little
                weights = weights[:1]
            if self._range is None:
                shares = np.concatenate([1 - said.sum(1, keepdims=True), said], axis=1)
                found = resampled(labels, shares, weights)
            else:
                found = resampled_numbers(self._range.numbers(labels), said[:, 0], weights)
            self._known[key] = {
                metric: np.append(each, np.full(DRAWS + 1 - len(each), np.nan))
                for metric, each in found.items()
            }
        return self._known[key]


def resampled(
    labels: NDArray[np.int64], shares: NDArray[np.float64], weights: NDArray[np.float64]
) -> dict[str, Resamples]:
    """Return scores on weighted rows, for each row of weights; nan where they are not defined.

    With weights of 1 they equal those of ``reporting.scores``. The bins of the calibration error
    have as many rows, whatever their weights are.

    Args:
        labels: shape (n,).
        shares: the probability of each class, shape (n, num_classes).
        weights: shape (m, n).
    """
    classes = range(shares.shape[1])
    there = np.stack([labels == k for k in classes], 1)
    right = shares.argmax(1) == labels
    scored = classes[1:] if len(classes) == 2 else classes
    said, true = (shares[:, 1], there[:, 1]) if len(classes) == 2 else (shares.max(1), right)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = weights.sum(1)
        recalls = weights @ (there * right[:, None]) / (weights @ there)
        return {
            "auc": np.mean([_areas(there[:, k], shares[:, k], weights) for k in scored], axis=0),
            "accuracy": weights @ right / total,
            "balanced_accuracy": recalls[:, there.any(0)].mean(1),
            "calibration_error": _gaps(said, true, weights),
        }


def resampled_numbers(
    true: NDArray[np.float64], said: NDArray[np.float64], weights: NDArray[np.float64]
) -> dict[str, Resamples]:
    """Return the same for labels that are numbers.

    Args:
        true: the numbers, shape (n,).
        said: the predicted numbers, shape (n,).
        weights: shape (m, n).
    """
    around = true - true[0]  # exactly 0 where all are equal
    with np.errstate(divide="ignore", invalid="ignore"):
        total = weights.sum(1)
        spread = weights @ around**2 - (weights @ around) ** 2 / total
        explained = 1 - weights @ (said - true) ** 2 / spread
        return {
            "r2": np.where(spread > 0, explained, np.nan),
            "mae": weights @ np.abs(said - true) / total,
            "calibration_gap": _gaps(said, true, weights),
        }


def _gaps(said: NDArray[np.float64], true: NDArray[Any], weights: NDArray[np.float64]) -> Resamples:
    """Return how far predictions are from the truth, in the mean over bins of equal size."""
    binned = np.zeros((len(said), BINS))
    for number, rows in enumerate(np.array_split(np.argsort(said, kind="stable"), BINS)):
        binned[rows, number] = said[rows] - true[rows]
    gaps: Resamples = np.abs(weights @ binned).sum(1) / weights.sum(1)
    return gaps


def _areas(
    positive: NDArray[np.bool_], score: NDArray[np.float64], weights: NDArray[np.float64]
) -> Resamples:
    """Return the area under the ROC curve for each row of weights; equal scores form one step."""
    order = np.argsort(score, kind="stable")
    ranked, hit, heavy = score[order], positive[order], weights[:, order]
    starts = np.flatnonzero(np.append(True, np.diff(ranked) > 0)[: len(ranked)])
    hits = np.add.reduceat(heavy * hit, starts, axis=1)
    misses = np.add.reduceat(heavy * ~hit, starts, axis=1)
    below = np.cumsum(misses, 1) - misses / 2
    area: Resamples = (hits * below).sum(1) / (hits.sum(1) * misses.sum(1))
    return area


def held_people(request: AdviceRequest, data: Dataset) -> HeldPeople:
    """Return the test set of a request, with a part for each site and each group.

    Data given in Python have no table in which the sites and groups of test rows could be found.

    Raises:
        ConfigError: a column by which people are grouped is missing, or has too many values.
    """
    config, rows = request.config, data.test.rows
    parts: dict[Part, NDArray[np.bool_]] = {}
    file, client = config.test_file or config.dataset, config.client_column
    if client is None:
        if request.by_columns:
            raise ConfigError("by_columns: groups are read from a table; give one by its path")
        sites = [f"site {number + 1}" for number in range(len(data.clients or ()))]
        return HeldPeople(data.test, data.num_classes, parts, data.label_range, sites)
    table = read_table(Path(file).expanduser())
    whole = read_table(Path(config.dataset).expanduser()).texts(client)
    sites = sorted({identity(text) or "" for text in whole})  # as clients are numbered
    if client in table.names:
        here = np.array(of_each(table.texts(client), identity))[rows]
        parts |= {("", name): here == name for name in sites}
    for name in request.by_columns:
        if name not in table.names:
            raise ConfigError(
                f"by_columns: {file} has no column {name!r}; its columns are {table.listed}"
            )
        values = np.array(of_each(table.texts(name), config.columns.group_of(name)))[rows]
        known = sorted(set(values.tolist()))
        if len(known) > MOST_GROUPS:
            raise ConfigError(
                f"by_columns: {file}, column {name!r} has {len(known)} values; give a column with "
                f"at most {MOST_GROUPS}, such as bands of age"
            )
        parts |= {(name, each): values == each for each in known}
    return HeldPeople(data.test, data.num_classes, parts, data.label_range, sites)
