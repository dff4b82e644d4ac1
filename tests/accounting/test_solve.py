"""The solution meets its target as closely as requested, and slow functions get few calls."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from fedldp.accounting.numerics.solve import solve
from fedldp.core.errors import ConfigError

Function = Callable[[float], float]

SMOOTH: list[tuple[Function, float, float, float]] = [
    (lambda x: x * x, 2.0, 1.0, 3.0),
    (lambda x: 1 / x, 0.5, 8.0, 1.0),
    (math.expm1, 1e-3, 1e-4, 1.0),
    (lambda x: x**5 + x, 7.0, 1.0, 3.2),
    (math.sqrt, 1.7, 1.0, 10.0),
]
ROUGH: list[tuple[Function, float, float, float]] = [
    (lambda x: math.inf if x > 3 else x, 2.5, 1.0, 10.0),
    (lambda x: math.inf if x > 3 else x, 5.0, 1.0, 10.0),
    (lambda x: math.floor(x * 10) / 10, 0.75, 0.0, 1.0),
    (lambda x: 0.0 if x < 0.7 else 1e300, 1.0, 0.0, 1.0),
    (math.expm1, 1e-3, 0.0, 50.0),
]


@pytest.mark.parametrize("precision", [1e-4, 1e-10])
@pytest.mark.parametrize("case", SMOOTH + ROUGH)
def test_the_solution_meets_its_target_as_closely_as_requested(
    case: tuple[Function, float, float, float], precision: float
) -> None:
    function, target, start, end = case
    found = solve(function, target, start, end, precision)
    assert function(found) <= target
    beyond = found + math.copysign(2 * precision * abs(found), end - start)
    assert function(beyond) > target
    assert function(solve(function, target, start, end)) <= target


def test_an_end_that_meets_the_target_is_taken_and_an_impossible_target_is_refused() -> None:
    assert solve(lambda x: x, 3.0, 0.0, 2.0, 1e-10) == 2.0
    with pytest.raises(ConfigError, match="the smallest value is 1; give a larger target"):
        solve(lambda x: x, 0.5, 1.0, 2.0, 1e-10)
