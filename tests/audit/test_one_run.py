"""The bound from one run: exactly if the law of right guesses is known, and by simulation."""

from __future__ import annotations

import math

import pytest
from scipy.stats import binom

import fedldp
from fedldp.audit.bounds import one_run_lower, p_value
from fedldp.audit.observations import AuditKeys
from fedldp.audit.plans import _whole_runs
from fedldp.simulation.plan import problem_of


def alarms(canaries: int, epsilon: float, delta: float, confidence: float) -> float:
    """Return the probability that the bound is too large, for a mechanism that attains its epsilon.

    Each coin is revealed with probability delta, and otherwise reported by randomised response. All
    coins are guessed, and each guess is right independently of the others.
    """
    right = delta + (1 - delta) / (1 + math.exp(-epsilon))
    total = 0.0
    for v in range(canaries + 1):
        if one_run_lower(canaries, canaries, v, delta=delta, confidence=confidence) > epsilon:
            total += binom.pmf(v, canaries, right)
    return total


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.0), (3.0, 0.0), (1.0, 1e-3), (1.0, 0.02)])
def test_the_bound_is_too_large_no_more_often_than_it_says(epsilon: float, delta: float) -> None:
    assert alarms(30, epsilon, delta, confidence=0.9) <= 0.1


@pytest.mark.parametrize(("m", "r", "v", "delta"), [(20, 12, 9, 0.01), (20, 20, 20, 0.1)])
def test_the_bound_is_the_theorems_sum(m: int, r: int, v: int, delta: float) -> None:
    bias = math.e / (1 + math.e)

    def f(k: int) -> float:
        return sum(
            math.comb(r, j) * bias**j * (1 - bias) ** (r - j) for j in range(max(0, k), r + 1)
        )

    expected = f(v) + 2 * m * delta * max((f(v - i) - f(v)) / i for i in range(1, m + 1))
    assert p_value(m, r, v, 1.0, delta) == pytest.approx(min(1.0, expected))


def test_the_bound_grows_with_right_guesses_and_falls_with_delta() -> None:
    def bound(right: int, delta: float = 0.0) -> float:
        return one_run_lower(100, 100, right, delta=delta, confidence=0.99)

    assert bound(100) > bound(90) > bound(70) > 0 == bound(50)
    assert bound(90, 1e-3) < bound(90)
    assert one_run_lower(100, 50, 50, delta=0.0, confidence=0.99) < bound(100)


# Whole runs


def whole(recipe: str, unit: str) -> list[float]:
    config = fedldp.recipe(recipe)
    games = _whole_runs(config, problem_of(config, None))
    (game,) = [each for each in games if each.unit == unit]
    return [row.lower for row in game.play(AuditKeys(0), 0.999)]


@pytest.mark.slow
def test_all_clients_of_fedavg_are_distinguished() -> None:
    assert whole("fedavg-digits", "client-run")[0] > 3.0
