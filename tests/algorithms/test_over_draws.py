"""What one seed draws is not what the configuration guarantees: the bound over draws is stated."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

import pytest

from fedldp.accounting.guarantees import Adversary, Guarantee, Unit
from fedldp.accounting.proven import together
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.algorithms.systems import find_system
from fedldp.core.kinds import AS_DRAWN, AS_DRAWN_HERE, TAKES_PART
from fedldp.deployment.agreeing import agree
from fedldp.simulation.plan import plan, problem_of, released

PROBLEM = Problem((1, 8, 8), 10, 60)
SHARED: dict[str, Any] = {
    "dataset": "digits", "model": "linear", "num_clients": 8, "rounds": 4, "learning_rate": 0.1,
}  # fmt: skip
DRAWN_TWO = {"participation": "drawn", "clients_per_round": 2}
OWN = {"epsilon": [0.1] * 4 + [0.2] * 4}
BITS = {"mechanism": "two_point", "channel": "shuffle"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "pure reports": ("composed", {"epsilon": 0.1, **DRAWN_TWO}),
    "Gaussian": ("composed", {"mechanism": "gaussian", "bound": "norm", "epsilon": 1.0,
                              **DRAWN_TWO}),
    "shuffled": ("composed", {"epsilon": 0.5, **BITS, **DRAWN_TWO}),
    "own budgets": ("composed", {**OWN, "mechanism": "two_point", **DRAWN_TWO}),
    "own budgets, shuffled": ("composed", {**OWN, **BITS, **DRAWN_TWO}),
    "own budgets, shuffled, in turns": (
        "composed",
        {**OWN, **BITS, "participation": "balanced", "clients_per_round": 4, "rounds": 2},
    ),
    "own budgets, shuffled, once": (
        "composed", {**OWN, **BITS, "participation": "once", "rounds": 2}
    ),
    "a client's budget": (
        "composed", {"epsilon": 0.1, "client_budget": {"limit": 195.0}, **DRAWN_TWO}
    ),
    "a client's budget, shuffled": (
        "composed", {"epsilon": 0.1, "client_budget": {"limit": 130.0}, **BITS, **DRAWN_TWO}
    ),
    "claimed records": ("nbafl", {"epsilon": 8.0, "clip": 1.0, "exposures": 1,
                                  "min_client_examples": 1, "clients_per_round": 2}),
    "selected first": ("personalized_sound", {"epsilon": [7.0] * 4 + [8.0] * 4, "clip": 1.0,
                                              "participation": "preselected"}),
}  # fmt: skip
UNDECIDED: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("composed", {"epsilon": 0.1}),
    "once": ("composed", {"epsilon": 0.1, "participation": "once"}),
    "in turns": (
        "composed", {"epsilon": 0.1, "participation": "balanced", "clients_per_round": 2}
    ),
    "everybody drawn": (
        "composed", {"epsilon": 0.1, "participation": "drawn", "clients_per_round": 8}
    ),
    "once, shuffled": ("composed", {"epsilon": 0.1, **BITS, "participation": "once"}),
    "nothing proven": ("fedavg", {"clients_per_round": 2}),
    "in secret": ("central_dp", {"noise_multiplier": 1.0, "clip": 1.0, "clients_per_round": 2}),
}  # fmt: skip


def made(case: tuple[str, dict[str, Any]], **changes: Any) -> RunConfig:
    system, given = case
    return find_system(system).model_validate({**SHARED, "system": system, **given, **changes})


def figures(statement: Statement) -> dict[tuple[str, str, float], float]:
    return {
        (line.unit, line.adversary, line.delta): line.epsilon
        for line in statement.guarantees
        if line.epsilon is not None
    }


def bounds(statement: Statement) -> dict[tuple[str, str, float], float]:
    """Return the bounds of the warning; without a bound, the line's own figure."""
    found = figures(statement)
    for warning in AS_DRAWN_HERE.among(statement.warnings):
        for bound in warning.values["bounds"]:
            epsilon, *key = itemgetter("epsilon", "unit", "adversary", "delta")(bound.values)
            assert epsilon > found[tuple(key)]
            found[tuple(key)] = epsilon
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_seed_and_no_runs_together_cost_more_than_the_bound_over_draws(
    case: tuple[str, dict[str, Any]],
) -> None:
    plans = [plan(made(case, seed=seed), PROBLEM) for seed in range(6)]
    stated = [each.privacy for each in plans]
    limits = [bounds(each) for each in stated]
    for key, limit in limits[0].items():
        assert all(each[key] == pytest.approx(limit, rel=1e-9) for each in limits)
        assert all(figures(each)[key] <= limit * (1 + 1e-9) for each in stated)
    spread = {key: {figures(each)[key] for each in stated} for key in limits[0]}
    assert any(len(each) > 1 for each in spread.values())
    runs = [released(each.config, PROBLEM, each.privacy) for each in plans[:3]]
    unit: Unit = "record" if case[0] == "nbafl" else "client-run"
    adversary: Adversary = "shuffled-server" if case[1].get("channel") == "shuffle" else "server"
    one = [epsilon for (of, who, _), epsilon in limits[0].items()
           if of == unit and who in (adversary, "server")]  # fmt: skip
    over = {1: min(one)}
    for some in (runs[:1], runs[1:2], runs[:2], runs[1:]):
        found = together(some, unit, adversary).proven
        assert found.epsilon is not None
        over_draws = found.epsilon
        for warning in AS_DRAWN_HERE.among(found.conditions):
            (bound,) = warning.values["bounds"]
            assert (bound.values["unit"], bound.values["adversary"]) == (unit, adversary)
            over_draws = bound.values["epsilon"]
            assert over_draws > found.epsilon
            over.setdefault(len(some), over_draws)
        if len(some) == 1 or over_draws > found.epsilon:
            assert over_draws == pytest.approx(over[len(some)], rel=1e-9)
    assert over[1] < over.get(2, math.inf)  # none if nobody could be drawn more often


