"""Targets for a person at one site and at several: the least noise that meets them is found."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tables import table_of

import fedldp
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.core.errors import ConfigError
from fedldp.simulation.plan import plan, problem_of


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize(
    ("channel", "adversary"),
    [("named", "server"), ("sum", "summing-server"), ("central", "downlink")],
)
def test_noise_is_the_least_that_meets_the_target(channel: str, adversary: str, sites: int) -> None:
    target = {"unit": "person", "epsilon": 2.0, "delta": 1e-6, "adversary": adversary}
    config = fedldp.recipe(
        "person-dp-sgd-digits", channel=channel, persons_at_sites=sites, target=target
    )
    planned = plan(config, replace(problem_of(config, None), people=700))
    found = planned.privacy.guarantees
    (line,) = (each for each in found if (each.unit, each.adversary) == ("person", adversary))
    assert line.epsilon is not None
    assert 1.999 < line.epsilon <= 2.0
    (of_round, *_) = table_of(planned.releases).values()
    event: Any = next(iter(of_round.values()))
    person = event.person
    shares = config.num_clients if channel == "sum" else 1
    mu = math.sqrt(config.rounds * person.squared_distance / (shares * person.variance))
    times = math.sqrt(sites) if channel == "named" else sites
    assert line.epsilon == pytest.approx(gaussian_epsilon(times * mu, 1e-6), rel=1e-9)


def test_a_system_without_a_guarantee_for_people_says_so() -> None:
    target = {"unit": "person", "epsilon": 2.0}
    config = fedldp.recipe("quickstart", mechanism="gaussian", channel="named", target=target)
    with pytest.raises(ConfigError, match="nothing is proven per person against the server at"):
        plan(config, problem_of(config, None))
