"""The rule for tables: N by the mechanism, and the settings that follow from it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

import fedldp
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import recipes
from fedldp.experiments.advising.rule import LENGTH, PATHS, RULED, by_rule, difficulty, ruled
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping

MU = {0.5: 0.142, 1.0: 0.268, 2.0: 0.502, 4.0: 0.925, 8.0: 1.666}


def config_of(channel: str = "named", **settings: Any) -> Any:
    return from_mapping(
        {
            "system": "person_dp_sgd", "dataset": "x", "num_clients": 5, "channel": channel,
            "model": "linear", "features": "unit-norm", "rounds": 5, "learning_rate": 1.0,
            "epsilon": 1.0, **settings,
        }
    )  # fmt: skip


def problem_of_people(people: int) -> Problem:
    return Problem((73,), 2, people, None, 5)


@pytest.mark.parametrize("epsilon", MU)
@pytest.mark.parametrize(
    ("settings", "divisor"),
    [
        ({"channel": "central"}, 1.0),
        ({"channel": "sum"}, 1.0),
        ({"channel": "named"}, math.sqrt(5)),
        ({"channel": "named", "persons_at_sites": 4}, math.sqrt(20)),
        ({"channel": "sum", "persons_at_sites": 3}, 3.0),
        ({"channel": "sum", "untrusted_clients": 1}, math.sqrt(5 / 4)),
    ],
)
def test_n_is_that_of_the_noise_on_a_sum(
    epsilon: float, settings: dict[str, Any], divisor: float
) -> None:
    """n mu/2, for one site a person and a sum; else by what the server gets."""
    assert gaussian_epsilon(MU[epsilon], 1e-5) == pytest.approx(epsilon, rel=5e-3)
    problem = Problem((73,), 2, 3000, None, 5, people=2000)
    found = difficulty(config_of(**settings, epsilon=epsilon), problem)
    assert found == pytest.approx(2000 * MU[epsilon] / 2 / divisor, rel=5e-3)


def test_neither_rounds_nor_stages_nor_a_target_change_n() -> None:
    problem, config = problem_of_people(1500), config_of("sum")
    found = difficulty(config, problem)
    staged = config.changed(rounds=60, measure_share=0.3, intercept_share=0.2, clip=7.0)
    assert difficulty(staged, problem) == found
    target = {"unit": "record", "epsilon": 1.0, "delta": 1e-5, "adversary": "summing-server"}
    assert difficulty(config_of("sum", epsilon=8.0, target=target), problem) == found


def test_two_classes_have_the_rule_of_the_trial() -> None:
    """N = 201 (a hospital of 1,500 people at epsilon 1): 10 rounds, clip 0.44."""
    found = ruled(n=201, shares=(0.87, 0.13), declared=True, spreads=True)
    assert (found["rounds"], found["clip"]) == (10, 0.443)
    assert found["learning_rate"] == pytest.approx(201 / (0.3 * LENGTH * 10 * LENGTH) / 2, rel=1e-2)
    assert (found["measure_share"], found["intercept_share"]) == (0, 0)


def test_many_classes_have_the_shorter_clip_and_the_whole_rate() -> None:
    found = ruled(n=1000, shares=[0.1] * 10)
    assert found["clip"] == pytest.approx(0.3 * LENGTH, rel=1e-2)
    assert found["learning_rate"] == pytest.approx(1000 / (0.3 * LENGTH**2 * 50), rel=1e-2)
    large = ruled(n=1e5, shares=[0.1] * 10)
    assert large["learning_rate"] == pytest.approx(25 / (0.09 * LENGTH**2), rel=1e-2)


@pytest.mark.parametrize(
    ("n", "known", "measured", "calibrated"),
    [
        (59, {}, 0, 0),
        (60, {}, 0.1, 0),
        (60, {"declared": True}, 0.1, 0),
        (60, {"spreads": True}, 0.1, 0),
        (6000, {"declared": True, "spreads": True}, 0, 0.05),
        (461, {"declared": True, "spreads": True}, 0, 0),
        (462, {"declared": True, "spreads": True}, 0, 0.05),
        (599, {}, 0.1, 0),
        (600, {}, 0.1, 0.05),
    ],
)
def test_small_stages_come_where_they_pay(
    n: float, known: dict[str, bool], measured: float, calibrated: float
) -> None:
    found = ruled(n=n, shares=(0.87, 0.13), **known)
    assert (found["measure_share"], found["intercept_share"]) == (measured, calibrated)
    rounds = min(80, max(5, round(n / 20)))
    assert found["rounds"] == rounds + (measured > 0) + 3 * (calibrated > 0)


@pytest.mark.parametrize(("n", "rounds"), [(40, 5), (400, 20), (900, 24), (1600, 40), (9000, 80)])
def test_numbers_have_their_own_path_and_the_curvature_of_a_squared_error(
    n: float, rounds: int
) -> None:
    found = ruled(n=n, shares=[1.0], declared=True, spreads=True)
    clip = 0.3 * LENGTH
    assert found["clip"] == pytest.approx(clip, rel=5e-3)
    rate = min(0.1 * n / (clip * rounds * LENGTH), 5 / LENGTH**2)
    assert found["learning_rate"] == pytest.approx(rate, rel=5e-3)
    calibrates = n >= 600
    assert found["intercept_share"] == (0.05 if calibrates else 0.0)
    assert found["rounds"] == rounds + 3 * calibrates
    assert found["measure_share"] == 0
    measured = ruled(n=n, shares=[1.0])
    assert measured["measure_share"] == (0.1 if n >= 60 else 0.0)


def test_tries_differ_in_their_rate_and_what_somebody_chose_stays() -> None:
    config, problem = config_of(clip=2.0), problem_of_people(5000)
    tries = [by_rule(config, problem, path=path, given=["clip"]) for path in PATHS]
    rates = [each.learning_rate for each in tries]
    assert rates == pytest.approx([0.4 * rates[1], rates[1], 2.5 * rates[1]], rel=1e-2)
    assert {each.clip for each in tries} == {2.0}
    assert len({each.rounds for each in tries}) == 1
    assert tries[0].changed(learning_rate=1.0) == tries[2].changed(learning_rate=1.0)


@pytest.mark.parametrize(("given", "training"), [(30, 26), (9, 5), (8, 8), (3, 3), (500, 496)])
def test_given_rounds_stay_and_few_of_them_all_train(given: int, training: int) -> None:
    found = by_rule(config_of(rounds=given), problem_of_people(50_000), given=["rounds"])
    assert found.rounds == given
    assert (found.measure_share > 0, found.intercept_share > 0) == (training < given,) * 2
    n = difficulty(found, problem_of_people(50_000))
    rate = min(n / (0.3 * LENGTH**2 * training), 25 / (0.25 * LENGTH**2)) / 2
    assert found.learning_rate == pytest.approx(rate, rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [{"clients_per_round": 3}, {"model": "logistic"},
             {"server_optimizer": "momentum"}, {"features": "none"}, {"sample_rate": 0.5}],
)  # fmt: skip
def test_the_rule_has_no_stages_beside_a_setting_that_refuses_them(more: dict[str, Any]) -> None:
    problem = problem_of_people(50_000)
    found = by_rule(config_of(**more), problem)
    assert (found.measure_share, found.intercept_share) == (0, 0)
    assert plan(found, problem).privacy.guarantees


def test_declared_facts_of_a_table_count(tmp_path: Path) -> None:
    rows = "".join(f"{20 + i % 60},{'fm'[i % 2]},{i % 2}\n" for i in range(3000))
    (tmp_path / "t.csv").write_text(f"age,sex,label\n{rows}")
    common: dict[str, Any] = {
        "dataset": str(tmp_path / "t.csv"), "categories": {"sex": ["f", "m"]}, "epsilon": 8.0,
    }  # fmt: skip
    spread = {"spread_columns": {"age": [50.0, 17.0]}}
    for more, measured in (
        ({"scale_columns": {"age": [0.0, 100.0]}, "class_shares": [0.5, 0.5]}, 0.1),
        (spread, 0.1),
        ({**spread, "class_shares": [0.5, 0.5]}, 0.0),
    ):
        config = config_of(**common, **more)
        problem = problem_of(config, None)
        found = by_rule(config, problem)
        assert found.measure_share == measured
        assert plan(found, problem).privacy.guarantees


@pytest.mark.parametrize("name", [name for name in recipes() if name.startswith("person-rule")])
def test_recipes_have_the_settings_of_the_rule(name: str) -> None:
    config = fedldp.recipe(name)
    if config.dataset != "digits" and "FEDLDP_DATA" not in os.environ:
        pytest.skip("a stand-in has other numbers of people and columns")
    problem = problem_of(config, None)
    found = by_rule(config, problem)
    assert {each: getattr(config, each) for each in RULED} == {
        each: getattr(found, each) for each in RULED
    }
