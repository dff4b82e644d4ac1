"""The benchmark of private evaluations, with one seed and fewer people."""

from __future__ import annotations

import pytest

from benchmarks.private_evaluation import HOSPITALS, Cell, by_group, evaluation, of_groups, people


@pytest.mark.slow
def test_an_evaluation_tells_what_a_test_set_tells() -> None:
    """12,000 people behind a secure sum, at epsilon 4 in all."""
    found = evaluation(1, tested=10_000)
    assert found.holds
    assert found.half_width < 0.02
    assert abs(found.shifted) < 0.01
    assert found.without - found.auc < 0.003


def test_shifts_move_the_risk_of_groups_and_nobody_else() -> None:
    rows, labels = people(4_000, 1, 0.0)
    assert (people(4_000, 1)[1] == labels).all()
    assert (people(4_000, 1, 1.0)[0] == rows).all()
    assert people(4_000, 1, 1.0)[1].mean() > 1.5 * labels.mean()
    found = of_groups(4_000, 1)
    risk = {name: found["ill"][found["hospital"] == name].mean() for name in HOSPITALS}
    assert risk["north"] < risk["south"] < risk["west"]


@pytest.mark.slow
def test_shares_by_sex_and_hospital_are_told_or_not_seen() -> None:
    """The intervals of 7 cells, each of which holds the truth with 95 % probability."""
    found = by_group(1, number=3_000, tested=40_000)
    assert [cell.name for cell in found] == [
        "sex=f", "sex=m", *(f"hospital={name}" for name in sorted(HOSPITALS)),
    ]  # fmt: skip
    assert sum(cell.is_right for cell in found) >= 6
    assert found[0].told is not None
    assert found[0].half_width < 0.05
    assert not Cell("", 0.13, 0.2, 0.05).is_right
    assert Cell("", 0.13, None, 0.05).is_right
