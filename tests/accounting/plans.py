"""Statement lines of a planned run of the quickstart, for tests of printed statements."""

from __future__ import annotations

from typing import Any

import fedldp
from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.simulation.plan import Plan, plan, problem_of

SIZE = 650
"""The number of weights in the quickstart's model."""


def planned(**settings: Any) -> Plan:
    config = fedldp.recipe("quickstart", **settings)
    return plan(config, problem_of(config, None))


def line(made: Plan, unit: str, adversary: str, kind: str) -> dict[str, Any]:
    (found,) = (
        g
        for g in made.privacy["guarantees"]
        if (g["unit"], g["adversary"], g["kind"]) == (unit, adversary, kind)
    )
    return dict(found)


def event_of(made: Plan, client: int = 0) -> BinaryRandomizedResponse:
    event = made.config.algorithm(made.problem).encoder(client).event()
    assert isinstance(event, BinaryRandomizedResponse)
    return event
