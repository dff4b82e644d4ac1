"""The tables of people at few sites agree with the committed results."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import people
from fedldp.algorithms.people import NORM
from fedldp.experiments.store import RunStore
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.mechanisms.integer_gaussian import integer_gaussian

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-25-people.jsonl"


@pytest.mark.slow
def test_the_tables_agree_with_the_committed_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def blank(images: Any, features: Any, size: int) -> Any:
        return np.zeros((len(images), size), np.float32)  # no table depends on their values

    monkeypatch.setattr("fedldp.data.public_features.in_pieces", blank)
    people.data.cache_clear()
    text = (ROOT / "benchmarks" / "pages" / "people.md").read_text(encoding="utf-8")
    assert people.updated(text, RunStore(RESULTS).rows) == text
    people.data.cache_clear()


def test_every_figure_is_proven_to_cost_a_row_at_most_its_epsilon() -> None:
    rows = [row for row in RunStore(RESULTS).rows.values() if row["purpose"] == "measured"]
    assert rows
    for row in rows:
        if row["cell"]["contestant"] in people.REFERENCES:
            assert row["cell"]["epsilon"] == 0
        else:
            assert row["proven"]["epsilon"] <= row["cell"]["epsilon"]
            assert not row["proven"]["idealised"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Optimal order", "ignore:divide by zero")  # in Opacus
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_pooled_is_central_dp_sgd(epsilon: float) -> None:
    """Opacus counts a person who is added or removed, at half the distance of one who is
    replaced."""
    accountants = pytest.importorskip("opacus.accountants.utils")
    rounds = 100
    mu = largest_mu(epsilon, people.DELTA) / math.sqrt(rounds)
    ours = integer_gaussian(2010, mu, distance=2 * NORM, shares=1, vectors=60_000, largest=NORM)
    theirs = 2 * accountants.get_noise_multiplier(
        target_epsilon=epsilon, target_delta=people.DELTA, sample_rate=1.0, steps=rounds,
        accountant="prv", epsilon_tolerance=0.001,
    )  # fmt: skip
    # Theirs is an upper bound, computed on a grid, and loose for a small epsilon.
    assert 0.97 * theirs < ours.step * 2.0**ours.scale_bits / NORM < theirs
