"""Bounds on mechanisms whose epsilon is known exactly exceed it no more often than promised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedldp.audit.bounds import epsilon_lower
from fedldp.audit.efforts import QUICK
from fedldp.audit.game import Game
from fedldp.audit.observations import AuditKeys
from fedldp.audit.report_games import CoordinateGame, RepetitionGame, ReportGame, lines_of
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point import TwoPoint

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
    """A rate of 0.37 instead of 0.2 would be detected every other time."""
    for game in (of_reports, of_coordinates, of_repetitions):
        assert sum(game(seed) for seed in range(60)) <= most_alarms(60)


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
