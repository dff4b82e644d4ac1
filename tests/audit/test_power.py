"""The quick mode's trials find planted mistakes, at a confidence of 99.9 %."""

from __future__ import annotations

from dataclasses import replace

import planted
import pytest
from planted import audit

from fedldp.audit.efforts import QUICK
from fedldp.mechanisms import Mechanism

FEW = replace(
    QUICK, mechanism_settings=((1.0, 1),), mechanism_explore=20, mechanism_scan=0,
    mechanism_least=20, mechanism_most=20, mechanism_most_coordinates=20, mechanism_long=1 << 10,
)  # fmt: skip


@pytest.mark.slow
def test_a_planted_bug_is_found_by_its_attack() -> None:
    """The brief games find all other planted mistakes of a mechanism: see ``test_order``."""
    effort = replace(QUICK, mechanism_settings=((1.0, 1),))
    found = audit("", [planted.CertainWindow], effort=effort)
    assert (found.verdict, found.confidence) == ("bug", 0.999)
    assert any("0.60" in str(row.attack) for row in found.rows if row.verdict == "bug")


@pytest.mark.parametrize(
    ("cls", "failures", "told"),
    [
        (planted.TakesNaN, 3, "encode accepts NaN, which it must refuse with a PrivacyError"),
        (planted.Unreadable, 1, "aggregate raises TypeError: no such thing"),
    ],
)
def test_a_broken_contract_is_not_a_bug(cls: type[Mechanism], failures: int, told: str) -> None:
    found = audit("", [cls], effort=FEW)
    assert found.verdict == "fails its contract"
    failed = [str(row.attack) for row in found.rows if row.verdict == found.verdict]
    assert len(failed) == failures
    assert told in failed[0]
