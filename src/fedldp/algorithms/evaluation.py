"""A private evaluation of a model, for classes or numbers: what two looks ask, and what they tell.

    look       people by the model's score, over a wide public grid; no labels
    question   people by label and band of the score, between quantiles of the look

With three or more classes, each has a score against the rest, and a table of its own in both.

Bands follow the scores of the model that is evaluated, so that few pairs of people are tied. No
figure rests on a shape of the scores' distribution. AUC and the other figures are those of people,
each with weight 1.

Source: G. Cormode, I. Markov, "Federated Calibration and Evaluation of Binary Classifiers", VLDB
2023, for histograms of scores by label. The two looks, the number of bands and the rules for what
is seen are ours; ``benchmarks/evaluation_coverage.py`` measures the coverage of the intervals.

Of labels that are numbers, the looks count

    look       people by the predicted number, and by the label
    question   people by label and band of the prediction, and by error; and, in a range that
               leaves out the longest tails, by the squared distance of the label from a middle,
               and by how much nearer the prediction is than the middle

A person whose number lies between two cells is divided between them. Means over cells are then
exact, so that binning adds nothing to an interval; the bands are only what means are told by.

The intervals are wider than need be where people hardly differ: numbers from 0 to 1 are taken to
vary as much as a share. One person can change a variance by the square of the range. So R2 is told
of numbers that are clipped to a range with nearly all labels, found in the look, and is named by
it: in the whole range, few skewed labels would make the noise larger than the variance. The middle
is the mean label as the look tells it, so no table has to tell the mean. What the prediction gains
over it is smaller than a squared error, and so is its noise, the more so the less a model explains.
Still, most of the interval is noise, which only more people or a larger budget make smaller.

The error that half of the people exceed, and R2 by group, are not told: bands of the error would
have to be found first, at a third look's price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedldp.core.deferred import special
from fedldp.data.label_range import LabelRange
from fedldp.training import answers, questions
from fedldp.training.answers import SEEN, Answer, Floats, combined, is_seen, mean_of
from fedldp.training.questions import EDGES, Table, compared

LOOK_SHARE = Fraction(1, 5)
"""The look's share of an evaluation's budget."""

_TAIL = (8.0, 12.0, 16.0, 64.0)
GRID = (*(-each for each in reversed(_TAIL[1:])), *np.arange(-9, 6.01, 0.25).tolist(), *_TAIL)
"""The public edges of the look, in log odds of class 1."""

FEWEST_BANDS, MOST_BANDS = 8, 40
"""The numbers of bands between quantiles; the edge at the log odds 0 adds one band."""

_NEAR = 0.02
"""Quantiles as near to the edge 0 are left out: no band would be left between them."""

_LEAST_MASS = 0.01
"""The share of people in a band is at least about this, whatever noise makes of the look."""

_FINE = 8
"""The parts into which a cell of the grid is divided, with equal numbers of people in each."""

_ENDS = np.array([1.5 * GRID[0], *GRID, 1.5 * GRID[-1]])


def distribution(counts: Floats) -> Floats:
    """Return the share of people below each end of cells, from 0 to 1, never falling.

    Args:
        counts: the noisy number of people in each cell, shape (cells,).
    """
    total = np.cumsum(counts) / max(counts.sum(), 1.0)
    up = np.maximum.accumulate(total)
    down = np.minimum.accumulate(total[::-1])[::-1]
    rising = np.concatenate([[0.0], ((up + down) / 2).clip(0, 1)])
    rising[-1] = 1.0
    return np.asarray(np.maximum.accumulate(rising), np.float64)


def quantiles(levels: Floats, counts: Floats, ends: Floats) -> Floats:
    """Return scores with these shares of people below them.

    Args:
        levels: the shares, shape (n,).
        counts: the noisy number of people in each cell, shape (cells,).
        ends: the ends of the cells, ascending, shape (cells + 1,).
    """
    return np.interp(levels, distribution(counts) + 1e-9 * np.arange(ends.size), ends)


def as_told(edges: Sequence[Floats]) -> Floats:
    """Return the edges of several scores' bands as clients are told them.

    Shorter rows are filled with their last edge, which clients count once.
    """
    most = max(each.size for each in edges)
    return np.stack([np.append(each, each[-1:].repeat(most - each.size)) for each in edges])


@dataclass(frozen=True)
class Look:
    """The first look: the noisy number of people in each cell of ``GRID``.

    Attributes:
        counts: without the cell for NaN, shape (len(GRID) + 1,).
        noise: the standard deviation of each count's noise.
    """

    counts: Floats
    noise: float

    def edges(self, bands: int, share: float) -> Floats:
        """Return the edges of the question's bands as clients are told them, and 0 among them.

        Args:
            bands: the number of bands between quantiles.
            share: the share of class 1, as far as it is known; if it is rare, bands are finer among
                the higher scores, where its people are.
        """
        power = 1.5 if share < 0.3 else 1.0
        found = quantiles(1 - (1 - np.arange(1, bands) / bands) ** power, self.counts, _ENDS)
        told = np.unique(np.append(found[abs(found) > _NEAR], 0.0).astype(np.float32))
        return told.astype(np.float64)

    def fine(self) -> tuple[Floats, Floats]:
        """Return scores, as log odds, and the share of people at each."""
        widths = np.diff(_ENDS)
        inside = (np.arange(_FINE) + 0.5) / _FINE
        scores = (_ENDS[:-1, None] + widths[:, None] * inside).ravel()
        return scores, np.repeat(np.diff(distribution(self.counts)) / _FINE, _FINE)

    def mean_prediction(self) -> Answer:
        """Return the mean predicted probability of class 1."""
        middles = special.expit(np.convolve(_ENDS, [0.5, 0.5], "valid"))
        seen = is_seen(self.counts, self.noise)
        return Answer.of("mean prediction", *mean_of(middles, self.counts, self.noise), seen=seen)


def bands_for(people: float, share: float, noise: float) -> int:
    """Return how many bands make ties cost little beside the noise and the sampling error.

    Args:
        people: how many people are asked.
        share: the share of class 1, as far as it is known.
        noise: the standard deviation of a count's noise, in people.
    """
    rarer = people * min(share, 1 - share)
    found = (4.3 * rarer / noise) ** 0.4
    if rarer > 9 * noise:
        found = max(found, math.sqrt(5 * math.sqrt(rarer)))
    return int(min(max(found, FEWEST_BANDS), MOST_BANDS))


@dataclass(frozen=True)
class OfClasses:
    """The evaluation of a model for classes.

    Attributes:
        classes: the number of classes, at least 2.
    """

    classes: int

    @property
    def labels(self) -> range:
        """The classes that are each evaluated against the rest; of two classes, class 1 alone."""
        return range(1, 2) if self.classes == 2 else range(self.classes)

    @property
    def look(self) -> tuple[Table, ...]:
        """The tables of the first look."""
        return tuple(questions.scores(GRID, label) for label in self.labels)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the question."""
        by_band = [_by_label(row, label) for row, label in enumerate(self.labels)]
        if self.classes == 2:
            return tuple(by_band)
        return (questions.crossed(questions.labels(self.classes), questions.right()), *by_band)

    @property
    def of_client(self) -> tuple[str, ...]:
        """The names of the figures that are also told of each client, if its noise is its own."""
        shares = (f"observed share of class {label}" for label in self.labels)
        return ("AUC", "accuracy", "balanced accuracy", "balanced accuracy at 0.5", *shares)

    @property
    def of_group(self) -> tuple[Table, ...]:
        """The tables that are asked by group."""
        return (questions.labels(self.classes), *(self.tables if self.classes == 2 else ()))

    def edges(
        self, counts: Floats, noise: float, people: float, later: float, shares: Floats | None
    ) -> Floats:
        """Return the edges of the question's bands, as clients are told them.

        Args:
            counts: the noisy counts of the first look.
            noise: the standard deviation of each count's noise.
            people: how many people are asked.
            later: the standard deviation of the question's noise.
            shares: the classes' shares, if they are known.
        """
        found = []
        for look, label in zip(self._looks(counts, noise), self.labels, strict=True):
            known = look.mean_prediction().value or 0.5 if shares is None else float(shares[label])
            bands = bands_for(people, min(max(known, 0.001), 0.999), later)
            found.append(look.edges(bands, known))
        return as_told(found)

    def figures(
        self, looked: Floats, counts: Floats, edges: Floats, noise: tuple[float, float]
    ) -> list[Answer]:
        """Return the figures of a model.

        Args:
            looked: the noisy counts of the first look.
            counts: the noisy counts of the question's ``tables``.
            edges: the edges, as clients were told them.
            noise: the standard deviations of the noise of both.
        """
        looks, parts = self._looks(looked, noise[0]), split(counts, self.tables)
        of_labels = [
            evaluated(_by_band(own), noise[1], np.unique(row), look)
            for own, row, look in zip(parts[-len(looks) :], edges, looks, strict=True)
        ]
        if self.classes == 2:
            return of_labels[0]
        right = parts[0].reshape(self.classes, 2)
        every = [
            against_the_rest(label, own) for label, own in zip(self.labels, of_labels, strict=True)
        ]
        return [
            combined("AUC", [each["AUC"] for each in every], 1 / self.classes, untrained=0.5),
            *answers.accuracies(right, noise[1]),
            combined("Brier score", [each["Brier score"] for each in every], 1.0, within=(0, 2)),
            *self._shares(right.sum(axis=1), noise[1] * math.sqrt(2), ""),
            *(figure for each in every for figure in each.values()),
        ]

    def figures_of_group(
        self, name: str, counts: Floats, edges: Floats, noise: float
    ) -> list[Answer]:
        """Return the figures of a group.

        Args:
            name: its name.
            counts: the noisy counts of the tables ``of_group``.
            edges: the edges, as clients were told them.
            noise: the standard deviation of each count's noise.
        """
        labels, *by_band = split(counts, self.of_group)
        found = self._shares(labels, noise, f", {name}")
        for own in by_band:
            negatives, positives = _by_band(own)[:, : edges.shape[1] + 1]
            seen = answers.both_seen(negatives, positives, noise)
            found.append(answers.auc(negatives, positives, noise, seen, f"AUC, {name}"))
        return found

    def _looks(self, counts: Floats, noise: float) -> list[Look]:
        return [Look(own[:-1], noise) for own in split(counts, self.look)]

    def _shares(self, counts: Floats, noise: float, of: str) -> list[Answer]:
        """Return the observed share of each class that is evaluated, seen by its own count."""
        return [
            Answer.of(
                f"observed share of class {label}{of}",
                *mean_of(np.eye(self.classes)[label], counts, noise),
                seen=is_seen(counts[label : label + 1], noise),
            )
            for label in self.labels
        ]


