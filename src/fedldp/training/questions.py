"""Questions: people are counted by the cells of public tables, in exact integers.

Each row falls into one cell of each of m public tables, such as a label, or a band of the model's
score; or it is divided between two cells, by a number. A person gives, for each table, the shares
of that person's rows in its cells, each times sqrt(2) ``NORM``/sqrt(m) and rounded down. These
numbers are not negative, and their L2 norm is at most sqrt(2) ``NORM``. So replacing a person
changes the sum by at most 2 ``NORM``, which is what the noise covers for gradients, whatever the
cells are. What a server tells, such as the edges of bands, decides only which cell a row is in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.data.examples import Examples
from fedldp.data.label_range import STEPS, centred
from fedldp.protocol.wire import Broadcast
from fedldp.training.exact_sums import NORM, Floats, cut, exp, summed_shares, whose_rows

ASKED = math.isqrt(2 * NORM**2)
"""The largest L2 norm of one person's answers, and the largest number in them, in grid steps."""

Cells = NDArray[np.int64]

EDGES = "edges of bands"
"""The key under which a broadcast carries the edges of a score's bands."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A client's rows, as tables see them.

    Attributes:
        examples: the rows.
        logits: computes the model's outputs, shape (n, classes), each row alone; NaN where the
            model has no finite output.
    """

    examples: Examples
    logits: Callable[[], Floats]


Public = Mapping[str, NDArray[Any]]
"""The arrays of a broadcast."""

Placed = Callable[[Rows], Cells | Floats]
"""Gives each row its cell, or its place between two cells (``summed_shares``), each row alone."""


@dataclass(frozen=True)
class Table:
    """Puts each row into a cell, or divides it between two neighbouring cells.

    Attributes:
        cells: the number of cells.
        told: gives how rows are placed after a broadcast. A table that needs one of its arrays
            accepts all its values, and raises a RunError if there is no such array.
    """

    cells: int
    told: Callable[[Public], Placed]


def labels(classes: int) -> Table:
    """Return a table with a cell for each class."""
    return Table(classes, lambda public: lambda rows: rows.examples.labels)


def right() -> Table:
    """Return a table of rows that the model classifies wrongly (0) and correctly (1)."""

    def cell(rows: Rows) -> Cells:
        logits = rows.logits()
        found = np.nan_to_num(logits).argmax(axis=1) == rows.examples.labels
        return np.asarray(found & np.isfinite(logits).all(axis=1), np.int64)

    return Table(2, lambda public: cell)


def one_class(label: int) -> Table:
    """Return a table of rows of all other classes (0) and of one class (1)."""
    return Table(2, lambda public: lambda rows: (rows.examples.labels == label).astype(np.int64))


def scores(edges: Sequence[float], label: int = 1) -> Table:
    """Return a table with a cell for each range of a class's log odds, and one for NaN.

    Args:
        edges: the public edges of the ranges, ascending; there is a range below and one above.
        label: the class.
    """
    return _bands_of(len(edges) + 1, lambda public: np.array(edges), label)


def told_bands(most: int, label: int = 1, row: int = 0) -> Table:
    """Return a table with a cell for each band of what a model predicts, and one for NaN.

    The server tells the edges of the bands. They are sorted, and those that are not finite, or told
    twice, are left out, so each row is in a cell whatever a server tells.

    Args:
        most: the largest number of bands.
        label: the class whose log odds are meant; no matter for a model that predicts numbers.
        row: which of the told rows of edges these bands have.
    """
    return _bands_of(most, lambda public: told_edges(public, row, most - 1), label)


def _bands_of(most: int, edges_of: Callable[[Public], Floats], label: int) -> Table:
    def told(public: Public) -> Placed:
        edges = edges_of(public)
        return lambda rows: bands(score_of(rows, label), edges, most)

    return Table(most + 1, told)


