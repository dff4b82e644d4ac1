"""Questions: people are counted by the cells of public tables, in exact integers.

Each row falls into one cell of each of m public tables, such as a label, or a band of the model's
score. A person gives, for each table, the shares of that person's rows in its cells, each times
sqrt(2) ``NORM``/sqrt(m) and rounded down. These numbers are not negative, and their L2 norm is at
most sqrt(2) ``NORM``. So replacing a person changes the sum by at most 2 ``NORM``, which is what
the noise covers for gradients, whatever the cells are. What a server tells, such as the edges of
bands, decides only which cell a row is in.

If people are sampled in secret, a person may be absent. The distance is then the norm itself, which
must be at most ``NORM``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.data.examples import Examples
from fedldp.protocol.wire import Broadcast
from fedldp.training.exact_sums import NORM, Floats, cut, summed_shares, whose_rows

ASKED = math.isqrt(2 * NORM**2)
"""The largest L2 norm of one person's answers, and the largest number in them, in grid steps."""

Cells = NDArray[np.int64]

CLASS_WEIGHTS = "class weights"
"""The key under which a broadcast carries class weights that follow from counts of the classes."""

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


class Table(Protocol):
    """Puts each row into a cell.

    Attributes:
        cells: the number of cells.
    """

    @property
    def cells(self) -> int: ...

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return how rows are put into cells after a broadcast; each row is computed alone.

        Args:
            public: the broadcast's arrays; a table that needs one must accept all its values.

        Raises:
            RunError: the broadcast lacks what it must tell.
        """
        ...


@dataclass(frozen=True)
class Labels:
    """A cell for each class.

    Attributes:
        cells: the number of classes.
    """

    cells: int

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return the rows' labels; see ``Table``."""
        return lambda rows: rows.examples.labels


@dataclass(frozen=True)
class Right:
    """Two cells: rows that the model classifies wrongly, and rows that it classifies correctly."""

    cells: int = 2

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return 1 for rows that are classified correctly; see ``Table``."""

        def cell(rows: Rows) -> Cells:
            logits = rows.logits()
            right = np.nan_to_num(logits).argmax(axis=1) == rows.examples.labels
            return np.asarray(right & np.isfinite(logits).all(axis=1), np.int64)

        return cell


@dataclass(frozen=True)
class Scores:
    """A cell for each range of the log odds of class 1 between public edges, and one for NaN.

    Attributes:
        edges: the edges, ascending.
    """

    edges: tuple[float, ...]

    @property
    def cells(self) -> int:
        """The ranges below, between and above the edges, and one cell for NaN."""
        return len(self.edges) + 2

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return the ranges of the rows' scores; see ``Table``."""
        return lambda rows: bands(log_odds(rows.logits()), np.array(self.edges), self.cells - 1)


@dataclass(frozen=True)
class LabelsByBand:
    """For each of two labels, a cell for each band of the log odds of class 1; and one for NaN.

    The bands lie between edges that the server tells.

    Attributes:
        bands: the largest number of bands.
    """

    bands: int

    @property
    def cells(self) -> int:
        """The bands of both labels, and one cell for NaN."""
        return 2 * self.bands + 1

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return the rows' labels by band; see ``Table``.

        Edges are sorted, and edges that are not finite are moved to the largest numbers, so each
        row is in a cell whatever a server tells.
        """
        given = public.get(EDGES)
        if given is None or given.ndim != 1 or not 0 < given.size < self.bands:
            raise RunError(
                f"the broadcast does not have 1 to {self.bands - 1} edges of bands; the server "
                "must compute them from the round before"
            )
        edges = np.sort(np.nan_to_num(given.astype(np.float64)))

        def cell(rows: Rows) -> Cells:
            score = log_odds(rows.logits())
            band = bands(score, edges, self.cells - 1)
            labels = rows.examples.labels.clip(0, 1)
            return np.where(np.isnan(score), band, labels * self.bands + band)

        return cell


@dataclass(frozen=True)
class Numbers:
    """A cell for each range of a column's numbers between public edges, and one for missing ones.

    Numbers that are NaN or infinite are missing, too.

    Attributes:
        column: the place of the column among the features.
        edges: the edges, ascending; a number on an edge is above it.
        missing: the place of the feature that is 1 where the number is missing, if there is one.
    """

    column: int
    edges: tuple[float, ...]
    missing: int | None = None

    @property
    def cells(self) -> int:
        """The ranges below, between and from the last edge on, and one cell for missing ones."""
        return len(self.edges) + 2

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return the ranges of the rows' numbers; see ``Table``."""
        edges = np.array(self.edges, np.float32).astype(np.float64)  # rounded as features are

        def cell(rows: Rows) -> Cells:
            features = rows.examples.features
            found = features[:, self.column].astype(np.float64)
            lost = ~np.isfinite(found)
            if self.missing is not None:
                lost |= features[:, self.missing] > 0
            return bands(np.where(lost, np.nan, found), edges, self.cells - 1)

        return cell


@dataclass(frozen=True)
class Categories:
    """A cell for each feature of a column of categories, and one for rows that have none of them.

    Attributes:
        columns: the places of these features, which are above 0 where a row has the category.
    """

    columns: tuple[int, ...]

    @property
    def cells(self) -> int:
        """The categories, and one cell for none of them."""
        return len(self.columns) + 1

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return the categories of the rows; see ``Table``."""

        def cell(rows: Rows) -> Cells:
            given = rows.examples.features[:, list(self.columns)] > 0
            return np.where(given.any(axis=1), given.argmax(axis=1), self.cells - 1)

        return cell


@dataclass(frozen=True)
class Crossed:
    """A cell for each pair of a cell of one table and a cell of another.

    Attributes:
        one: the table whose cells come one after another.
        other: the table whose cells are all there within each cell of the first.
    """

    one: Table
    other: Table

    @property
    def cells(self) -> int:
        """The number of pairs."""
        return self.one.cells * self.other.cells

    def told(self, public: Mapping[str, NDArray[Any]]) -> Callable[[Rows], Cells]:
        """Return the pairs of the rows' cells; see ``Table``."""
        one, other = self.one.told(public), self.other.told(public)
        places, number = self.one.cells, self.other.cells

        def cell(rows: Rows) -> Cells:
            found = one(rows).clip(0, places - 1) * number
            found += other(rows).clip(0, number - 1)
            return found

        return cell


def log_odds(logits: Floats) -> Floats:
    """Return the log odds of class 1 from the outputs for two classes, shape (n,).

    They are NaN where both outputs are infinite.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(logits[:, 1] - logits[:, 0], np.float64)


def bands(score: Floats, edges: Floats, unknown: int) -> Cells:
    """Return the band of each score: the number of edges up to it; ``unknown`` for NaN."""
    found = np.searchsorted(edges, score, side="right")
    return np.where(np.isnan(score), unknown, found).astype(np.int64)


@dataclass(frozen=True)
class Question:
    """The tables by which people are counted in a round.

    Attributes:
        tables: the tables, at least one.
        squared_norm: the largest squared L2 norm of a person's answers, in grid steps.
    """

    tables: Sequence[Table]
    squared_norm: int = 2 * NORM**2

    @property
    def norm(self) -> int:
        """What a person divides among the cells of each table, in grid steps."""
        return math.isqrt(self.squared_norm // len(self.tables))

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


VOTES = Question((Right(),))
"""Whether the model is right on a person's rows."""
