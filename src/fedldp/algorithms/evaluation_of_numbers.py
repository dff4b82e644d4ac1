"""A private evaluation of a model that predicts numbers: what is asked in two looks.

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
from dataclasses import dataclass

import numpy as np

from fedldp.algorithms.answers import SEEN, Answer, Floats, is_seen, mean_of
from fedldp.algorithms.evaluation import MOST_BANDS, as_told, quantiles, split
from fedldp.data.label_range import LabelRange
from fedldp.training import questions
from fedldp.training.questions import EDGES, Table, compared

PIECES = 32
"""The pieces of the range between the cells of the look."""

FEW_BANDS, MANY_BANDS = 3, 10

_TAIL = 0.01
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
        clip, within = (quantiles(np.array([_TAIL, 1 - _TAIL]), own, ends) for own in (label, said))
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
