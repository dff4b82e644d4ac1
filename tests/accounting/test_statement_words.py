"""The assumptions of a line say no less than its proof needs."""

from __future__ import annotations

from typing import Any

import pytest

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.core.kinds import AS_DRAWN, TAKES_PART
from fedldp.simulation.plan import plan, problem_of


def planned(recipe: str, **changes: Any) -> Statement:
    config = fedldp.recipe(recipe, **changes)
    return plan(config, problem_of(config, None)).privacy


@pytest.mark.slow
def test_the_rounds_that_a_line_assumes_are_enough_for_every_client() -> None:
    # Client 0, with budget 2, is drawn once, and client 1, with budget 1, three times, so the
    # largest cost is 3 d. If client 0 were drawn three times, as "at most 3 rounds" allows, it
    # would cost 6 d.
    changes = {"num_clients": 3, "clients_per_round": 1, "rounds": 6, "seed": 5}
    privacy = planned("quickstart", epsilon=[2.0, 1.0, 1.0], **changes)
    for line in privacy.guarantees:
        if line.unit == "client-run":
            assert not TAKES_PART.is_in(line.assumptions)
            assert AS_DRAWN in line.assumptions
    pure = next(g for g in privacy.guarantees if g.unit == "client-run")
    assert pure.epsilon == 3 * 650
    same = planned("quickstart", epsilon=1.0, **changes).guarantees
    assert all(
        TAKES_PART(rounds=3) in line.assumptions for line in same if line.unit == "client-run"
    )