def split(counts: Floats, tables: Sequence[Table]) -> list[Floats]:
    """Return the counts of each of several tables; shape (the sum of their cells,)."""
    return np.split(counts, np.cumsum([table.cells for table in tables])[:-1])


def against_the_rest(label: int, figures: Sequence[Answer]) -> dict[str, Answer]:
    """Return the figures of one of several classes, by their names without the class.

    There are no thresholds, because the most probable class is predicted, and no shift.
    """
    found = {}
    for each in figures:
        kind, _, band = each.name.partition(", ")
        if kind in ("AUC", "Brier score", "mean prediction", "observed share"):
            name = f"{kind} of class {label}" + (f", {band}" if band else "")
            found[each.name] = replace(each, name=name)
    return found


def _by_label(row: int, label: int) -> Table:
    """Return the table of other labels and of one, by bands of its score."""
    return questions.crossed(
        questions.one_class(label), questions.told_bands(MOST_BANDS + 1, label, row)
    )


def _by_band(counts: Floats) -> Floats:
    """Return the counts of such a table without those whose score is NaN, shape (2, bands)."""
    return counts.reshape(2, -1)[:, :-1]


def evaluated(counts: Floats, noise: float, edges: Floats, look: Look) -> list[Answer]:
    """Return the figures of a score of one class, which is called class 1, against the rest.

    Args:
        counts: the noisy number of people by label and band, without those whose score is NaN,
            shape (2, bands); bands behind the last edge hold noise alone and are left out.
        noise: the standard deviation of each count's noise.
        edges: the edges of the bands, as clients were told them, ascending.
        look: the first look.
    """
    counts = counts[:, : edges.size + 1]
    negatives, positives = counts
    seen = answers.both_seen(negatives, positives, noise)
    scores, people = look.fine()
    band = np.searchsorted(edges, scores, side="right")
    risk = _means(special.expit(scores), people, band, edges.size + 1)
    share = mean_of(np.repeat([0.0, 1.0], negatives.size), counts.ravel(), noise)
    return [
        answers.auc(negatives, positives, noise, seen),
        *answers.at_thresholds(negatives, positives, noise, edges, seen),
        Answer.of("observed share of class 1", *share, seen=is_seen(positives, noise)),
        look.mean_prediction(),
        _brier(counts, noise, band, look),
        *answers.shift_of(counts, noise, risk, share[0], seen),
        *answers.observed_by_band(negatives, positives, noise, edges),
    ]


