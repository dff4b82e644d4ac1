"""A private evaluation of a model that predicts numbers: what is asked in two looks.

    look       people by the predicted number, and by the label
    question   people by label and band of the prediction, and by error; and by label, its square
               and squared error, all three in a range that leaves out the longest tails

A person whose number lies between two cells is divided between them. Means over cells are then
exact, so that binning adds nothing to an interval; the bands are only what means are told by.

The intervals are wider than need be where people hardly differ: numbers from 0 to 1 are taken to
vary as much as a share. One person can change a variance by the square of the range. So R2 is told
of numbers that are clipped to a range with nearly all labels, found in the look, and is named by
it: in the whole range, few skewed labels would make the noise larger than the variance. The error
that half of the people exceed, and R2 by group, are not told: bands of the error would have to be
found first, at a third look's price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedldp.algorithms.answers import SEEN, Answer, Floats, is_seen, mean_of
from fedldp.algorithms.evaluation import MOST_BANDS, as_told, quantiles, split
from fedldp.data.label_range import LabelRange
from fedldp.training.questions import Bands, Crossed, Places, Table

PIECES = 32
"""The pieces of the range between the cells of the look."""

FEW_BANDS, MANY_BANDS = 3, 10

_TAIL = 0.01
"""The share of people with labels beyond each end of the clipped range, as far as is known."""

_DEVIATIONS = 20
"""About how many standard deviations of a count's noise the number of people in a band is."""

_UPPER = np.array([0.0, 1.0])


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
        return Places("prediction", PIECES), Places("label", PIECES)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the question."""
        by_band = Crossed(Bands(MOST_BANDS + 1), Places("label"))
        clipped = partial(Places, row=1, most=MOST_BANDS)
        return (
            by_band,
            Places("error"),
            clipped("squared error"),
            clipped("squared label"),
            clipped("label"),
        )

    @property
    def of_client(self) -> tuple[str, ...]:
        """The names of the figures that are also told of each client; see ``OfClasses``."""
        return ("mean absolute error", "observed mean")

    @property
    def of_group(self) -> tuple[Table, ...]:
        """The tables that are asked by group."""
        return (Places("label"), Places("error"))

    def edges(
        self, counts: Floats, noise: float, people: float, later: float, shares: Floats | None
    ) -> Floats:
        """Return the edges of bands with about as many people each; see ``OfClasses.edges``.

        A second row has the ends of the range to which numbers are clipped.
        """
        said, label = split(counts, self.look)
        bands = int(np.clip(people / (_DEVIATIONS * later), FEW_BANDS, MANY_BANDS))
        middles = (np.arange(PIECES) + 0.5) / PIECES
        ends = 2 * np.array([0.0, *middles, 1.0]) - 1
        found = quantiles(np.arange(1, bands) / bands, said[:-1], ends)
        low, high = quantiles(np.array([_TAIL, 1 - _TAIL]), label[:-1], ends)
        clip = np.array([low, max(high, low + 1 / PIECES)])
        told = (np.unique(each.astype(np.float32)) for each in (found, clip.clip(-1, 1)))
        return as_told([each.astype(np.float64) for each in told])

    def figures(
        self, looked: Floats, counts: Floats, edges: Floats, noise: tuple[float, float]
    ) -> list[Answer]:
        """Return the figures of a model; see ``OfClasses.figures``."""
        by_band, *means = split(counts, self.tables)
        row, clip = (self.range.restored(np.unique(each)) for each in edges)
        ends = [self.range.low, *row, self.range.high]
        in_bands = by_band.reshape(-1, 3)[: len(ends) - 1, :2]
        error, missed, square, label = (own[:2] for own in means)
        said, _ = split(looked, self.look)
        clipped = f"R2 of numbers clipped to {clip[0]:.4g} and {clip[-1]:.4g}"
        at = np.linspace(0, 1, PIECES + 1)
        return [
            _explained(clipped, missed, square, label, noise[1]),
            self._number("mean absolute error", _UPPER, error, noise[1], low=0.0),
            self._number(
                "observed mean", np.tile(_UPPER, len(in_bands)), in_bands.ravel(), noise[1]
            ),
            self._number("mean prediction", at, said[:-1], noise[0]),
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


def _explained(name: str, error: Floats, square: Floats, label: Floats, noise: float) -> Answer:
    """Return R2 = 1 - mean squared error/variance of the labels.

    Errors and variances of the same people go up together, and so do a label and its square.
    Leaving this out makes the interval wider.

    Args:
        name: the figure's name.
        error: people by squared error, shape (2,).
        square: people by squared label, shape (2,).
        label: people by label, shape (2,).
        noise: the standard deviation of each count's noise.
    """
    missed, of_missed = mean_of(_UPPER, error, noise)
    squared, of_squared = mean_of(_UPPER, square, noise)
    mean, of_mean = mean_of(_UPPER, label, noise)
    spread, of_spread = squared - mean**2, math.hypot(of_squared, 2 * mean * of_mean)
    with np.errstate(all="ignore"):
        left = float(np.float64(missed) / spread)
        deviation = float(np.float64(math.hypot(of_missed, left * of_spread)) / abs(spread))
    seen = is_seen(error, noise) and spread > SEEN * of_spread
    return Answer.of(name, 1 - left, deviation, seen=seen, within=(-math.inf, 1))
