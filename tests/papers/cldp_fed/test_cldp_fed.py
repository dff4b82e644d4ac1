"""CLDP-Fed: the distribution of its reports, the effect of a round, and its claim and true cost."""

from __future__ import annotations

import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.simulation.plan import plan

PROBLEM = Problem((1, 8, 8), 10, 1437)


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
