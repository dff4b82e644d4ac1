"""Bisection whose answer always meets its target, as evaluated in floats, and a minimum search."""

from __future__ import annotations

import math
from collections.abc import Callable

from fedldp.core.errors import ConfigError

_NEIGHBOURS = 4e-16  # relative width of a bracket of two neighbouring floats
_PATIENCE = 3  # steps of regula falsi allowed without halving the bracket
_GOLDEN = (math.sqrt(5) - 1) / 2


def solve(
    function: Callable[[float], float],
    target: float,
    start: float,
    end: float,
    precision: float = _NEIGHBOURS,
) -> float:
    """Return the x closest to ``end``, between ``start`` and ``end``, with function(x) <= target.

    Args:
        function: never decreases on the way from ``start`` to ``end``, whichever of them is larger.
        target: the value that the answer must not exceed.
        start: function(start) must meet the target.
        end: returned if it meets the target.
        precision: relative width of the last bracket. Raise it for slow functions: where they are
            smooth, about ten evaluations are then enough (regula falsi, Illinois variant).

    Returns:
        An x with function(x) <= target exactly as evaluated. If the function is monotone, no x
        nearer to ``end`` by more than ``precision`` meets the target.

    Raises:
        ConfigError: even ``start`` exceeds the target.

    >>> solve(lambda x: x * x, 2.0, start=0.0, end=2.0)
    1.414213562373095
    >>> solve(lambda x: 1 / x, 0.5, start=8.0, end=1.0)
    2.0
    """
    at_end = function(end)
    if at_end <= target:
        return end
    good, bad = start, end
    reached = function(good)
    if not reached <= target:
        raise ConfigError(
            f"target = {target:g} cannot be met: between {min(start, end):g} and "
            f"{max(start, end):g} the smallest value is {reached:g}; give a larger target"
        )
    at_good, at_bad = reached - target, at_end - target
    last = ""
    since = 0  # steps since the bracket was last halved
    half = abs(bad - good) / 2
    while abs(good - bad) > precision * abs(good):
        middle = (good + bad) / 2
        if precision > _NEIGHBOURS and since < _PATIENCE and math.isfinite(at_bad):
            middle = _between(good, bad, at_good, at_bad, precision)
        if middle in (good, bad):
            break
        found = function(middle) - target
        if found <= 0:
            good, at_good = middle, found
            at_bad /= 2 if last == "good" else 1
            last = "good"
        else:
            bad, at_bad = middle, found
            at_good /= 2 if last == "bad" else 1
            last = "bad"
        since += 1
        if abs(bad - good) <= half:
            since, half = 0, abs(bad - good) / 2
    return good


def _between(good: float, bad: float, at_good: float, at_bad: float, precision: float) -> float:
    """Return where a line through both ends crosses zero, moved slightly towards the farther end.

    The crossing is thus overshot once the nearer end is close enough, and the bracket closes from
    both sides.
    """
    guess = good + (bad - good) * at_good / (at_good - at_bad)
    step = math.copysign(0.4 * precision * abs(good), bad - good)
    guess += step if abs(guess - good) < abs(bad - guess) else -step
    return min(max(guess, min(good, bad)), max(good, bad))


def minimise(
    function: Callable[[float], float], low: float, high: float, precision: float
) -> float:
    """Return approximately the x in [low, high] with the smallest function(x), by golden sections.

    Use it for bounds that hold at every x: even an inexact minimum gives a valid bound.

    Args:
        function: falls and then rises, at most once.
        low: the lower end of the interval.
        high: the upper end of the interval.
        precision: width of the last bracket.

    >>> round(minimise(lambda x: (x - 1) ** 2, 0.0, 4.0, 1e-6), 5)
    1.0
    """
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > precision:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right
