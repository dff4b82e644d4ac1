"""The audit compared with other people's code: bounds of jax-privacy, coins of opendp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from planted import FloatBits

from fedldp.audit.bounds import epsilon_lower, one_run_lower
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import AuditKeys
from fedldp.audit.report_games import ReportGame, lines_of
from fedldp.core.randomness import Stream

pytestmark = pytest.mark.slow


def scores(up: int, of: int) -> np.ndarray:
    """Return scores of which a given number exceed a half."""
    return np.repeat([1.0, 0.0], [up, of - up])


@pytest.mark.parametrize(
    ("confidence", "hits", "false_hits", "trials", "delta"),
    [
        (0.95, 731, 269, 1_000, 0.0),
        (0.95, 900, 850, 1_000, 1e-3),
        (0.999, 400, 10, 500, 0.1),
    ],
)
def test_jax_privacy_counts_two_sides_to_the_same_bound(
    hits: int, false_hits: int, trials: int, delta: float, confidence: float
) -> None:
    auditing = pytest.importorskip("jax_privacy.auditing")
    theirs = auditing.CanaryScoreAuditor(
        scores(hits, trials), scores(false_hits, trials)
    ).epsilon_clopper_pearson(
        1 - confidence, delta, threshold_strategy=auditing.Explicit(threshold=0.5)
    )
    ours = epsilon_lower(hits, trials, false_hits, trials, delta=delta, confidence=confidence)
    assert ours == pytest.approx(theirs, abs=1e-7)
    assert ours <= theirs + 1e-12


@pytest.mark.parametrize(
    ("canaries", "right", "wrong", "delta"),
    [(200, 80, 20, 1e-9), (1_000, 500, 100, 1e-3)],
)
def test_jax_privacy_counts_one_run_to_the_same_bound(
    canaries: int, right: int, wrong: int, delta: float
) -> None:
    auditing = pytest.importorskip("jax_privacy.auditing")
    half = canaries // 2
    theirs = auditing.CanaryScoreAuditor(scores(right, half), scores(wrong, half)).epsilon_one_run(
        0.01, delta, threshold_strategy=auditing.Explicit(threshold=0.5)
    )
    ours = one_run_lower(canaries, right + wrong, right, delta=delta, confidence=0.99)
    assert ours == pytest.approx(theirs, abs=2e-6)


@dataclass(frozen=True)
class OfOpenDP(FloatBits):
    """opendp's randomised response of one bit, with opendp's own randomness."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        response = self.response()
        return np.packbits([response(bool(value > 0)) for value in values]).tobytes()

    def response(self) -> Any:
        dp = pytest.importorskip("opendp.prelude")
        dp.enable_features("contrib")
        return dp.m.make_randomized_response_bool(1 / (1 + np.exp(-self.epsilon)))


def test_the_audit_comes_close_to_the_epsilon_of_opendps_response() -> None:
    mechanism = OfOpenDP(2.0)
    promised = mechanism.response().map(1)
    lines = lines_of(mechanism, 1, "client-round")
    assert lines[0].proven == pytest.approx(promised)
    few = replace(QUICK, mechanism_scan=0)
    game = ReportGame(mechanism=mechanism, lines=lines, effort=few)
    # opendp's coins are fresh in each run, so the test fails by chance once in 10^9 runs.
    (shown,) = game.play(AuditKeys(0), 1 - 1e-9)
    assert 0.55 * promised < shown.lower <= promised
