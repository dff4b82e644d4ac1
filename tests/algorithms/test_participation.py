"""One round for each client: the cohorts are exact and unpredictable, and their cost is stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.participation import All, Balanced, Drawn, Once, cohort_sizes
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import find_system
from fedldp.deployment.deployable import without_simulation
from fedldp.protocol.keys import draws_of_secret, draws_of_seed
from fedldp.simulation.plan import plan

PROBLEM = Problem((1, 8, 8), 10, 1437)
SHARED: dict[str, Any] = {
    "dataset": "digits", "model": "linear", "num_clients": 10, "rounds": 4, "learning_rate": 0.1,
}  # fmt: skip
SECRET = bytes(range(32))


def made(system: str, **given: Any) -> RunConfig:
    return find_system(system).model_validate({**SHARED, "system": system, **given})


def lines(config: RunConfig, delta: float | None = None) -> dict[tuple[str, str, bool], Any]:
    found = plan(config, PROBLEM, delta=delta).privacy.guarantees
    return {(line.unit, line.adversary, line.delta > 0): line.epsilon for line in found}


# Cohorts


@given(st.data(), st.integers(1, 60))
def test_every_client_answers_in_exactly_one_round(data: st.DataObject, rounds: int) -> None:
    num_clients = data.draw(st.integers(rounds, 400))
    draws = draws_of_secret(data.draw(st.binary(min_size=32, max_size=32)), "run")
    once = Once(num_clients, rounds)
    cohorts = [np.asarray(once.clients(round, draws)) for round in range(1, rounds + 1)]
    assert sorted(np.concatenate(cohorts).tolist()) == list(range(num_clients))
    sizes = [cohort.size for cohort in cohorts]
    assert (min(sizes), max(sizes)) == cohort_sizes(num_clients, rounds)
    assert max(sizes) - min(sizes) <= 1
    for round, cohort in enumerate(cohorts, start=1):
        assert np.all(np.diff(cohort) > 0)
        assert np.array_equal(once.clients(round, draws), cohort), "the same when asked again"


def test_cohorts_follow_from_the_servers_secret_alone() -> None:
    once = Once(1000, 4)

    def first(draws: Any) -> list[int]:
        return np.asarray(once.clients(1, draws)).tolist()

    assert first(draws_of_secret(SECRET, "a")) == first(draws_of_secret(SECRET, "a"))
    others = [draws_of_secret(SECRET, "b"), draws_of_secret(bytes(32), "a"), draws_of_seed(0)]
    for other in others:
        common = set(first(draws_of_secret(SECRET, "a"))) & set(first(other))
        # Hypergeometric with mean 62.5 and deviation 6: beyond 7 deviations with chance 1e-11.
        assert 20 < len(common) < 105


# The cost


@pytest.mark.parametrize(
    ("system", "given"),
    [
        ("composed", {"epsilon": 1.0}),
        ("composed", {"epsilon": 8.0, "mechanism": "laplace", "bound": "norm"}),
        ("ldp_fl", {"epsilon": 1.0, "channel": "named"}),
        ("privunit_fl", {"epsilon": 8.0, "clip": 1.0}),
        ("nbafl", {"epsilon": 8.0, "clip": 1.0, "exposures": 1, "min_client_examples": 1}),
        ("personalized_sound", {"epsilon": 1.0, "clip": 1.0}),
    ],
)
def test_a_client_is_charged_one_round(system: str, given: dict[str, Any]) -> None:
    once, whole = made(system, **given, participation="once"), made(system, **given, rounds=1)
    found, expected = lines(once), lines(whole)
    if system == "nbafl":  # its noise differs with the number of rounds
        assert found["client-run", "server", True] == found["client-round", "server", True]
        return
    assert found == expected
    four = lines(made(system, **given, participation="all"))
    worse = [key for key in found if found[key] != four[key]]
    if system != "personalized_sound":  # whose budget covers the run
        assert ("client-run", "server", True) in worse
        assert all(unit == "client-run" for unit, _, _ in worse)


def test_behind_a_shuffler_the_crowd_is_that_of_one_round() -> None:
    given: dict[str, Any] = {"epsilon": 1.0, "num_clients": 43}
    once = lines(made("ldp_fl", **given, participation="once"))
    alone = lines(made("ldp_fl", epsilon=1.0, num_clients=10, rounds=1))  # 43 in 4 rounds: 10 or 11
    for unit in ("weight", "client-run"):
        assert once[unit, "shuffled-server", True] == alone[unit, "shuffled-server", True]
    given["untrusted_clients"] = 3
    once = lines(made("ldp_fl", **given, participation="once"))
    alone = lines(made("ldp_fl", epsilon=1.0, num_clients=7, rounds=1))
    assert once["weight", "shuffled-server", True] == alone["weight", "shuffled-server", True]


def test_a_sums_noise_is_sized_for_the_smaller_of_the_rounds() -> None:
    given = {"epsilon": 2.0, "num_clients": 43, "model": "logistic", "participation": "once"}
    once = made("distributed_gaussian", **given)
    assert (once.fewest_in_round, once.round_size) == (10, 11)
    found = lines(once)["client-run", "summing-server", True]
    assert 1.9 < found <= 2.0


# Auto


@pytest.mark.parametrize(
    ("system", "given", "kind"),
    [
        ("composed", {"epsilon": 1.0}, Once),
        ("composed", {"epsilon": 1.0, "channel": "shuffle"}, All),
        ("composed", {"epsilon": 1.0, "channel": "shuffle", "mechanism": "k_closest",
                      "bound": "norm"}, All),
        ("ldp_fl", {"epsilon": 1.0, "channel": "named"}, Once),
        ("composed", {"epsilon": 1.0, "mechanism": "privunit", "bound": "norm"}, Once),
        ("privunit_fl", {"epsilon": 1.0, "clip": 1.0}, Once),
        ("composed", {"epsilon": 1.0, "channel": "sum"}, All),
        ("composed", {"epsilon": 1.0, "mechanism": "gaussian", "bound": "norm"}, All),
        ("composed", {"epsilon": 1.0, "weighting": "examples"}, All),
        ("composed", {"epsilon": 1.0, "rounds": 11}, All),
        ("composed", {"epsilon": 1.0, "rounds": 1}, All),
        ("composed", {"epsilon": 1.0, "clients_per_round": 3}, Drawn),
        ("composed", {"mechanism": "none"}, All),
        ("nbafl", {"epsilon": 1.0, "clip": 1.0}, All),
        ("personalized_sound", {"epsilon": 1.0, "clip": 1.0}, All),
        ("central_dp", {"noise_multiplier": 4.0, "clip": 1.0, "clients_per_round": 2}, Drawn),
        ("distributed_gaussian", {"epsilon": 1.0, "model": "logistic"}, All),
        ("distributed_gaussian", {"epsilon": 1.0, "clients_per_round": 5}, Balanced),
        ("ldpfl_sound", {"epsilon": 1.0}, All),
        ("secure_aggregation", {"model": "logistic"}, All),
    ],
)  # fmt: skip
def test_auto_is_once_if_reports_are_pure_and_local(
    system: str, given: dict[str, Any], kind: type
) -> None:
    found = made(system, **given, participation="auto")
    assert isinstance(found.composition.participation, kind)
    assert found.answers_once is (kind is Once)
    assert found.model_dump().get("participation", "auto") == "auto"
    names = {Once: "once", All: "all", Drawn: "drawn", Balanced: "balanced"}
    chosen = found.changed(participation=names[kind])
    assert found.round_size == chosen.round_size
    assert lines(found) == lines(chosen)
    if found.composition.channel.kind != "shuffle":  # sites are not told about a shuffler
        assert without_simulation(found).answers_once is found.answers_once
