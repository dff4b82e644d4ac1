"""Each check of the contract of mechanisms notices the mistake that was planted for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from planted_mechanisms import PLANTED

from fedldp.mechanisms.two_point import TwoPoint
from fedldp.testing import mechanisms
from fedldp.testing.checks import Check, outcome, outcomes
from fedldp.testing.mechanisms import CHECKS, check_mechanism, instances
from fedldp.testing.toys import TOY_BITS, ToyBits

BY_NAME = {check.name: check for check in CHECKS}


@pytest.fixture(autouse=True)
def fewer_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make as many as it takes to find half of a cost; outside tests there are more."""
    monkeypatch.setattr(mechanisms, "TRIALS", 2000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_mistake_is_found_by_its_check(kind: Any) -> None:
    found = outcome(BY_NAME[kind.found_by], instances(kind))
    assert found.verdict == "fails", kind.__doc__
    assert found.remedy
    assert kind.__name__ in found.text


def test_every_check_has_a_planted_mistake() -> None:
    assert {kind.found_by for kind in PLANTED} == set(BY_NAME)


@pytest.mark.slow
def test_an_honest_toy_keeps_the_contract() -> None:
    found = check_mechanism(TOY_BITS)
    assert [each for each in found if each.verdict == "fails"] == []
    assert {each.name for each in found} == {c.name for c in CHECKS if not c.thorough}


@pytest.mark.slow
def test_the_toys_reports_are_distributed_as_stated() -> None:
    assert outcome(BY_NAME["law"], instances(ToyBits)).verdict == "ok"


def test_one_instance_is_checked_alone() -> None:
    found = check_mechanism(TwoPoint(2.0))
    assert [each for each in found if each.verdict == "fails"] == []


def test_every_check_says_what_is_promised() -> None:
    assert all(check.promise and check.remedy for check in CHECKS)


def test_one_error_of_the_checked_code_is_told_with_its_place_and_one_remedy() -> None:
    """A typo in ``event`` fails most checks, whose remedies would lead elsewhere."""

    def event(subject: str) -> Iterator[str]:
        raise AttributeError("no attribute 'epsilon'")
        yield

    checks = [Check(name, event, f"mend {name}") for name in ("event", "length", "law")]
    checks.insert(2, Check("noise", lambda subject: ["it repeats"], "draw anew"))
    first, length, noise, law = outcomes(checks, ["mine"])
    line = event.__code__.co_firstlineno + 1
    place = f"(test_mechanism_checks.py, line {line}, in event)"
    assert first.text == f"AttributeError: no attribute 'epsilon' {place} [mine]"
    assert [first.remedy, noise.remedy] == ["mend event", "draw anew"]
    assert {length.remedy, law.remedy} == {"the same as in: event; mend that first"}