def places(of: Literal["prediction", "label", "error"], pieces: int = 1) -> Table:
    """Return a table that divides rows by a number; its mean is exact, whatever the cells.

    The numbers are of a model that predicts numbers, as shares of the labels' range, 0 to 1. The
    last cell is for rows for which the model predicts no number.

    Args:
        of: the number; an error is its absolute value.
        pieces: the number of pieces, of equal width, between the cells.
    """

    def place(rows: Rows) -> Floats:
        label, said = (centred(rows.examples.labels) + 1) / 2, (predicted(rows) + 1) / 2
        found: dict[str, Floats] = {
            "prediction": said,
            "label": np.where(np.isnan(said), np.nan, label),
            "error": np.abs(said - label),
        }
        return np.asarray(np.nan_to_num(found[of] * pieces, nan=pieces + 1), np.float64)

    return Table(pieces + 2, lambda public: place)


def explained(gain: bool, most: int, row: int = 1) -> Table:
    """Return a table that divides rows by what R2 is computed of, as ``places`` does.

    Labels and predictions are clipped to ranges, and compared with a middle, all of which the
    server tells. The cells are for the least and the largest number, for 0 between them if it may
    be negative, and for rows for which the model predicts no number.

    Args:
        gain: whether rows are divided by how much nearer to the label the prediction is than the
            middle, (label - middle)^2 - (label - prediction)^2; else by (label - middle)^2.
        most: the largest number of edges that the server tells.
        row: the first of three told rows of edges: the ends of the labels' range, the middle, and
            the ends of the predictions' range, all from -1 to 1.
    """

    def told(public: Public) -> Placed:
        ends, middle, within, (gained, squared) = compared(public, row, most)

        def place(rows: Rows) -> Floats:
            said = predicted(rows).clip(*within)
            label = centred(rows.examples.labels).clip(*ends)
            square = (label - middle) ** 2
            if gain:
                found = ((square - (label - said) ** 2) / gained + 1).clip(0, 2)
            else:
                found = (square / squared).clip(0, 1)
            return np.where(np.isnan(said), 2.0 + gain, found)

        return place

    return Table(3 + gain, told)


def compared(public: Public, row: int, most: int) -> tuple[Floats, ...]:
    """Return what ``explained`` compares: the labels' range, the middle and the predictions' range.

    They are within each other, and neither range is empty, whatever a server tells. The fourth
    array is the largest gain, and the largest squared distance of a label from the middle.
    """
    given, told, said = (told_edges(public, row + at, most) for at in range(3))
    labels = _within(given, np.array([-1.0, 1.0]))
    middle = np.append(told, labels.mean())[:1].clip(*labels)
    within = _within(said, labels)
    gains = (within[:, None] - middle) * (2 * labels - within[:, None] - middle)
    return labels, middle, within, np.array([abs(gains).max(), np.square(labels - middle).max()])


def _within(ends: Floats, whole: Floats) -> Floats:
    found = ends[[0, -1]].clip(*whole) if ends.size else whole
    return found if found[1] - found[0] >= 2 / STEPS else whole


def told_edges(public: Public, row: int, most: int) -> Floats:
    """Return a row of the edges that a server tells, sorted, each finite one once.

    Raises:
        RunError: the broadcast has no such row, or no edges, or more than ``most`` in a row.
    """
    given = public.get(EDGES)
    if given is None or given.ndim != 2 or not 0 < given.shape[1] <= most or row >= len(given):
        raise RunError(
            f"the broadcast does not have 1 to {most} edges of bands for each score; the server "
            "must compute them from the round before"
        )
    edges = given[row].astype(np.float64)
    return np.unique(edges[np.isfinite(edges)])


def numbers(column: int, edges: Sequence[float], missing: int | None = None) -> Table:
    """Return a table with a cell for each range of a column's numbers, and one for missing ones.

    Numbers that are NaN or infinite are missing, too.

    Args:
        column: the place of the column among the features.
        edges: the public edges of the ranges, ascending; a number on an edge is above it. There is
            a range below them, and one from the last edge on.
        missing: the place of the feature that is 1 where the number is missing, if there is one.
    """
    rounded = np.array(edges, np.float32).astype(np.float64)  # as features are

    def cell(rows: Rows) -> Cells:
        features = rows.examples.features
        found = features[:, column].astype(np.float64)
        lost = ~np.isfinite(found)
        if missing is not None:
            lost |= features[:, missing] > 0
        return bands(np.where(lost, np.nan, found), rounded, len(edges) + 1)

    return Table(len(edges) + 2, lambda public: cell)


