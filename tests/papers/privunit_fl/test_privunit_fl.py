"""PrivUnit FL: how a round changes the weights, and the statement of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import RunError
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
