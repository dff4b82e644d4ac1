"""Bounds are exact, and exceed an epsilon that is known no more often than promised."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binom

import fedldp
from fedldp.audit.bounds import (
    epsilon_lower,
    one_run_lower,
    p_value,
    probability_at_least,
    probability_at_most,
    smallest_found,
)
from fedldp.audit.efforts import QUICK
from fedldp.audit.game import Game
from fedldp.audit.observations import AuditKeys
from fedldp.audit.plans import _whole_runs
from fedldp.audit.report_games import CoordinateGame, RepetitionGame, ReportGame, lines_of
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.simulation.plan import problem_of


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (7, 10), (10, 10), (61, 10**7)])
def test_the_bounds_are_those_of_clopper_and_pearson(hits: int, trials: int) -> None:
    low, high = (f(hits, trials, 0.001) for f in (probability_at_least, probability_at_most))
    # By definition, at the bound, the observed outcome or a larger (smaller) one has probability
    # alpha.
    if hits:
        assert stats.binom.sf(hits - 1, trials, low) == pytest.approx(0.001, rel=1e-6)
        assert stats.binom.sf(hits - 1, trials, low) <= 0.001
    if hits < trials:
        assert stats.binom.cdf(hits, trials, high) == pytest.approx(0.001, rel=1e-6)
        assert stats.binom.cdf(hits, trials, high) <= 0.001
    interval = stats.binomtest(hits, trials).proportion_ci(0.998, method="exact")
    assert (low, high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-300)


def failure(p: float, q: float, n: int, m: int, delta: float, confidence: float) -> float:
    """Return the exact probability that the bound exceeds what the event proves."""
    truth = max(0.0, math.log((p - delta) / q)) if p > delta else 0.0
    total = 0.0
    for hits in range(n + 1):
        for false_hits in range(m + 1):
            lower = epsilon_lower(hits, n, false_hits, m, delta=delta, confidence=confidence)
            if lower > truth:
                total += stats.binom.pmf(hits, n, p) * stats.binom.pmf(false_hits, m, q)
    return total


@pytest.mark.parametrize(
    ("p", "q", "delta"),
    [(0.731, 0.269, 0.0), (0.3, 0.02, 0.05), (0.5, 0.5, 0.05), (0.999, 0.3, 0.0)],
)
def test_a_bound_is_too_large_no_more_often_than_it_says(p: float, q: float, delta: float) -> None:
    for confidence in (0.5, 0.9):
        assert failure(p, q, 15, 11, delta, confidence) <= 1 - confidence


@pytest.mark.parametrize(("false_hits", "delta"), [(0, 0.0), (3, 0.05), (100, 0.05)])
def test_the_smallest_detectable_epsilon_is_just_detected(false_hits: int, delta: float) -> None:
    def lower(hits: int) -> float:
        return epsilon_lower(hits, 2000, false_hits, 2000, delta=delta, confidence=0.999)

    found = smallest_found(1.0, false_hits, 2000, delta=delta, confidence=0.999)
    assert found is not None
    hits = round((math.exp(found) * max(false_hits, 0.5) / 2000 + delta) * 2000)
    assert lower(hits - 1) <= 1.0 < lower(hits) <= found


# Mechanisms whose epsilon is known


SMALL = replace(
    QUICK, mechanism_explore=60, mechanism_least=150, mechanism_most=150, mechanism_most_quick=150,
    mechanism_most_coordinates=150, mechanism_scan=4, mechanism_long=1 << 12,
)  # fmt: skip
# At such a low confidence, false alarms are frequent enough to be counted.
CONFIDENCE = 0.8
FALSE_ALARM = 1e-3
"""Seeds are fixed, so an honest bound fails always or never."""


def most_alarms(audits: int) -> int:
    """Return the number of alarms that honest bounds exceed only with probability FALSE_ALARM."""
    return int(stats.binom.isf(FALSE_ALARM, audits, 1 - CONFIDENCE))


def of_reports(seed: int) -> bool:
    """Audit a mechanism that attains its epsilon; return whether the bound exceeds it."""
    mechanism, size, epsilon = [
        (TwoPoint(1.0), 1, 1.0),
        (KRR(0.5, 2), 1, 0.5),
        (Laplace(1.0, 0.7), 1, 0.7),
        (TwoPoint(0.2), 4, 0.8),
    ][seed % 4]
    lines = lines_of(mechanism, size, "client-round")
    assert lines[0].proven == pytest.approx(epsilon)
    return exceeded(ReportGame(mechanism=mechanism, lines=lines, effort=SMALL), seed)


def exceeded(game: Game, seed: int) -> bool:
    (shown,) = game.play(AuditKeys(seed), CONFIDENCE)
    assert shown.proven is not None
    return shown.lower > shown.proven


def of_coordinates(seed: int) -> bool:
    mechanism = [TwoPoint(1.0), KRR(0.5, 3), TwoPoint(0.1)][seed % 3]
    lines = lines_of(mechanism, 128, "weight")
    return exceeded(CoordinateGame(mechanism=mechanism, lines=lines, effort=SMALL), seed)


def of_repetitions(seed: int) -> bool:
    mechanism = TwoPoint([1.0, 0.1][seed % 2])
    lines = lines_of(mechanism, 1 << 10, "weight")
    return exceeded(RepetitionGame(mechanism=mechanism, lines=lines, effort=SMALL), seed)


@pytest.mark.slow
def test_small_audits_raise_no_more_alarms_than_promised() -> None:
    """A rate of 0.32 instead of 0.2 would be detected every other time; of whole reports, whose
    trials are slow, a rate of 0.44."""
    for game, audits in ((of_reports, 32), (of_coordinates, 120), (of_repetitions, 120)):
        assert sum(map(game, range(audits))) <= most_alarms(audits)


def test_a_bound_from_the_trials_that_chose_the_event_is_not_honest() -> None:
    """The split of trials prevents this. The test also shows that too high an alarm rate is
    detected."""
    generator = np.random.default_rng(0)

    def alarm() -> bool:
        # For a mechanism that reveals nothing and has 300 outcomes, the luckiest of 300 events is
        # chosen.
        first, second = generator.multinomial(600, np.full(300, 1 / 300), 2)
        at = np.argmax(first - second)
        return epsilon_lower(first[at], 600, second[at], 600, delta=0.0, confidence=CONFIDENCE) > 0

    assert sum(alarm() for _ in range(200)) > most_alarms(200)


# The bound from one run: exact where the law of right guesses is known


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


# Whole runs


def whole(recipe: str, unit: str) -> list[float]:
    config = fedldp.recipe(recipe)
    games = _whole_runs(config, problem_of(config, None))
    (game,) = [each for each in games if each.unit == unit]
    return [row.lower for row in game.play(AuditKeys(0), 0.999)]


@pytest.mark.slow
def test_all_clients_of_fedavg_are_distinguished() -> None:
    assert whole("fedavg-digits", "client-run")[0] > 3.0
