"""CLDP-Fed: the distribution of its reports, the effect of a round, and its claim and true cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.protocol.roles import State, publish_weights
from fedldp.protocol.wire import Report
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, sender_of

PROBLEM = Problem((1, 8, 8), 10, 1437)
START = State(weights=np.linspace(-1, 1, 650).astype(np.float32))


def roles_of(**settings: Any) -> Roles:
    return Roles(fedldp.recipe("cldp-fed-digits", **settings), PROBLEM)


def reports_of(roles: Roles, updates: np.ndarray) -> list[Report]:
    told = publish_weights(START)
    return [
        roles.encode((START.weights + update).astype(np.float32), told, sender_of(1, index))
        for index, update in enumerate(updates)
    ]


def added(roles: Roles, updates: np.ndarray) -> np.ndarray:
    following, _ = roles.aggregate(reports_of(roles, updates), START)
    return following.weights - START.weights.astype(np.float64)


def test_changes_are_clipped_coordinate_by_coordinate() -> None:
    updates = np.random.default_rng(0).normal(0, 1, (4, 650))
    roles = roles_of(alpha=1.0, clip=0.25, precision=10)
    expected = np.clip(updates, -0.25, 0.25).mean(axis=0)
    np.testing.assert_allclose(added(roles, updates), expected, atol=1e-6)


def test_alpha_is_claimed_and_the_pure_epsilon_of_all_weights_is_stated() -> None:
    """LDP-Fed's alpha 1, c 1 and ten digits, from Sun, Qian, Chen 2021, section 2."""
    config = fedldp.recipe("cldp-fed-digits", alpha=1.0, clip=1.0, precision=10, rounds=15)
    privacy = plan(config, PROBLEM).privacy
    assert privacy.claim.epsilon == 1.0
    assert privacy.claim.unit == "weight"
    assert "one step of 1e-10" in privacy.claim.source
    pure = {g.unit: g.epsilon for g in privacy.guarantees if g.kind == "pure"}
    assert pure["weight"] == pytest.approx(39.3, abs=0.05)
    assert pure["client-round"] == pytest.approx(650 * pure["weight"], rel=1e-12)
    assert pure["client-run"] == pytest.approx(15 * 650 * pure["weight"], rel=1e-12)
