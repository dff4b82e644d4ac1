"""A statement's line is at most the setting, also where sizes do not divide.

Two ways of computing it are compared with the setting: the statement's own, and one that only
counts who really adds noise to which sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from subjects import configs

from fedldp.accounting.accountants import within
from fedldp.accounting.events import GaussianShare
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.protocol.keys import draws_of_seed
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import problem_of, stated_without_shuffler
from fedldp.testing.cases import SEED

PEOPLE = recipes()["person-dp-sgd-digits"].config
CONFIGS = configs() | {
    "people, a sum": PEOPLE.changed(channel="sum"),
    "people, held out": PEOPLE.changed(channel="sum", held_out_people=0.5),
    "people, own steps": PEOPLE.changed(steps_per_round=3),
    "people, central": PEOPLE.changed(channel="central"),
}
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


def cases() -> Iterator[Any]:
    for name, config in CONFIGS.items():
        meaning = config.composition.calibration.meaning
        if meaning is None or meaning.standing != "proven":
            continue
        for size in SIZES:
            for untrusted in UNTRUSTED:
                if (found := sized(config, size, untrusted)) is not None:
                    yield pytest.param(found, id=f"{name}, {size}, {untrusted} untrusted")


CASES = list(cases())
IN_SUMS = [
    case for case in CASES if case.values[0].composition.calibration.meaning.adversary
    == "summing-server"
]  # fmt: skip


def test_every_kind_of_size_is_tried() -> None:
    for size in SIZES:
        assert any(f", {size}, " in str(case.id) for case in CASES), size
        assert any(f", {size}, 1 " in str(case.id) for case in IN_SUMS), size


@pytest.mark.parametrize("config", CASES)
@pytest.mark.sampled(20)
def test_a_line_is_at_most_its_setting(config: RunConfig) -> None:
    meaning = config.composition.calibration.meaning
    assert meaning is not None
    stated = stated_without_shuffler(config, problem_of(config, None))
    lines = [
        line["epsilon"]
        for line in stated["guarantees"]
        if (line["unit"], line["adversary"]) == (meaning.unit, meaning.adversary)
    ]
    assert lines
    most = max(np.atleast_1d(config.epsilon).tolist())
    assert max(lines) <= most


@pytest.mark.parametrize("config", IN_SUMS)
@pytest.mark.sampled(20)
def test_the_honest_noise_in_each_sum_is_enough(config: RunConfig) -> None:
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