def _brier(counts: Floats, noise: float, band: NDArray[np.int64], look: Look) -> Answer:
    """Return the Brier score; a band's mean squared miss comes from the look, and so its noise."""
    scores, people = look.fine()
    risk, bands = special.expit(scores), counts.shape[1]
    total, look_total = max(float(counts.sum()), 1.0), max(float(look.counts.sum()), 1.0)
    mass = np.maximum(np.bincount(band, people, bands), _LEAST_MASS)
    missed, slopes = [], np.zeros(scores.size)
    for label, row in enumerate(counts):
        miss = np.square(risk - label)
        missed.append(_means(miss, people, band, bands))
        slopes += (np.maximum(row, 0) / total / mass)[band] * (miss - missed[-1][band])
    of_cells = slopes.reshape(-1, _FINE).mean(axis=1) / look_total
    value, deviation = mean_of(np.concatenate(missed), counts.ravel(), noise)
    deviation = math.hypot(deviation, look.noise * float(np.linalg.norm(of_cells)))
    return Answer.of("Brier score", value, deviation, seen=is_seen(counts.ravel(), noise))


def _means(values: Floats, people: Floats, band: NDArray[np.int64], bands: int) -> Floats:
    """Return the mean of values over the people in each band."""
    weights = people + 1e-12  # a band without people has the mean over its width
    mass = np.bincount(band, weights, bands)
    with np.errstate(invalid="ignore"):
        found = np.bincount(band, weights * values, bands) / mass
    return np.where(mass > 0, found, 0.5)


