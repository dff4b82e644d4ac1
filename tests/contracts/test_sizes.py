"""A statement's line is at most the setting, also where sizes do not divide.

Two ways of computing it are compared with the setting: the statement's own, and one that only
counts who really adds noise to which sum.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from subjects import subjects

from fedldp.accounting.accountants import within
from fedldp.accounting.events import GaussianShare
from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.protocol.keys import draws_of_seed
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import problem_of, stated_without_shuffler
from fedldp.testing.cases import SEED

SIZES: dict[str, dict[str, Any]] = {
    "all": {},
    "committees of 5 and 6": {"num_clients": 11, "committee": 5},
    "committees of 5, 6 and 6": {"num_clients": 17, "committee": 5},
    "cohorts of 3 and 4": {"num_clients": 7, "rounds": 2, "participation": "once"},
    "cohorts of 3, 4 and 4": {"num_clients": 11, "rounds": 3, "participation": "once"},
    "5 of 11": {"num_clients": 11, "clients_per_round": 5},
}
UNTRUSTED = (0, 1)


def sized(config: RunConfig, size: str, untrusted: int) -> RunConfig | None:
    """Return a configuration with other sizes; None if its system does not have them."""
    changes = {"rounds": 4, "untrusted_clients": untrusted, **SIZES[size]}
    clients = changes.get("num_clients", config.num_clients)
    for name in config.per_client:
        if isinstance(value := getattr(config, name), list):
            changes[name] = value[:1] * (clients - len(value)) + value[:clients]
    try:
        found = config.changed(**changes)
        found.algorithm(problem_of(found, None))
    except ConfigError:
        return None
    return found


def meaning_of(config: RunConfig) -> EpsilonMeaning | None:
    """Return what the setting ``epsilon`` covers, if that is proven."""
    found = config.composition.calibration.meaning
    return found if found is not None and found.standing == "proven" else None


PROVEN = {name: config for name, config in subjects().items() if meaning_of(config)}
IN_SUMS = {
    name: config
    for name, config in PROVEN.items()
    if (found := meaning_of(config)) and found.adversary == "summing-server"
}


def sizes_of(config: RunConfig) -> list[RunConfig]:
    """Return a configuration with each of the sizes that its system has."""
    made = (sized(config, size, untrusted) for size in SIZES for untrusted in UNTRUSTED)
    return [found for found in made if found is not None]


def test_every_kind_of_size_is_tried() -> None:
    for size in SIZES:
        assert any(sized(config, size, 1) for config in IN_SUMS.values()), size


@pytest.mark.slow
@pytest.mark.parametrize("config", PROVEN.values(), ids=PROVEN)
def test_a_line_is_at_most_its_setting(config: RunConfig) -> None:
    meaning = meaning_of(config)
    assert meaning is not None
    for found in sizes_of(config):
        stated = stated_without_shuffler(found, problem_of(found, None))
        lines = [
            line.epsilon
            for line in stated.guarantees
            if (line.unit, line.adversary) == (meaning.unit, meaning.adversary)
        ]
        assert lines
        last = getattr(found, "epsilon_growth", 1.0) ** (found.rounds - 1)
        assert max(lines) <= max(1.0, last) * max(np.atleast_1d(found.epsilon).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("config", IN_SUMS.values(), ids=IN_SUMS)
def test_the_honest_noise_in_each_sum_is_enough(config: RunConfig) -> None:
    for found in sizes_of(config):
        check_honest_noise(found)


def check_honest_noise(config: RunConfig) -> None:
    """Who is in which sum is counted here, not taken from the settings' own arithmetic."""
    algorithm = config.algorithm(problem_of(config, None))
    costs = np.zeros(config.num_clients)
    for round in range(1, config.rounds + 1):
        there = list(participants(config, round, draws_of_seed(SEED)))
        committee = config.committees.of if config.committee is not None else lambda client: 0
        for place in {committee(client) for client in there}:
            members = [client for client in there if committee(client) == place]
            honest = len(members) - config.untrusted_clients
            for client in members:
                share = share_of(algorithm.report_encoder(client).event())
                costs[client] += share.squared_distance / (share.variance * honest)
    assert costs.min() > 0
    epsilon = gaussian_epsilon(math.sqrt(costs.max()), config.delta)
    assert 0.9 * config.epsilon < epsilon <= config.epsilon


def share_of(event: Any) -> GaussianShare:
    (found,) = (each for each in within(event) if isinstance(each, GaussianShare))
    return found
