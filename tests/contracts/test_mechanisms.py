"""Every mechanism that the setting ``mechanism`` may name keeps the contract of ``Mechanism``."""

from __future__ import annotations

import pytest

from fedldp.mechanisms import Mechanism, mechanisms
from fedldp.testing.mechanisms import check_mechanism

MECHANISMS = mechanisms()


@pytest.mark.slow
@pytest.mark.parametrize("kind", MECHANISMS.values(), ids=MECHANISMS)
def test_a_mechanism_keeps_its_contract(kind: type[Mechanism]) -> None:
    assert [each for each in check_mechanism(kind) if each.verdict == "fails"] == []
