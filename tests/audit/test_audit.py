"""The audit as a whole, and its command."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import planted
import pytest
from planted import audit

from fedldp.audit.efforts import QUICK
from fedldp.audit.mechanisms import planned_games
from fedldp.audit.report_games import trials_for
from fedldp.audit.results import note_of, verdict_of
from fedldp.core.randomness import Stream
from fedldp.mechanisms import mechanisms
from fedldp.mechanisms.two_point import TwoPoint

ONE = replace(
    QUICK, mechanism_settings=((1.0, 1),), mechanism_explore=40, mechanism_least=100,
    mechanism_most=100, mechanism_most_quick=100, mechanism_most_coordinates=100,
    mechanism_scan=2, mechanism_long=1 << 12,
)  # fmt: skip


@pytest.mark.parametrize("cls", mechanisms().values(), ids=lambda cls: cls.name)
def test_every_mechanism_has_games_with_figures(cls: Any) -> None:
    games = planned_games(cls, ONE)
    assert games
    for game in games:
        assert all(line.proven is not None for line in game.lines)


def test_verdicts() -> None:
    assert verdict_of(1.0, 2.0, 2.5) == "bug"
    assert verdict_of(1.0, 2.0, 1.5) == "claim-broken"
    assert verdict_of(1.0, 2.0, 1.0) == verdict_of(None, None, 9.0) == "ok"
    assert verdict_of(1.0, None, 9.0) == "claim-broken"
    assert "near" in note_of(1.0, 0.9)
    assert "far" in note_of(1.0, 0.1)
    assert "nothing" in note_of(1.0, 0.0)
    assert note_of(1.0, 0.1, finds=1.5).endswith("; would show a bug from epsilon 1.5000")


def test_there_are_just_enough_trials_to_show_a_small_epsilon() -> None:
    assert trials_for(1.0, 100, 10**6) == 272
    assert trials_for(0.1, 2000, 10**6) == 2000
    assert trials_for(12.0, 100, 10**6) == trials_for(None, 100, 10**6) == 10**6


def test_all_bounds_share_the_confidence() -> None:
    found = audit("", [TwoPoint], effort=ONE, confidence=0.99)
    assert len(found.rows) > 1
    assert sum(1 - (row.confidence or 0) for row in found.rows) == pytest.approx(0.01)


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_log_ratio_agrees_with_the_probabilities(epsilon: float) -> None:
    mechanism = TwoPoint(epsilon)
    first, second = np.array([1.0, -0.3, 7.0]), np.array([-1.0, 0.2, 0.0])
    outcomes = np.arange(8, dtype=np.uint8)[:, None] << 5
    ratio = mechanism.log_ratio(outcomes, first, second)
    laws = []
    for values in (first, second):
        ones = np.array([t / 2.0**64 for t in mechanism.thresholds(values)])
        unpacked = np.unpackbits(outcomes, axis=1, count=3)
        laws.append(np.where(unpacked, ones, 1 - ones).prod(1))
    np.testing.assert_allclose(np.exp(ratio) * laws[1], laws[0], rtol=1e-12)
    assert ratio.max() <= 3 * epsilon


@pytest.mark.slow
def test_an_audit_uses_the_streams_of_a_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Stream] = []
    encode = planted.FloatBits.encode

    def spy(self: Any, values: np.ndarray, stream: Stream) -> bytes:
        seen.append(stream)
        return encode(self, values, stream)

    monkeypatch.setattr(planted.FloatBits, "encode", spy)
    audit("", [planted.FloatBits], effort=ONE)
    # The check that NaN is refused is an exception: it draws nothing.
    assert sum(stream.simulated for stream in seen) <= 6
    assert sum(not stream.simulated for stream in seen) > 500


# The command


@pytest.mark.slow
def test_a_bug_in_a_users_mechanism_ends_with_status_1(fedldp_command: Any) -> None:
    wrong = fedldp_command("audit", "--mechanism", "planted:WrongK", "--brief",
                           "--trials", 500, "--workers", 1, "--json")  # fmt: skip
    assert wrong.status == 1
    assert json.loads(wrong.out)["verdict"] == "bug"
    assert "1/" in wrong.err
