"""The distributed discrete Gaussian: the effect of a round, and the cost of sums and of reports."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import ClientBudget
from fedldp.core.errors import RunError
from fedldp.core.kinds import TAKES_PART
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import State, publish_weights
from fedldp.protocol.wire import Report
from fedldp.simulation.engine import simulate
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, sender_of

PROBLEM = Problem((1, 8, 8), 10, 1437)
START = np.linspace(-1, 1, 650).astype(np.float32)


def config_of(**settings: Any) -> Any:
    return fedldp.recipe("distributed-gaussian-digits", **settings)


def lines(config: Any) -> dict[tuple[str, str], Guarantee]:
    return {(line.unit, line.adversary): line for line in plan(config, PROBLEM).privacy.guarantees}


def epsilon_of_run(config: Any, adversary: str = "summing-server") -> float:
    return float(lines(config)["client-run", adversary].epsilon)


def reports_of(roles: Roles, updates: np.ndarray, *, start: np.ndarray = START) -> list[Report]:
    told = publish_weights(State(weights=start))
    return [
        roles.encode((start + update).astype(np.float32), told, sender_of(1, index))
        for index, update in enumerate(updates)
    ]


def one_round(updates: np.ndarray, **settings: Any) -> np.ndarray:
    """Return how a round changes the weights, given each client's change."""
    roles = Roles(config_of(num_clients=len(updates), **settings), PROBLEM)
    following, _ = roles.aggregate(reports_of(roles, updates), State(weights=START))
    return following.weights - START.astype(np.float64)


def some_updates(count: int, norm: float) -> np.ndarray:
    drawn = np.random.default_rng(0).normal(size=(count, 650))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * norm


# A round


def test_with_a_huge_budget_a_round_adds_the_mean_of_the_clipped_changes() -> None:
    updates = some_updates(5, 0.8) * np.array([0.5, 1, 1, 1, 10])[:, None]
    clipped = some_updates(5, 0.8) * np.array([0.5, 1, 1, 1, 1.25])[:, None]
    found = one_round(updates, epsilon=1e4, clip=1.0, rounds=1, code_bits=32)
    np.testing.assert_allclose(found, clipped.mean(axis=0), atol=0.02)


def test_the_noise_of_a_round_is_exactly_what_the_sum_needs() -> None:
    clients, rounds, clip = 200, 10, 0.5
    updates = np.repeat(some_updates(1, 0.3), clients, axis=0)
    found = one_round(updates, epsilon=4.0, clip=clip, rounds=rounds)
    (mu,) = (m for m in [_mu_at(4.0)])
    deviation = 2 * clip * math.sqrt(rounds) / mu / clients
    error = found - updates[0]
    assert np.std(error) == pytest.approx(deviation, rel=0.12)
    assert abs(error @ updates[0] / 0.3) < 4 * deviation


def _mu_at(epsilon: float) -> float:
    low, high = 1e-3, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_epsilon(middle, 1e-5) < epsilon else (low, middle)
    return low


def test_a_sum_gives_what_its_reports_give_one_by_one() -> None:
    roles = Roles(config_of(num_clients=6), PROBLEM)
    summing = roles.config.algorithm(PROBLEM).summing()
    assert summing is not None
    assert roles.config.composition.channel.kind == "sum"
    reports = reports_of(roles, some_updates(6, 0.3))
    words = sum(summing.words(report).astype(np.uint64) for report in reports)
    summed = summing.total(1, np.asarray(words) % 2**summing.bits, 6)
    start = State(weights=START)
    np.testing.assert_array_equal(
        roles.aggregate(reports, start)[0].weights, roles.aggregate([summed], start)[0].weights
    )
    with pytest.raises(RunError, match="no report"):
        roles.aggregate([])


# What it costs


def test_if_fewer_clients_answer_the_sum_protects_less() -> None:
    """If clients' budgets refuse, sums have fewer shares of noise, which the plan counts."""
    config = config_of(clients_per_round=60, rounds=2)
    event = config.algorithm(PROBLEM).release(0).mechanism.event(1024)
    once = event.squared_distance / (2 * event.variance)
    limited = config.changed(client_budget=ClientBudget(kind="zcdp", limit=1.5 * once))
    # Of the 60 clients in the second round, 20 were in the first, and refuse.
    expected = gaussian_epsilon(_mu_at(8.0) / math.sqrt(2) * math.sqrt(60 / 40), 1e-5)
    assert epsilon_of_run(limited) == pytest.approx(expected, rel=1e-5)
    result = simulate(limited)
    assert [record.clients for record in result.rounds] == [60, 40]
    assert result.privacy == plan(limited, PROBLEM).privacy


def test_clients_take_turns_that_all_of_them_can_count() -> None:
    config = config_of(num_clients=10, clients_per_round=4, rounds=7, epsilon=50.0)
    draws = draws_of_seed(3)
    times = np.zeros(10, int)
    for round in range(1, 8):
        there = list(participants(config, round, draws))
        assert there == sorted(set(there))
        assert len(there) == 4
        times[there] += 1
    assert set(times) == {2, 3}
    assert config.composition.participation.max_rounds(0) == 3
    assert TAKES_PART(rounds=3) in lines(config)["client-run", "summing-server"].assumptions
