"""The claims of the papers' texts, sentence by sentence, next to measured or computed results.

Each paper has a module with its claims in the order of its text. Every time a page is made, the
committed results decide whether a claim holds: no verdict is written by hand. If a claim does not
hold, its entry says why, or that the cause is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Numbers = Sequence[float]

Groups = tuple[tuple[int, ...], tuple[int, ...]]
"""Two groups of a claim's cells, by their positions; a cell that occurs twice counts twice."""


@dataclass(frozen=True, kw_only=True)
class PaperClaim:
    """A sentence of a paper, or a number in it.

    Attributes:
        place: where in the paper: "5.2", "Fig. 4".
        says: a short version of what it claims; its numbers are the paper's.
        cells: the recipes whose results decide whether it holds; none if that follows from code
            alone. ``name@5`` is a recipe's result after round 5.
        derive: computes the numbers to show from the accuracies of the cells, in percent and in
            order.
        ours: a template of the text that shows these numbers.
        holds: whether the claim holds, given these numbers.
        above: pairs of groups of cells: the claim says that the first group has the higher mean,
            and it holds if the difference exceeds the standard error of the seeds.
        not_above: pairs of groups of cells: the claim says that the first group does not have the
            higher mean, and it holds unless the first exceeds the second by more than that error.
        cause: why the claim does not hold: a cause that a run has tested, or a string that begins
            with "not known". None if it holds, or if nothing is measured.
        cost: what would be needed to measure a claim that has no recipe.
    """

    place: str
    says: str
    cells: tuple[str, ...] = ()
    derive: Callable[[Numbers], Numbers] = lambda numbers: numbers
    ours: str
    holds: Callable[[Numbers], Any] = lambda numbers: True
    above: tuple[Groups, ...] = ()
    not_above: tuple[Groups, ...] = ()
    cause: str | None = None
    cost: str | None = None


def near(number: float, within: float) -> Callable[[Numbers], bool]:
    """Return a function that checks whether the first number is within ``within`` of ``number``."""
    return lambda found: abs(found[0] - number) <= within


def rising(count: int) -> tuple[Groups, ...]:
    """Return, for ``above``, the claim that each of ``count`` cells exceeds the cell before it."""
    return tuple(((place + 1,), (place,)) for place in range(count - 1))


def halves(count: int) -> tuple[Groups, ...]:
    """Return, for ``above``, the claim that the first half of ``count`` cells exceeds the rest."""
    return ((tuple(range(count // 2)), tuple(range(count // 2, count))),)


def differences(pairs: int) -> Callable[[Numbers], Numbers]:
    """Return a function that subtracts the second half of the numbers from the first, pairwise."""
    return lambda found: [found[place] - found[pairs + place] for place in range(pairs)]


def mean_difference(found: Numbers) -> Numbers:
    """Return the mean of the first half of the numbers minus the mean of the second half."""
    half = len(found) // 2
    return [(sum(found[:half]) - sum(found[half:])) / half]
