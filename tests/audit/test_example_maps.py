"""Features that are fitted on rows are found; features of one example pass."""

from __future__ import annotations

from typing import Any

import planted_features
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import KINDS
from fedldp.audit.efforts import QUICK
from fedldp.audit.example_maps import PlannedMapGame
from fedldp.audit.observations import AuditKeys
from fedldp.audit.plans import planned_games
from fedldp.audit.playing import play
from fedldp.simulation.plan import problem_of

CONFIDENCE = 0.999


def found(config: RunConfig, seed: int = 0) -> Any:
    game = PlannedMapGame(config, problem_of(config, None))
    (row,) = game.rows(AuditKeys(seed), CONFIDENCE, None)
    return row


@pytest.mark.parametrize("name", ["batch_mean", "batch_scale"])
def test_features_that_are_fitted_on_rows_are_found(name: str) -> None:
    row = found(getattr(planted_features, name)())
    assert row.verdict == "bug"
    assert row.proven == 0 < row.lower
    assert row.attack.startswith("features of the other examples compared: different in")


@pytest.mark.parametrize("name", ["running", "digest_of_rows"])
def test_features_that_remember_rows_are_found(name: str) -> None:
    row = found(getattr(planted_features, name)())
    assert row.verdict == "bug"
    assert row.attack.startswith("the same data set mapped twice: features differed in 140 of 140")


@pytest.mark.parametrize("seed", range(20))
def test_the_clean_twin_passes(seed: int) -> None:
    row = found(planted_features.public(), seed)
    assert (row.verdict, row.lower) == ("ok", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_fedldps_own_features_pass(kind: str) -> None:
    assert found(fedldp.recipe("quickstart", features=kind, model="logistic")).verdict == "ok"


@pytest.mark.slow
def test_an_audit_of_a_run_with_features_has_this_game() -> None:
    def games(config: RunConfig) -> list[Any]:
        every = planned_games(config, problem_of(config, None), QUICK)
        return [each for each in every if isinstance(each, PlannedMapGame)]

    assert not games(fedldp.recipe("quickstart"))
    (game,) = games(planted_features.batch_mean())
    audit = play("", [game], confidence=CONFIDENCE, trials=None, seed=0)
    assert audit.verdict == "bug"
    assert audit.as_json()["rows"][0]["setting"] == "features"