# Labels that are numbers


PIECES = 32
"""The pieces of the range between the cells of the look."""

FEW_BANDS, MANY_BANDS = 3, 10

_CUT = 0.01
"""The share of people with labels beyond each end of the clipped range, as far as is known."""

_DEVIATIONS = 20
"""About how many standard deviations of a count's noise the number of people in a band is."""

_UPPER = np.array([0.0, 1.0])
_AT = np.linspace(-1, 1, PIECES + 1)


@dataclass(frozen=True)
class OfNumbers:
    """The evaluation of a model that predicts numbers; see ``evaluation.OfClasses``.

    Attributes:
        range: the public range of the labels.
    """

    range: LabelRange

    @property
    def look(self) -> tuple[Table, ...]:
        """The tables of the first look."""
        return questions.places("prediction", PIECES), questions.places("label", PIECES)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the question."""
        by_band = questions.crossed(questions.told_bands(MOST_BANDS + 1), questions.places("label"))
        return (
            by_band,
            questions.places("error"),
            questions.explained(True, MOST_BANDS),
            questions.explained(False, MOST_BANDS),
        )

    @property
    def of_client(self) -> tuple[str, ...]:
        """The names of the figures that are also told of each client; see ``OfClasses``."""
        return ("mean absolute error", "observed mean")

    @property
    def of_group(self) -> tuple[Table, ...]:
        """The tables that are asked by group."""
        return (questions.places("label"), questions.places("error"))

    def edges(
        self, counts: Floats, noise: float, people: float, later: float, shares: Floats | None
    ) -> Floats:
        """Return the edges of bands with about as many people each; see ``OfClasses.edges``.

        Three more rows are for R2; see ``questions.Explained``.
        """
        said, label = (own[:-1] for own in split(counts, self.look))
        bands = int(np.clip(people / (_DEVIATIONS * later), FEW_BANDS, MANY_BANDS))
        ends = np.array([-1.0, *(_AT[1:] - 1 / PIECES), 1.0])
        found = quantiles(np.arange(1, bands) / bands, said, ends)
        clip, within = (quantiles(np.array([_CUT, 1 - _CUT]), own, ends) for own in (label, said))
        middle = mean_of(_AT.clip(*clip), label, noise)[0]
        rows = (found, clip, np.array([middle if abs(middle) <= 1 else 0.0]), within)
        told = (np.unique(each.astype(np.float32)) for each in rows)
        return as_told([each.astype(np.float64) for each in told])

    def figures(
        self, looked: Floats, counts: Floats, edges: Floats, noise: tuple[float, float]
    ) -> list[Answer]:
        """Return the figures of a model; see ``OfClasses.figures``."""
        by_band, error, gains, squares = split(counts, self.tables)
        ends = [self.range.low, *self.range.restored(np.unique(edges[0])), self.range.high]
        in_bands = by_band.reshape(-1, 3)[: len(ends) - 1, :2]
        said = split(looked, self.look)[0][:-1]
        return [
            self._explained(gains[:-1], squares[:-1], edges, noise[1]),
            self._number("mean absolute error", _UPPER, error[:2], noise[1], low=0.0),
            self._number(
                "observed mean", np.tile(_UPPER, len(in_bands)), in_bands.ravel(), noise[1]
            ),
            self._number("mean prediction", (_AT + 1) / 2, said, noise[0]),
            *(
                self._number(
                    f"observed mean, predicted {low:.4g} to {high:.4g}", _UPPER, own, noise[1]
                )
                for low, high, own in zip(ends, ends[1:], in_bands, strict=False)
            ),
        ]

    def figures_of_group(
        self, name: str, counts: Floats, edges: Floats, noise: float
    ) -> list[Answer]:
        """Return the figures of a group; see ``OfClasses.figures_of_group``."""
        label, error = (own[:2] for own in split(counts, self.of_group))
        return [
            self._number(f"observed mean, {name}", _UPPER, label, noise),
            self._number(f"mean absolute error, {name}", _UPPER, error, noise, low=0.0),
        ]

    def _number(
        self, name: str, values: Floats, counts: Floats, noise: float, low: float | None = None
    ) -> Answer:
        """Return a mean in the labels' unit; the values are shares of the range."""
        width = 2 * self.range.half
        mean, deviation = mean_of(values, counts, noise)
        lower = self.range.low if low is None else low
        within, seen = (lower, lower + width), is_seen(counts, noise)
        return Answer.of(name, lower + width * mean, width * deviation, seen=seen, within=within)

    def _explained(self, gains: Floats, squares: Floats, edges: Floats, noise: float) -> Answer:
        """Return R2, the share of the labels' variance by which predictions are nearer to them.

        Gains and squared distances of the same people go up together. Leaving this out makes the
        interval wider where R2 is positive; else their deviations are added. The square of the
        middle's distance from the mean, which is the look's noise, is far below an interval.

        Args:
            gains: people by gain; see ``questions.Explained``; shape (3,).
            squares: people by squared distance from the middle, shape (2,).
            edges: the edges, as clients were told them.
            noise: the standard deviation of each count's noise.
        """
        clip, _, _, most = compared({EDGES: edges}, 1, MOST_BANDS)
        gain, of_gain = np.multiply(mean_of(np.arange(-1.0, 2), gains, noise), most[0])
        square, of_square = np.multiply(mean_of(_UPPER, squares, noise), most[1])
        with np.errstate(all="ignore"):
            share = gain / square
            of_share = of_square * abs(share)
            both = math.hypot(of_gain, of_share) if share > 0 else of_gain + of_share
        low, high = self.range.restored(clip)
        name = f"R2 of numbers clipped to {low:.4g} and {high:.4g}"
        seen = is_seen(squares, noise) and square > SEEN * of_square
        within = (-math.inf, 1)
        return Answer.of(name, share, both / abs(square), seen=seen, within=within, untrained=0.0)
