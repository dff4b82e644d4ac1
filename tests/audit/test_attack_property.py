"""The share of a class can be read from updates in clear, but not from private ones."""

from __future__ import annotations

import numpy as np
import pytest
from scenarios import digits, scenario_of

from fedldp.audit.attacks.property import of_reports
from fedldp.data import Dataset


@pytest.mark.slow
@pytest.mark.parametrize("label", [None, 7])
def test_updates_in_clear_reveal_the_share(label: int | None) -> None:
    (attack,) = of_reports(scenario_of(digits("fedavg-digits")), 50, label)
    assert attack.attack == f"share of class {5 if label is None else 7}"
    assert attack.measured is not None
    assert attack.measured.low > 0.85
    more = attack.figures
    assert more["accuracy"].low > more["base rate"].high
    assert more["squared error of the share, over guessing's"].high < 0.6


@pytest.mark.slow
def test_a_small_budget_hides_it() -> None:
    (attack,) = of_reports(scenario_of(digits("ldp-fl-digits", epsilon=0.001)), 40)
    assert not attack.succeeds
    more = attack.figures
    assert more["squared error of the share, over guessing's"].value > 0.9


def test_the_share_of_a_class_must_vary() -> None:
    assert of_reports(scenario_of(digits("fedavg-digits", num_clients=1000)), 5) == []
    data = Dataset.from_arrays(np.random.default_rng(0).random((60, 5)), np.arange(60) % 2)
    found = of_reports(
        scenario_of(digits("fedavg-digits", num_clients=4, standardise=False), data), 20, label=1
    )
    assert len(found) == 1
