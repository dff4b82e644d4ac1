"""Each check of the contract of systems notices the mistake that was planted for it."""

from __future__ import annotations

from typing import Any

import pytest
from planted_toy_systems import PLANTED

from fedldp.algorithms.systems import find_system
from fedldp.testing.checks import outcome
from fedldp.testing.data import SMALL
from fedldp.testing.systems import CHECKS, System, check_system
from fedldp.testing.toys import PLAIN_TOY, TOY

BY_NAME = {check.name: check for check in CHECKS}


@pytest.mark.parametrize("system", PLANTED)
def test_a_planted_mistake_is_found_by_its_check(system: Any) -> None:
    found = outcome(BY_NAME[PLANTED[system]], [System(system(**SMALL))])
    assert found.verdict == "fails"
    assert found.remedy


def test_every_check_has_a_planted_mistake() -> None:
    assert set(PLANTED.values()) == set(BY_NAME)


@pytest.mark.slow
@pytest.mark.parametrize("toy", [TOY, PLAIN_TOY])
def test_an_honest_toy_keeps_the_contract(toy: str) -> None:
    found = check_system(find_system(toy).model_validate(SMALL))
    assert [each for each in found if each.verdict == "fails"] == []
    assert [each.name for each in found] == list(BY_NAME)