def categories(columns: Sequence[int]) -> Table:
    """Return a table with a cell for each of a column's categories, and one for none of them.

    Args:
        columns: the places of their features, which are above 0 where a row has the category.
    """

    def cell(rows: Rows) -> Cells:
        given = rows.examples.features[:, list(columns)] > 0
        return np.where(given.any(axis=1), given.argmax(axis=1), len(columns))

    return Table(len(columns) + 1, lambda public: cell)


def crossed(one: Table, other: Table) -> Table:
    """Return a table with a cell for each pair of a cell of one table and a cell of another.

    Args:
        one: the table whose cells come one after another; each row is in one of them.
        other: the table whose cells are all there within each cell of the first.
    """

    def told(public: Public) -> Placed:
        first, second = one.told(public), other.told(public)

        def cell(rows: Rows) -> Cells | Floats:
            begun = first(rows).clip(0, one.cells - 1) * other.cells
            found: Cells | Floats = begun + second(rows).clip(0, other.cells - 1)
            return found

        return cell

    return Table(one.cells * other.cells, told)


def score_of(rows: Rows, label: int) -> Floats:
    """Return what bands are of: the log odds of a class, or else the predicted number, -1 to 1."""
    logits = rows.logits()
    return predicted(rows) if logits.shape[1] == 1 else log_odds(logits, label)


def predicted(rows: Rows) -> Floats:
    """Return the numbers that a model predicts, from -1 to 1, shape (n,)."""
    return rows.logits()[:, 0].clip(-1, 1)


def log_odds(logits: Floats, label: int = 1) -> Floats:
    """Return the log odds of a class from the outputs for all classes, shape (n,).

    They are NaN where an output is NaN, or where those of the class and another are infinite. Each
    row is computed alone: a library's log may treat an array's last numbers differently.
    """
    others = np.delete(logits, label, axis=1)
    most = others.max(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        powers = exp(np.nan_to_num(others - most[:, None], nan=0.0, neginf=-700.0))
        total = np.add.accumulate(powers, axis=1)[:, -1]  # a sum's order may depend on the rows
        found = logits[:, label] - most
    return np.asarray(found - [math.log(each) for each in total], np.float64)


def bands(score: Floats, edges: Floats, unknown: int) -> Cells:
    """Return the band of each score: the number of edges up to it; ``unknown`` for NaN."""
    found = np.searchsorted(edges, score, side="right")
    return np.where(np.isnan(score), unknown, found).astype(np.int64)


@dataclass(frozen=True)
class Question:
    """The tables by which people are counted in a round.

    Attributes:
        tables: the tables, at least one.
    """

    tables: Sequence[Table]

    @property
    def norm(self) -> int:
        """What a person divides among the cells of each table, in grid steps."""
        return math.isqrt(2 * NORM**2 // len(self.tables))

    @property
    def cells(self) -> int:
        """The number of cells of all tables."""
        return sum(table.cells for table in self.tables)

    def told(self, broadcast: Broadcast) -> Callable[[Rows], Floats]:
        """Return what sums people's answers after a broadcast, before any example is looked at.

        The sums are whole numbers, shape (cells,), one table after another; exact.

        Raises:
            RunError: the broadcast lacks what it must tell. This refusal depends on nothing
                private.
        """
        try:
            placed = [table.told(broadcast.public) for table in self.tables]
        except RunError as error:
            raise RunError(f"round {broadcast.round}: {error}") from error

        def answers(rows: Rows) -> Floats:
            people = whose_rows(rows.examples)
            counts = [
                summed_shares(cells(rows), people, table.cells, self.norm)
                for table, cells in zip(self.tables, placed, strict=True)
            ]
            return cut(np.concatenate(counts))

        return answers


VOTES = Question((right(),))
"""Whether the model is right on a person's rows."""
