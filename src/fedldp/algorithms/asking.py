"""Questions about a table: what a run asks that trains nothing, and what its answers tell.

    ask         the classes of people, and cells of columns, in one round
    look, question    an evaluation of a given model; see ``evaluation``

Source of the intervals of quantiles: they are the quantiles at which an interval of the noisy
distribution function ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import Offers
from fedldp.core.errors import ConfigError
from fedldp.training import questions
from fedldp.training.answers import TWO_SIDED, Answer, Floats, is_seen, mean_of
from fedldp.training.questions import Table

SHARES_OF_CLASSES, EVALUATION = "shares", "evaluation"

Edges = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]


class AskSettings(Offers):
    """What people are asked."""

    ask: list[str] = Field([])
    """what people are asked in a run that trains nothing: shares (of the classes), evaluation (of
    the model in initial), and names of columns; such a run has one round, two for an evaluation, or
    three for both"""
    by_columns: list[str] = Field([])
    """columns of categories: an evaluation also tells the classes' observed shares and, for two
    classes, the AUC in each group, or the mean and the mean absolute error of numbers; each column
    adds two tables to those of the evaluation (with three or more classes one), and with m tables
    in all, noise is larger by sqrt(m)"""
    edges: dict[str, Edges] = Field({})
    """for each column of numbers that people are asked for, the public edges of its cells,
    ascending; there is a cell below them, one from the last edge on, and one for missing values"""


MOST_CELLS = 1 << 20

SHARE_OF_CLASS = "share of class "
"""The beginning of the names of the answers to ``SHARES_OF_CLASSES``."""

QUANTILES = {"first quartile": 0.25, "median": 0.5, "third quartile": 0.75}
"""What is told of numbers, besides their cells."""


@dataclass(frozen=True)
class Asked:
    """A table by which people are counted, and the names of its cells.

    Attributes:
        name: what is asked, as in ``ask``.
        table: the table.
        names: the name of each cell; without the last one, if every row is in another.
        edges: for numbers, the edges of the cells; empty for categories. Quartiles are told
            between two edges at least.
    """

    name: str
    table: Table
    names: tuple[str, ...]
    edges: tuple[float, ...] = ()

    def answers(self, counts: Floats, noise: float) -> list[Answer]:
        """Return the share of people in each cell, and quartiles of numbers.

        Args:
            counts: the noisy number of people in each cell.
            noise: the standard deviation of each count's noise.
        """
        found = [
            Answer.of(name, *mean_of(cell, counts, noise), seen=is_seen(counts[at : at + 1], noise))
            for at, (name, cell) in enumerate(zip(self.names, np.eye(counts.size), strict=False))
        ]
        if len(self.edges) > 1:
            found += _quartiles(self.name, np.array(self.edges), counts[:-1], noise)
        return found


def rounds_to_ask(ask: Sequence[str]) -> tuple[int, int]:
    """Return how many rounds ask for tables, and how many evaluate."""
    evaluates = EVALUATION in ask
    return int(len(set(ask) - {EVALUATION}) > 0), 2 * evaluates


def check_given(settings: Any, initial: str | None, remedy: str) -> None:
    """Refuse to evaluate a model that nobody gave.

    Args:
        settings: the settings of any system.
        initial: the model that is given, if any.
        remedy: how to give one.
    """
    ask = getattr(settings, "ask", ())
    if EVALUATION in ask and initial is None:
        raise ConfigError(f"ask = {ask}: which model is to be evaluated? give its file: {remedy}")


def asked_columns(ask: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns that a run that asks reads; None if a model needs all of them."""
    if not ask or EVALUATION in ask:
        return None
    return tuple(name for name in ask if name != SHARES_OF_CLASSES)


def reads_labels(ask: Sequence[str]) -> bool:
    """Return whether a run needs labels: one that asks for columns alone does not."""
    return not ask or not {SHARES_OF_CLASSES, EVALUATION}.isdisjoint(ask)


def asked_tables(settings: Any, problem: Problem) -> list[Asked]:
    """Return the tables of a run that asks, in the order of ``ask``.

    Raises:
        ConfigError: a column is not one of the table's, or its cells are not declared.
    """
    found = []
    for name in dict.fromkeys(settings.ask):
        if name == SHARES_OF_CLASSES:
            classes = problem.num_classes
            names = tuple(f"{SHARE_OF_CLASS}{label}" for label in range(classes))
            found.append(Asked(name, questions.labels(classes), names))
        elif name != EVALUATION:
            found.append(_column(name, settings, problem))
    cells = sum(asked.table.cells for asked in found)
    if cells > MOST_CELLS:
        raise ConfigError(
            f"ask: {cells:,} cells do not fit into a sum; ask for fewer columns, or give fewer "
            f"edges: {MOST_CELLS:,} cells at most"
        )
    return found


