"""Which mistakes that show in few places the quick mode finds, at a confidence of 99.9 %."""

from __future__ import annotations

from dataclasses import replace

import planted
import planted_rare
import pytest

from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.mechanisms import audit
from fedldp.audit.results import Result
from fedldp.mechanisms import Mechanism

FEW = replace(
    QUICK, mechanism_settings=((1.0, 1),), mechanism_explore=20, mechanism_scan=0,
    mechanism_least=20, mechanism_most=20, mechanism_most_coordinates=20, mechanism_long=1 << 10,
)  # fmt: skip


def at(epsilon: float, size: int) -> Effort:
    assert (epsilon, size) in QUICK.mechanism_settings
    return replace(QUICK, mechanism_settings=((epsilon, size),))


def bugs(cls: type[Mechanism], effort: Effort) -> list[Result]:
    found = audit("", [cls], effort=effort)
    assert found.confidence == 0.999
    return [row for row in found.rows if row.verdict == "bug"]


@pytest.mark.slow
def test_noise_that_repeats_after_70_000_coordinates_is_found() -> None:
    (row,) = bugs(planted_rare.RepeatingNoise, at(1.0, 1))
    assert row.attack is not None
    assert "70,000" in row.attack
    assert row.unit == "weight"


@pytest.mark.slow
@pytest.mark.parametrize("setting", [(0.5, 8), (4.0, 64)])
def test_a_norm_of_half_the_true_one_is_found(setting: tuple[float, int]) -> None:
    found = bugs(planted_rare.HalfNorm, at(*setting))
    assert found
    assert all("opposite signs" in str(row.attack) for row in found)


@pytest.mark.slow
def test_a_deterministic_answer_between_two_values_is_found() -> None:
    found = bugs(planted_rare.CertainWindow, at(1.0, 1))
    assert {row.unit for row in found} == {"client-round", "weight"}
    assert all("0.60" in str(row.attack) for row in found)


@pytest.mark.slow
def test_a_private_range_between_two_sizes_is_found() -> None:
    found = bugs(planted_rare.RangeOfSome, at(4.0, 64))
    assert any("one coordinate at " in str(row.attack) for row in found)


def test_a_failure_at_nan_only_is_a_broken_contract_and_not_a_bug() -> None:
    found = audit("", [planted.TakesNaN], effort=FEW)
    assert found.verdict == "fails its contract"
    assert {row.verdict for row in found.rows} == {"ok", "fails its contract"}
    told = [str(row.attack) for row in found.rows if row.verdict != "ok"]
    assert len(told) == 3
    assert told[0] == "encode accepts NaN, which it must refuse with a PrivacyError"


def test_an_aggregate_that_raises_is_reported() -> None:
    found = audit("", [planted_rare.Unreadable], effort=FEW)
    assert found.verdict == "fails its contract"
    (row,) = [row for row in found.rows if row.verdict == found.verdict]
    assert "aggregate raises TypeError: no such thing" in str(row.attack)
