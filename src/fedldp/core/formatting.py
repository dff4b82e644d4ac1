"""Formats epsilons, remaining budgets, names of rows and figures, and counts for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def number(epsilon: float | None, *, up: bool = True) -> str:
    """Format an epsilon for people: rounded up, or rounded down if it is a lower bound."""
    if epsilon is None or epsilon == math.inf:
        return "infinity"
    if epsilon == 0:
        return "0"
    if epsilon < 0:  # the remainder of an overspent budget
        return f"-{number(-epsilon, up=not up)}"
    decimals = 2 if epsilon >= 100 else max(4, 3 - math.floor(math.log10(epsilon)))
    # A float within a rounding error of a round number is shown as that number.
    exact = Decimal(epsilon) * (1 + Decimal("1e-13") * (-1 if up else 1))
    rounding = ROUND_CEILING if up else ROUND_FLOOR
    rounded = exact.quantize(Decimal(1).scaleb(-decimals), rounding, Context(prec=60))
    if decimals > 8:
        return f"{rounded.normalize():e}"
    text = f"{rounded:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_AT_EPSILON = re.compile(r"(.*) at epsilon (\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def named_at(row: str) -> tuple[str, float | None]:
    """Return the name of a table's row without its epsilon, and the epsilon if it has one."""
    matched = _AT_EPSILON.fullmatch(row)
    return (row, None) if matched is None else (matched[1], float(matched[2]))


def rows_named(names: Iterable[str]) -> str:
    """Return the names of a table's rows in words, each name once with its epsilons, ascending.

    >>> rows_named([f"a server at epsilon {each}" for each in ("2", "0.5", "10")] + ["no noise"])
    'a server at epsilon 0.5, 2 and 10, no noise'
    """
    found: dict[str, list[float]] = {}
    for each in names:
        name, epsilon = named_at(each)
        found.setdefault(name, []).extend([] if epsilon is None else [epsilon])
    told = []
    for name, epsilons in found.items():
        *most, last = [f"{each:g}" for each in sorted(epsilons)] or [""]
        every = " and ".join([", ".join(most), last]) if most else last
        told.append(f"{name} at epsilon {every}" if every else name)
    return ", ".join(told)


_OF_CLASS = re.compile(r"([A-Za-z ]+ of class )(\d+)(?=,|$)")


def with_class_name(question: str, classes: Sequence[str]) -> str:
    """Return the name of a private figure with the name of its class in place of the number.

    Args:
        question: the figure's name, as people were asked for it.
        classes: the names of the classes; one that is not among them keeps its number.
    """
    matched = _OF_CLASS.match(question)
    if matched is None or int(matched[2]) >= len(classes):
        return question
    return matched[1] + classes[int(matched[2])] + question[matched.end() :]


def rounded_count(count: int) -> int:
    """Return a count of private rows or clients, rounded up for display.

    The result is 10, 20, 50, 100, 200, 500 and so on; 0 stays 0. This hides the exact count but
    guarantees nothing: an observer can still notice that a count grew by one.
    >>> [rounded_count(count) for count in (0, 3, 10, 73, 1437)]
    [0, 10, 10, 100, 2000]
    """
    if count == 0:
        return 0
    power = 10
    while True:
        for step in (power, 2 * power, 5 * power):
            if count <= step:
                return step
        power *= 10
