"""The benchmark of private evaluations, with one seed and a smaller test set."""

from __future__ import annotations

import pytest

from benchmarks.private_evaluation import evaluation, people


def test_people_are_those_of_the_seed() -> None:
    rows, labels = people(4_000, 1)
    assert 0.1 < labels.mean() < 0.16
    assert (people(4_000, 1)[0] == rows).all()
    assert (people(4_000, 2)[0] != rows).any()


@pytest.mark.slow
def test_an_evaluation_tells_what_a_test_set_tells() -> None:
    """12,000 people behind a secure sum, at epsilon 4 in all."""
    found = evaluation(1, tested=10_000)
    assert found.holds
    assert found.half_width < 0.02
    assert abs(found.shifted) < 0.01
    assert found.without - found.auc < 0.003
