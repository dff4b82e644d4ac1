"""Composition of pure mechanisms that often reveal nothing, and of several releases of one kind."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
from accounting_oracles import lattice_delta

import fedldp
from fedldp.accounting.events import (
    GaussianReport,
    InClear,
    Memoized,
    PureReport,
    SelfComposed,
)
from fedldp.accounting.guarantees import guarantees_of
from fedldp.accounting.numerics.compose import (
    revealing_epsilon,
    revealing_lower,
    two_valued_epsilon,
)
from fedldp.accounting.prices import cost
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import find_mechanism
from fedldp.mechanisms.k_rr import KRR
from fedldp.simulation.plan import plan, problem_of


def planned(name: str, unit: str, **settings: Any) -> dict[str, dict[str, Any]]:
    config = fedldp.recipe(name, **settings)
    lines = plan(config, problem_of(config, None)).privacy.guarantees
    return {g.kind: g for g in lines if (g.unit, g.adversary) == (unit, "server")}


# The composition


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "telling", "count", "delta"),
    [
        (0.7, 0.515, 650, 1e-5),
        (3.0, 0.9134, 650, 1e-2),
        (1.0, 0.01, 2000, 1e-9),
        (0.01, 0.5, 9750, 1e-2),
        (8.0, 0.2, 40, 1e-9),
    ],
)
def test_the_bounds_enclose_the_power_of_a_polynomial(
    epsilon: float, telling: float, count: int, delta: float
) -> None:
    upper = revealing_epsilon({(epsilon, telling): count}, delta)
    lower = revealing_lower({(epsilon, telling): count}, delta)
    assert lattice_delta(epsilon, telling, count, upper) <= delta * (1 + 1e-9)
    assert lattice_delta(epsilon, telling, count, upper * (1 - 2e-6)) > delta
    assert lattice_delta(epsilon, telling, count, lower) >= delta * (1 - 1e-9)
    assert lower > upper * (1 - 2e-6)


# What statements print


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "round_cost", "before"),
    [("unary", 0.7, 130.5982, 222.3527), ("k_rr", 3.0, 1754.9061, 1883.9367)],
)
def test_categories_are_composed_with_their_own_losses(
    mechanism: str, epsilon: float, round_cost: float, before: float
) -> None:
    found = planned("quickstart", "client-round", mechanism=mechanism, epsilon=epsilon)
    line = found["approximate"]
    assert line.epsilon == pytest.approx(round_cost, abs=1e-4)
    assert two_valued_epsilon(epsilon, 650, 1e-5) == pytest.approx(before, abs=1e-4)
    # The mechanism's own law, computed independently; the levels at both ends attain the bound.
    own: Any
    if mechanism == "k_rr":
        own = KRR(epsilon, 4)
        telling = (math.exp(epsilon) + 1) / (math.exp(epsilon) + 3)
    else:
        own = find_mechanism("unary")(epsilon, 3, "symmetric")
        p = 1 / (1 + math.exp(-epsilon / 2))
        telling = p**2 + (1 - p) ** 2
    assert own.revealing_probability == pytest.approx(telling, rel=1e-12)
    assert lattice_delta(epsilon, telling, 650, line.epsilon) <= 1e-5 * (1 + 1e-8)
    assert lattice_delta(epsilon, telling, 650, line.lower) >= 1e-5 * (1 - 1e-8)
    assert line.lower == pytest.approx(line.epsilon, rel=1e-7)
    assert line.lower < line.epsilon


# Several releases of one kind


def test_several_releases_cost_what_that_many_single_ones_cost() -> None:
    event = SelfComposed(each=PureReport(epsilon=0.5), count=300)
    for times, unit in itertools.product((1, 3), ("client-round", "client-run")):
        many = guarantees_of(Counter({event: times}), unit, 1e-5)
        singly = guarantees_of(Counter({event.each: 300 * times}), unit, 1e-5)
        assert [(g.kind, g.epsilon, g.lower) for g in many] == [
            (g.kind, g.epsilon, g.lower) for g in singly
        ]
    assert many[1].epsilon == two_valued_epsilon(0.5, 900, 1e-5)
    for kind in ("pure", "zcdp", "gdp"):
        assert cost(event, kind) == pytest.approx(300 * cost(event.each, kind), rel=1e-14)
    assert math.isinf(cost(SelfComposed(each=InClear(what="labels"), count=2), "pure"))
    assert math.isinf(cost(SelfComposed(each=GaussianReport(mu=1.0, rho=0.5), count=2), "pure"))
    assert cost(SelfComposed(each=GaussianReport(mu=1.0, rho=0.5), count=2), "zcdp") == 1.0


def test_several_releases_drawn_once_are_an_unknown_event() -> None:
    with pytest.raises(ConfigError, match="cannot be nested there"):
        SelfComposed(each=Memoized(drawn=PureReport(epsilon=1.0), identity="all"), count=2)
    clear = SelfComposed(each=InClear(what="labels"), count=2)
    (line,) = guarantees_of(Counter({clear: 1}), "client-run", 1e-5)
    assert line.kind == "none"
