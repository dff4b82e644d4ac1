"""Each check of the contract of systems notices the mistake that was planted for it."""

from __future__ import annotations

from typing import Any

import pytest
from planted_toy_systems import PLANTED, Half, HalfEvent, Longer

from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError
from fedldp.testing import systems
from fedldp.testing.checks import Outcome, outcome
from fedldp.testing.data import SMALL
from fedldp.testing.systems import CHECKS, System, check_part, check_system
from fedldp.testing.toys import TOY

BY_NAME = {check.name: check for check in CHECKS}


@pytest.mark.parametrize(
    "system",
    [pytest.param(each, marks=[pytest.mark.slow] * (by == "law")) for each, by in PLANTED.items()],
)
def test_a_planted_mistake_is_found_by_its_check(system: Any) -> None:
    found = outcome(BY_NAME[PLANTED[system]], [System(system(**SMALL))])
    assert found.verdict == "fails"
    assert found.remedy


def test_every_check_has_a_planted_mistake() -> None:
    assert set(PLANTED.values()) == set(BY_NAME)


@pytest.mark.slow
def test_an_honest_toy_keeps_the_contract() -> None:
    found = check_system(find_system(TOY).model_validate(SMALL))
    assert [each for each in found if each.verdict == "fails"] == []
    assert [each.name for each in found] == [each.name for each in CHECKS if not each.thorough]


def test_a_part_is_checked_in_the_systems_that_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that make another part of the module are not."""
    monkeypatch.setattr(systems, "CHECKS", [BY_NAME["length of a report"]])
    made = {"planted_toy_systems:half_size": Half, "planted_toy_systems:longer": Longer}
    for system, part in made.items():
        (name, (found,)), *others = check_part(part).items()
        assert (name, found.verdict, others) == (system, "fails", [])
    ((name, (found,)),) = check_part(HalfEvent).items()
    assert (name, found.verdict) == ("planted_toy_systems:half_event", "ok")
    with pytest.raises(ConfigError, match="no system of its module makes one"):
        check_part(Outcome)
