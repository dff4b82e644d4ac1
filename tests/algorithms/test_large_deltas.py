"""A statement warns if delta times the public number of those whom its lines protect exceeds
0.1."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.accounting.statement import Statement, delta_to_take
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.facts import Caveat
from fedldp.core.kinds import LARGE_DELTA
from fedldp.deployment.agreeing import agree
from fedldp.simulation.plan import plan
from fedldp.simulation.settings import from_mapping

SITES = {f"site-{index}": f"{index:064x}" for index in range(1, 4)}
NUMBERS = (1, 99, 9_999, 10_000, 10_001, 60_000, 99_999, 100_000, 400_000, 123_456_789)


def of_people(unit: str, delta: float = 1e-5, **settings: Any) -> RunConfig:
    target = {"unit": unit, "epsilon": 4.0, "delta": delta}
    return fedldp.recipe("person-dp-sgd-digits", dataset="custom", standardise=False, num_clients=3,
                         rounds=2, delta=delta, **settings).changed(target=target)  # fmt: skip


def facts(unit: str, number: int, **private: bool) -> Problem:
    people = {"people": number} if unit == "person" else {}
    rows = number if unit == "record" else number + 7
    return Problem((64,), 10, rows, **people, **private)


def of_clients(number: int, delta: float, **settings: Any) -> RunConfig:
    target = {"unit": "client-run", "epsilon": 4.0, "delta": delta}
    shared = {"system": "ldp_fl", "dataset": "digits", "model": "logistic", "rounds": 2,
              "partition": "drawn:1", "learning_rate": 0.5, "mechanism": "gaussian",
              "send": "update", "clip": 1.0}  # fmt: skip
    return from_mapping(
        {**shared, "num_clients": number, "delta": delta, "target": target, **settings}
    )


def warned(statement: Statement) -> list[Caveat]:
    return LARGE_DELTA.among(statement.warnings)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_delta_to_take_is_the_largest_of_one_digit_that_is_small_enough(number: int) -> None:
    limit = min(Fraction(1, 10**5), Fraction(1, 10 * number))
    found = repr(delta_to_take(number))
    digit, _, exponent = found.partition("e")
    assert digit in list("123456789")
    assert Fraction(found) <= limit < (int(digit) + 1) * Fraction(10) ** int(exponent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "number"),
    [("record", 9_999), ("person", 10_000), ("client-run", 10_001), ("record", 60_000)],
)
def test_the_warning_begins_above_a_tenth_of_one_of_those_protected(unit: str, number: int) -> None:
    def stated(delta: float) -> Statement:
        if unit == "client-run":
            return plan(of_clients(number, delta), Problem((1, 8, 8), 10, number)).privacy
        return plan(of_people(unit, delta), facts(unit, number)).privacy

    assert bool(warned(stated(1e-5))) == (number > 10_000)
    many = LARGE_DELTA(of=unit.removesuffix("-run"), count=number, delta=1e-4)
    assert warned(stated(1e-4)) == [many]
    assert not warned(stated(delta_to_take(number)))
    assert any((g.unit, g.delta) == (unit, 1e-4) for g in stated(1e-4).guarantees)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["record", "person"])
@pytest.mark.parametrize("number", [100, 60_000])
def test_an_agreement_warns_as_the_simulation_of_its_configuration_does(
    unit: str, number: int
) -> None:
    config, problem = of_people(unit), facts(unit, number)
    found = warned(agree(config, problem, SITES, channel="named").planned)
    assert found == warned(plan(config, problem).privacy)
    assert bool(found) == (number > 10_000)


def test_a_number_that_neighbours_do_not_share_decides_nothing() -> None:
    """The number of private rows decides a warning only if the guarantee keeps this number."""
    own = {"counted_in_private": True}
    for unit, number in (("record", 20_001), ("person", 20_001)):
        (found,) = warned(plan(of_people(unit), facts(unit, number, **own)).privacy)
        assert found.values["count"] == 50_000  # rounded up
    few, many = (facts("record", rows, **own) for rows in (90, 90_000))
    for config in (of_clients(3, 1e-5), fedldp.recipe("nbafl-mnist", dataset="custom")):
        assert warned(plan(config, many).privacy) == warned(plan(config, few).privacy) == []


@pytest.mark.slow
def test_a_table_with_more_rows_of_the_same_people_has_the_same_warning() -> None:
    def stated(rows_of_one: int) -> list[Caveat]:
        people = np.r_[np.arange(30_000), np.zeros(rows_of_one, int)]
        features = np.zeros((len(people), 2), np.float32)
        data = fedldp.Dataset.from_arrays(features, people % 2, groups=people)
        config = of_people("person", model="logistic", features="none")
        return warned(fedldp.account(config, dataset=data))

    assert stated(1) == stated(9_000) != []
