"""Formats epsilons, remaining budgets, names of rows and counts of private rows for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
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


def rows_named(names: Iterable[str]) -> str:
    """Return the names of a table's rows in words, each name once with all of its epsilons.

    >>> rows_named(["no noise", "a server at epsilon 1", "all", "a server at epsilon 2"])
    'no noise, a server at epsilon 1 and 2, all'
    """
    found: dict[str, list[str]] = {}
    for each in names:
        name, *epsilon = each.rsplit(" at epsilon ", 1)
        found.setdefault(name, []).extend(epsilon)
    return ", ".join(
        f"{name} at epsilon {' and '.join(epsilons)}" if epsilons else name
        for name, epsilons in found.items()
    )


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