@pytest.mark.parametrize("case", UNDECIDED.values(), ids=UNDECIDED)
def test_there_is_no_bound_over_draws_where_draws_decide_nothing(
    case: tuple[str, dict[str, Any]],
) -> None:
    found = plan(made(case), PROBLEM).privacy
    assert not AS_DRAWN_HERE.is_in(found.warnings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pure reports", "Gaussian", "shuffled"])
def test_the_bound_is_that_of_a_client_that_answers_every_round(name: str) -> None:
    """The bound is attained if one is drawn each time."""
    limit = bounds(plan(made(CASES[name]), PROBLEM).privacy)
    every = made(CASES[name], participation="all", clients_per_round=None, num_clients=2)
    assert figures(plan(every, PROBLEM).privacy) == pytest.approx(limit, rel=1e-9)


def test_an_agreement_states_the_bound_over_draws() -> None:
    config = made(CASES["Gaussian"])
    sites = {f"site-{index}": f"{index:064x}" for index in range(8)}
    agreed = figures(agree(config, PROBLEM, sites, channel="named").planned)
    limit = bounds(plan(config, PROBLEM).privacy)
    assert agreed == pytest.approx({key: limit[key] for key in agreed}, rel=1e-9)


@pytest.mark.slow
def test_the_rounds_that_a_line_assumes_are_enough_for_every_client() -> None:
    """With one seed, the client with budget 2 is drawn once, and one with budget 1 three times.

    So the largest cost is 3 d. If the first were drawn three times, as "at most 3 rounds" allows,
    it would cost 6 d.
    """
    given = {"num_clients": 3, "clients_per_round": 1, "rounds": 6, "seed": 5}

    def lines(epsilon: Any) -> list[Guarantee]:
        config = find_recipe("quickstart").config.changed(epsilon=epsilon, **given)
        found = plan(config, problem_of(config, None)).privacy.guarantees
        return [line for line in found if line.unit == "client-run"]

    pure, *_ = found = lines([2.0, 1.0, 1.0])
    assert pure.epsilon == 3 * 650
    for line in found:
        assert not TAKES_PART.is_in(line.assumptions)
        assert AS_DRAWN in line.assumptions
    assert all(TAKES_PART(rounds=3) in line.assumptions for line in lines(1.0))
