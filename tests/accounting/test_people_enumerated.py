"""The cost of one person, against all neighbours in small cases and another accountant."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from numpy.typing import NDArray
from tables import lines_against

from fedldp.accounting.accountants import PARTS
from fedldp.accounting.events import GaussianShare, InClear, PerPerson
from fedldp.accounting.guarantees import Adversary, local_guarantees
from fedldp.accounting.numerics.gaussian import zcdp_epsilon
from fedldp.accounting.prices import price

Law = NDArray[np.float64]
Vectors = NDArray[np.int64]

CLEAR = InClear(what="all that many people add up to")
DELTA = 1e-5


def coarse(sums: Vectors, step: int) -> Vectors:
    return (sums + step // 2) // step


def log_pair(shift: tuple[int, ...], variance: float, deviations: int) -> tuple[Law, Law]:
    """Return the log-laws of two releases whose rounded sums differ by ``shift``.

    They cover all outcomes within ``deviations`` of either.
    """
    reach = math.ceil(deviations * math.sqrt(variance)) + max(map(abs, shift))
    y = np.arange(-reach, reach + 1)
    log_normaliser = math.log(np.exp(-(y**2) / (2 * variance)).sum())
    first, second = np.zeros(1), np.zeros(1)
    for each in shift:
        first = np.add.outer(first, -(y**2) / (2 * variance) - log_normaliser).ravel()
        second = np.add.outer(second, -((y - each) ** 2) / (2 * variance) - log_normaliser).ravel()
    return first, second


def delta_at(shift: tuple[int, ...], variance: float, epsilon: float) -> float:
    first, second = log_pair(shift, variance, deviations=9)
    return float(np.maximum(np.exp(first) - np.exp(epsilon + second), 0).sum())


SHIFTS = [
    shift for shift in itertools.product(range(-5, 6), repeat=2) if sum(x * x for x in shift) <= 25
]


@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_all_neighbours_in_two_dimensions_satisfy_the_printed_figure(delta: float) -> None:
    share = GaussianShare(squared_distance=25, variance=64)
    (line,) = local_guarantees(Counter({share: 1}), "person", delta)
    assert line.epsilon is not None
    reached = max(delta_at(shift, 64.0, line.epsilon) for shift in SHIFTS)
    assert delta / 20 < reached <= delta


@pytest.mark.parametrize("steps", [1, 2])
def test_several_steps_of_all_neighbours_on_a_line_satisfy_the_printed_figure(steps: int) -> None:
    # A person's whole number is within 4, and the step is 2. If the second step's sums depend on
    # the first release, its shift may be any of these, and the largest is the worst.
    shifts = {
        int(x)
        for others in range(-8, 9)
        for v, w in itertools.product(range(-4, 5), repeat=2)
        for x in [abs(coarse(np.array(others + v), 2) - coarse(np.array(others + w), 2))]
    }
    assert max(shifts) == 4 <= 8 / 2 + 1
    share = GaussianShare(squared_distance=25, variance=64)
    (line,) = local_guarantees(Counter({share: steps}), "person", 1e-3)
    assert line.epsilon is not None
    for chosen in itertools.product(sorted(shifts | {5}), repeat=steps):
        assert delta_at(chosen, 64.0, line.epsilon) <= 1e-3
    assert delta_at((5,) * steps, 64.0, line.epsilon) > 1e-3 / 5


def by_dp_accounting(variance: float, shift: int, times: int) -> tuple[float, float]:
    """Return bounds on the true epsilon from a library that does not use our proofs."""
    below, above = (
        privacy_loss_distribution.from_discrete_gaussian_mechanism(
            math.sqrt(variance),
            sensitivity=shift,
            value_discretization_interval=1e-3,
            pessimistic_estimate=pessimistic,
        )
        .self_compose(times)
        .get_epsilon_for_delta(DELTA)
        for pessimistic in (False, True)
    )
    return float(below), float(above)


SITES, STEPS, DISTANCE, VARIANCE = 5, 4, 6, 2**10


def printed(adversary: Adversary, sites: int) -> float:
    event = PerPerson(
        person=GaussianShare(squared_distance=DISTANCE**2, variance=VARIANCE), client=CLEAR
    )
    lines = lines_against(adversary, event, SITES, STEPS, persons_at_sites=sites)
    (line,) = [line for line in lines if line.unit == "person"]
    assert line.epsilon is not None
    return line.epsilon


@pytest.mark.parametrize("sites", [1, 3])
def test_another_accountant_agrees(sites: int) -> None:
    # Shares are counted as a single discrete Gaussian with their total variance.
    of_all = (SITES - 1) * VARIANCE
    for adversary, (below, above) in {
        "server": by_dp_accounting(VARIANCE, DISTANCE, sites * STEPS),
        "downlink": by_dp_accounting(VARIANCE, sites * DISTANCE, STEPS),
        "summing-server": by_dp_accounting(of_all, sites * DISTANCE, STEPS),
    }.items():
        assert below <= printed(adversary, sites) <= 1.02 * above  # type: ignore[arg-type]


def test_a_ledger_charges_a_person_the_zcdp_of_a_step() -> None:
    share = GaussianShare(squared_distance=25, variance=64)
    event = PerPerson(person=share, client=CLEAR)
    for part in PARTS:
        assert price(event, "zcdp", side=part) == pytest.approx(25 / 128, rel=1e-15)
    epsilon = zcdp_epsilon(25 / 128, 1e-5)
    assert delta_at((3, 4), 64.0, epsilon) <= 1e-5
