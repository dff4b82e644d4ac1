"""A shuffled report that names its sender is found; a report with a random seed passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import planted_systems as planted
import pytest
from planted import changed

from fedldp.algorithms.config import RunConfig
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import AuditKeys
from fedldp.audit.plans import planned_games
from fedldp.audit.senders import PlannedSenderGame
from fedldp.simulation.plan import problem_of


def games(config: RunConfig) -> list[PlannedSenderGame]:
    found = planned_games(config, problem_of(config, None), QUICK)
    return [each for each in found if isinstance(each, PlannedSenderGame)]


def found(config: RunConfig, seed: int = 0) -> Any:
    (game,) = games(config)
    few = replace(game, effort=replace(QUICK, system_explore=60))
    (row,) = few.rows(AuditKeys(seed), 0.999, 100)
    return row


@pytest.mark.slow
def test_a_seed_that_names_the_sender_is_found() -> None:
    row = found(changed(planted.shuffled, algorithm=planted.by(planted.NamesSender))())
    assert row.verdict == "bug"
    assert row.proven == 0 < row.lower


@pytest.mark.slow
def test_a_seed_that_is_kept_is_found_in_two_rounds() -> None:
    row = found(changed(planted.shuffled, algorithm=planted.by(planted.KeepsSeed))(rounds=2))
    assert row.verdict == "bug"
    assert "agree between rounds" in row.attack or "equal payloads" in row.attack


@pytest.mark.slow
def test_the_correct_twin_with_drawn_seeds_passes() -> None:
    row = found(planted.shuffled(rounds=2))
    assert (row.verdict, row.lower) == ("ok", 0)
