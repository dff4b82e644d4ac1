"""Features that are fitted on rows are found; features of one example pass."""

from __future__ import annotations

from typing import Any

import planted_features as planted
import pytest
from planted import changed

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import KINDS
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import AuditKeys
from fedldp.audit.plans import planned_games
from fedldp.audit.system_checks import MapCheck
from fedldp.simulation.plan import problem_of


def found(config: RunConfig) -> Any:
    check = MapCheck.of(config, problem_of(config, None))
    assert check is not None
    (row,) = check.play(AuditKeys(0), 0.999)
    return row


@pytest.mark.parametrize(
    ("kind", "attack"),
    [
        (planted.BatchMean, "features of the other examples compared: different in"),
        (planted.Running, "the same data set mapped twice: features differed in 140 of 140"),
    ],
)
def test_features_that_depend_on_other_rows_are_found(kind: Any, attack: str) -> None:
    config = changed(planted.FeaturesConfig, kind=kind)()
    row = found(config)
    assert row.verdict == "bug"
    assert row.proven == 0
    assert row.attack.startswith(attack)


def test_features_of_one_example_pass() -> None:
    row = found(planted.FeaturesConfig())
    assert (row.verdict, row.lower) == ("ok", 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fedldps_own_features_pass(kind: str) -> None:
    assert found(fedldp.recipe("quickstart", features=kind, model="logistic")).verdict == "ok"


@pytest.mark.slow
def test_an_audit_of_a_run_with_features_has_this_game() -> None:
    config = planted.FeaturesConfig()
    games = planned_games(config, problem_of(config, None), QUICK)
    assert MapCheck in map(type, games)