def groups_of(settings: Any, problem: Problem) -> list[tuple[list[str], Table]]:
    """Return the groups for which an evaluation is also told, by column, and their table.

    Categories are above 0 in a row that has them, also after a row was scaled to norm 1.

    Raises:
        ConfigError: a column has no declared categories, or its features are not what the model
            sees.
    """
    found = []
    for name in settings.by_columns:
        made = [f"{name}={text}" for text in settings.columns.categories.get(name, ())]
        features = problem.features or ()
        if not made or not set(made) <= set(features):
            raise ConfigError(
                f"by_columns = {settings.by_columns}: {name!r} is no column of features with "
                f"declared categories; give categories.{name} = [...], or leave it out"
            )
        if settings.features not in ("none", "unit-norm"):
            raise ConfigError(
                f"by_columns = {settings.by_columns} and features = {settings.features}: "
                "groups are read from a table's columns; set features = none or unit-norm"
            )
        found.append((made, questions.categories(tuple(map(features.index, made)))))
    return found


def _column(name: str, settings: Any, problem: Problem) -> Asked:
    columns, features = settings.columns, problem.features or ()
    made = [f"{name}={text}" for text in columns.categories.get(name, ())]
    if settings.features != "none":
        raise ConfigError(
            f"ask: {name!r} and features = {settings.features}: columns are asked for as they are; "
            "set features = none, and evaluate a model in a run of its own"
        )
    if made and set(made) <= set(features):
        places = tuple(map(features.index, made))
        left = "missing" if name in columns.others else "none of these"
        rest = () if left == "missing" and name in columns.filled else (f"{name}={left}",)
        return Asked(name, questions.categories(places), (*made, *rest))
    if name not in features:
        known = ", ".join(dict.fromkeys(each.split("=")[0] for each in features)) or "none"
        raise ConfigError(
            f"ask: {name!r}: the table has no such column, or it is the label, a client, a person "
            f"or in ignore_columns; the other columns asked for are: {known}"
        )
    edges = settings.edges.get(name)
    if edges is None or any(low >= high for low, high in itertools.pairwise(edges)):
        raise ConfigError(
            f"ask: {name!r} and edges.{name} = {edges}: numbers are counted between public edges; "
            f"give at least one, ascending: edges.{name} = [20, 40, 60, 80]"
        )
    if name in {**columns.scaled, **columns.spreads, **columns.centres}:
        raise ConfigError(
            f"ask: {name!r}: values beyond a range, or centred, would be in other cells; leave "
            f"the column out of scale_columns, spread_columns and centre_columns"
        )
    missing = f"{name}=missing"
    table = questions.numbers(
        features.index(name),
        tuple(edges),
        features.index(missing) if missing in features else None,
    )
    between = [f"{name} {low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    names = (f"{name} below {edges[0]:g}", *between, f"{name} from {edges[-1]:g} on", missing)
    return Asked(name, table, names, tuple(edges))


def _quartiles(column: str, edges: Floats, counts: Floats, noise: float) -> list[Answer]:
    """Return quartiles of numbers; one whose interval does not end between the edges is not seen.

    Between two edges, numbers are taken to be spread evenly. An interval begins at the last edge
    up to which all edges are below the quartile, and ends at the first from which on all are above.
    So only the noise at the two edges beside the quartile can make it miss, however many edges
    there are where nobody is.
    """
    below = [
        mean_of((np.arange(counts.size) <= at).astype(float), counts, noise)
        for at in range(edges.size)
    ]
    share, half = np.array(below).T * [[1], [TWO_SIDED]]
    rising = np.maximum.accumulate(share) + 1e-12 * np.arange(share.size)
    most, found = float(edges[-1] - edges[0]), []
    for name, level in QUANTILES.items():
        low = edges[np.logical_and.accumulate(share + half <= level)]
        high = edges[::-1][np.logical_and.accumulate(share[::-1] - half[::-1] >= level)]
        seen = is_seen(counts, noise) and low.size > 0 and high.size > 0
        ends = (float(low[-1]), float(high[-1])) if seen else (-math.inf, math.inf)
        value = min(max(float(np.interp(level, rising, edges)), ends[0]), ends[1])
        found.append(Answer.between(f"{name} of {column}", value, *ends, seen=seen, most=most))
    return found
