"""PrivUnit FL: how a round changes the weights, the statement of a run, and its mechanism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.accounting.events import PureReport
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.k_rr import KRR
from fedldp.papers.privunit_fl.mechanism import PrivUnitScalar
from fedldp.protocol.roles import State, publish_weights
from fedldp.protocol.wire import Counted
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, sender_of

PROBLEM = Problem((1, 8, 8), 10, 1437)


def one_round(updates: np.ndarray, **settings: Any) -> np.ndarray:
    """Return how a round changes the weights, given each client's change."""
    roles = Roles(fedldp.recipe("privunit-fl-digits", **settings), PROBLEM)
    start = State(weights=np.linspace(-1, 1, 650).astype(np.float32))
    told = publish_weights(start)
    reports = [
        roles.encode((start.weights + update).astype(np.float32), told, sender_of(1, index))
        for index, update in enumerate(updates)
    ]
    following, _ = roles.aggregate(reports, start)
    return following.weights - start.weights.astype(np.float64)


def updates_of(norms: list[float]) -> np.ndarray:
    drawn = np.random.default_rng(0).normal(size=(len(norms), 650))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * np.array(norms)[:, None]


def test_with_a_huge_budget_a_round_adds_the_mean_of_the_clipped_changes() -> None:
    found = one_round(updates_of([0.4, 0.8, 8.0]), epsilon=1e6, clip=1.0)
    clipped = updates_of([0.4, 0.8, 1.0])
    np.testing.assert_allclose(found, clipped.mean(axis=0), atol=1e-4)


def test_the_statement_is_the_claim_for_a_round_and_its_sum_over_rounds() -> None:
    config = fedldp.recipe("privunit-fl-digits", epsilon=32.0, rounds=15)
    privacy = plan(config, PROBLEM).privacy
    assert privacy.claim.epsilon == 32.0
    assert privacy.claim.unit == "client-round"
    pure = {g.unit: g.epsilon for g in privacy.guarantees if g.kind == "pure"}
    assert pure["client-round"] == pytest.approx(32.0, rel=1e-6)
    assert pure["client-round"] <= 32.0
    assert pure["client-run"] == pytest.approx(15 * 32.0, rel=1e-6)
    assert {g.adversary for g in privacy.guarantees} == {"server"}
    assert all(line.is_idealised for line in privacy.guarantees)


def test_shuffled_messages_are_refused() -> None:
    roles = Roles(fedldp.recipe("privunit-fl-digits"), PROBLEM)
    messages = Counted(round=1, size=650, chunk=1, ones=np.zeros(650, np.int64), reports=1)
    with pytest.raises(RunError, match="not counts of shuffled"):
        roles.aggregate([messages])


# The mechanism: direction and length, each with its own budget


def length_estimate(mechanism: PrivUnitScalar, level: int) -> float:
    """Return what a report with this level adds to the sum, along a direction of 1."""
    assert mechanism.length.categories <= 256
    aggregate = mechanism.aggregate(3)
    aggregate.add(np.array([1, 0, 0], "<f4").tobytes() + bytes([level]))
    return float(aggregate.mean()[0] * mechanism.cap(3).mean)


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 30.0])
def test_the_length_is_estimated_as_by_scalar_dp(epsilon: float) -> None:
    """a (J - b), a = (e^eps + k)/(e^eps - 1) r_max/k, b = k (k + 1)/(2 (e^eps + k))."""
    mechanism = PrivUnitScalar(epsilon, 2.5, 0.5)
    budget = epsilon / 2
    k = math.ceil(math.exp(budget / 3))
    assert mechanism.length == KRR(budget, k + 1)
    a = (math.exp(budget) + k) / math.expm1(budget) * 2.5 / k
    b = k * (k + 1) / (2 * (math.exp(budget) + k))
    for level in range(k + 1):
        assert length_estimate(mechanism, level) == pytest.approx(a * (level - b), rel=1e-9)


@pytest.mark.parametrize(
    ("share", "epsilon", "size"),
    [
        (0.01, 0.001, 1),
        (0.1, 0.1, 2),
        (0.9, 4.0, 3),
        (0.01, 32.0, 650),
        (0.1, 500.0, 21_840),
        (0.9, 5000.0, 2),
    ],
)
def test_both_budgets_add_up_to_epsilon(epsilon: float, share: float, size: int) -> None:
    mechanism = PrivUnitScalar(epsilon, 1.0, share)
    event = mechanism.event(size)
    assert isinstance(event, PureReport)
    assert event.idealised
    direction, length = mechanism.cap(size).epsilon, mechanism.length.realised_epsilon
    assert direction + length <= event.epsilon <= epsilon
    assert length <= min(32.0, epsilon * share)
    if mechanism.cap(size).mean < 0.999:  # above, floats cannot distinguish the cap from a point
        assert event.epsilon == pytest.approx(epsilon, rel=1e-6)


def test_a_zero_update_is_sent_like_any_other() -> None:
    mechanism = PrivUnitScalar(4.0, 1.0)
    stream = Stream.simulation(seed=0, round=1, client=0, purpose="mechanism")
    for values in (np.zeros(50), np.full(50, 5e-324), np.full(50, 1e308), np.eye(50)[0]):
        for _ in range(20):
            payload = mechanism.encode(values, stream)
            direction = np.frombuffer(payload, "<f4", 50).astype(np.float64)
            assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-5)
            assert len(payload) == 50 * 4 + 1


def test_privunit_is_for_simulation_only() -> None:
    with pytest.raises(PrivacyError, match="privunit_scalar protects real numbers"):
        PrivUnitScalar(1.0, 1.0).encode(np.ones(3), Stream.fresh())
