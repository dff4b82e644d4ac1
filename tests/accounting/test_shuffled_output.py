"""Behind a shuffler that keeps budgets apart, a client with a budget of its own is not hidden."""

from __future__ import annotations

import math
from typing import Any

from accounting_oracles import two_valued

import fedldp
from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.simulation.plan import Plan, plan, problem_of

SIZE = 650
"""The number of weights in the quickstart's model."""


def planned(**settings: Any) -> Plan:
    config = fedldp.recipe("quickstart", **settings)
    return plan(config, problem_of(config, None))


def test_budgets_that_the_shuffler_keeps_apart_do_not_hide_each_other() -> None:
    lone = math.nextafter(326.0, 1e9)
    made = planned(mechanism="two_point_l1", clip=1e6, epsilon=[326.0] * 99 + [lone], rounds=1)
    # A client that is alone in its group is not hidden: its guarantee is the local one.
    event = made.config.algorithm(made.problem).encoder(99).event()
    assert isinstance(event, BinaryRandomizedResponse)
    lines = [g for g in made.privacy.guarantees if g.adversary == "shuffled-server"]
    assert {g.unit for g in lines} >= {"client-round", "client-run"}
    for line in lines:
        if line.unit != "weight":
            assert two_valued(event.epsilon, SIZE, line.epsilon) <= 1e-5
