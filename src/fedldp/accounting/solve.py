"""Bisection that returns the safe side: its answer always meets the target, as evaluated."""

from __future__ import annotations

from collections.abc import Callable

from fedldp.errors import ConfigError

_NEIGHBOURS = 4e-16  # relative width of a bracket of two neighbouring floats


def solve_largest(
    function: Callable[[float], float],
    target: float,
    low: float,
    high: float,
    precision: float = _NEIGHBOURS,
) -> float:
    """Return the largest x in [low, high] with function(x) <= target.

    Args:
        function: never decreases.
        target: what the answer must not exceed.
        low: where to start; function(low) must meet the target.
        high: returned if it meets the target.
        precision: relative width of the last bracket; raise it for slow functions.

    Returns:
        An x with function(x) <= target exactly as evaluated. If the function is monotone, no x
        larger by more than ``precision`` meets the target.

    Raises:
        ConfigError: even ``low`` exceeds the target.

    >>> solve_largest(lambda x: x * x, 2.0, 0.0, 2.0)
    1.414213562373095
    """
    if function(high) <= target:
        return high
    return _bisect(function, target, good=low, bad=high, precision=precision)


def solve_smallest(
    function: Callable[[float], float],
    target: float,
    low: float,
    high: float,
    precision: float = _NEIGHBOURS,
) -> float:
    """Return the smallest x in [low, high] with function(x) <= target.

    Args:
        function: never increases.
        target: what the answer must not exceed.
        low: returned if it meets the target.
        high: where to start; function(high) must meet the target.
        precision: relative width of the last bracket; raise it for slow functions.

    Returns:
        An x with function(x) <= target exactly as evaluated. If the function is monotone, no x
        smaller by more than ``precision`` meets the target.

    Raises:
        ConfigError: even ``high`` exceeds the target.

    >>> solve_smallest(lambda x: 1 / x, 0.5, 1.0, 8.0)
    2.0
    """
    if function(low) <= target:
        return low
    return _bisect(function, target, good=high, bad=low, precision=precision)


def _bisect(
    function: Callable[[float], float],
    target: float,
    *,
    good: float,
    bad: float,
    precision: float,
) -> float:
    reached = function(good)
    if not reached <= target:
        raise ConfigError(
            f"target = {target:g} cannot be met: between {min(good, bad):g} and "
            f"{max(good, bad):g} the least value is {reached:g}; give a larger target"
        )
    while abs(good - bad) > precision * abs(good):
        middle = (good + bad) / 2
        if middle in (good, bad):
            break
        if function(middle) <= target:
            good = middle
        else:
            bad = middle
    return good
