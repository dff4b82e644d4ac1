"""The audit as a whole, and its command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    GaussianReport,
    InClear,
    PureCoordinates,
)
from fedldp.accounting.guarantees import proven_epsilon
from fedldp.audit.efforts import QUICK
from fedldp.audit.games import trials_for
from fedldp.audit.mechanisms import audit, planned_games
from fedldp.audit.results import note_of, verdict_of
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import mechanisms
from fedldp.mechanisms.two_point import TwoPoint

ONE = replace(
    QUICK, mechanism_settings=((1.0, 1),), mechanism_explore=40, mechanism_least=100,
    mechanism_most=100, mechanism_most_quick=100, mechanism_most_coordinates=100,
    mechanism_scan=2, mechanism_long=1 << 12,
)  # fmt: skip
KEYS = {"unit", "adversary", "claimed", "proven", "lower", "confidence", "trials", "attack",
        "verdict"}  # fmt: skip

OWN = """
from dataclasses import dataclass
from planted import WrongK, FloatBits

@dataclass(frozen=True)
class Wrong(WrongK):
    name = "wrong"

@dataclass(frozen=True)
class Right(FloatBits):
    name = "right"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "audited_by_test.py").write_text(OWN)


@pytest.mark.parametrize("cls", mechanisms().values(), ids=lambda cls: cls.name)
def test_every_mechanism_has_games_with_figures(cls: Any) -> None:
    games = planned_games(cls, ONE)
    assert games
    for game in games:
        assert len(game.deltas) == len(game.claimed) == len(game.proven)
        assert all(proven is not None for proven in game.proven)


def test_the_proven_epsilon_comes_from_the_event_by_the_accountants() -> None:
    bits = BinaryRandomizedResponse(epsilon=0.5, coordinates=8)
    assert proven_epsilon(bits, "weight", 0.0) == 0.5
    assert proven_epsilon(bits, "client-round", 0.0) == 4.0
    assert proven_epsilon(bits, "client-run", 0.0, rounds=2) == 8.0
    mixed = PureCoordinates(groups=((0.5, 3), (2.0, 1)))
    assert proven_epsilon(mixed, "weight", 0.0) == 2.0
    assert proven_epsilon(mixed, "client-round", 0.0) == 3.5
    noisy = GaussianReport(mu=1.0, rho=0.5)
    assert proven_epsilon(noisy, "client-round", 1e-5) == pytest.approx(4.37717809568122)
    assert proven_epsilon(noisy, "client-round", 0.0) is None
    assert proven_epsilon(InClear(what="weights"), "client-round", 1e-5) is None


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
def test_the_json_of_an_audit_keeps_to_the_contract(fedldp_command: Any) -> None:
    arguments = ("audit", "--mechanism", "nearest_direction", "--quick", "--trials", 50, "--seed",
                 3, "--workers", 1, "--json")  # fmt: skip
    outcome = fedldp_command(*arguments)
    assert outcome.status == 0
    found = json.loads(outcome.out)
    assert found["subject"] == "nearest_direction"
    assert found["verdict"] == "ok"
    assert found["seed"] == 3
    for row in found["rows"]:
        assert set(row) >= KEYS
        assert row["adversary"] == "server"
        assert 0 <= row["lower"] <= row["proven"]
    assert "1/" in outcome.err


@pytest.mark.slow
def test_a_bug_in_a_users_mechanism_ends_with_status_1(fedldp_command: Any, own: None) -> None:
    wrong = fedldp_command("audit", "--mechanism", "audited_by_test:Wrong", "--quick",
                           "--trials", 500, "--workers", 1, "--json")  # fmt: skip
    assert wrong.status == 1
    assert json.loads(wrong.out)["verdict"] == "bug"


@pytest.mark.parametrize(
    "arguments",
    [("no-such-recipe",), ("quickstart", "--mechanism", "two_point"), ("--mechanism", "nothing"),
     ("--confidence", 1.0), ("--confidence", 0),
     ("--trials", 0), ("--mechanism", "json:dumps")],
    ids=str,
)  # fmt: skip
def test_names_that_cannot_be_audited_are_refused(fedldp_command: Any, arguments: Any) -> None:
    fedldp_command("audit", *arguments).assert_refused()


def test_a_mechanism_that_accepts_no_setting_is_an_error() -> None:
    with pytest.raises(ConfigError, match="none of the audit's settings"):
        audit("", [TwoPoint], effort=replace(ONE, mechanism_settings=((1e9, 1),)))
