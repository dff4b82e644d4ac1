"""The clone pair for many participants, collected on a grid, against the list of its outcomes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp

from fedldp.accounting.numerics import shuffle as clones
from fedldp.accounting.numerics.losses import Losses, log_factorial_rest
from fedldp.accounting.numerics.shuffle import (
    binned_clone_losses,
    clone_losses,
)


def binned(epsilon: float, n: int, exponent: float, *, two_valued: bool = True) -> Losses:
    q = 1 / (1 + math.exp(epsilon))
    clone, own = (
        (2 * q, math.tanh(epsilon / 2))
        if two_valued
        else (math.exp(-epsilon), -math.expm1(-epsilon))
    )
    return binned_clone_losses(epsilon, n - 1, clone, own, exponent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "n", "exponent", "two_valued"),
    [
        (0.01, 2000, 90.0, False),
        (4.0, 10_000, 70.0, False),
        (6.0, 500, 80.0, True),
        (1.0, 1, 70.0, True),
        (2.0, 9, 70.0, False),
        (30.0, 50, 70.0, True),
        (2.0, 1500, 550.0, True),
    ],
)
def test_the_grid_is_just_above_the_listed_outcomes(
    epsilon: float, n: int, exponent: float, two_valued: bool
) -> None:
    listed = clone_losses(epsilon, n, exponent, two_valued=two_valued)
    found = binned(epsilon, n, exponent, two_valued=two_valued)
    # If the probability of no clones matters, the grid is coarse compared with the bulk of
    # outcomes.
    near = 1e-5 if n * math.exp(-epsilon) > 100 else 2e-2
    for share in (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.7):
        at = share * epsilon
        exact, delta = listed.delta(at), found.delta(at)
        if exact > 1e3 * listed.missing and exact > 1e-250:
            assert exact * (1 - 3e-12) <= delta <= exact * (1 + near), (at, exact, delta)
    for delta in (1e-3, 1e-8):
        assert listed.delta(found.epsilon(delta)) <= delta * (1 + 1e-11)
        assert found.epsilon(delta) <= listed.epsilon(delta) * (1 + near) + 1e-15


def test_fewer_rows_stay_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    full = binned(1.0, 8000, 80.0).epsilon(1e-6)
    monkeypatch.setattr(clones, "_MOST_BINNED", 20_000)
    clones._binned.cache_clear()
    fewer = binned(1.0, 8000, 80.0).epsilon(1e-6)
    clones._binned.cache_clear()
    assert full < fewer < full * 1.02


@pytest.mark.parametrize("center", [1, 10, 30_000, 100_000, 300_000])
def test_the_remainder_of_factorials_in_forty_digits(center: int) -> None:
    shares = (center * np.linspace(0.05, 0.5, 19)).astype(
        np.int64
    )  # _deviance changes its method at 0.1
    steps = np.concatenate([[0, 1, 2, 40, 3_599, 9000], shares])
    numbers = np.unique(np.clip(center + np.concatenate([-steps, steps]), 0, None))
    found, errors = log_factorial_rest(numbers, center)
    with mp.workdps(40):
        for a, value, error in zip(numbers.tolist(), found, errors, strict=True):
            exact = mp.loggamma(a + 1) - (a - center) * mp.log(center) - mp.loggamma(center + 1)
            assert abs(exact - mp.mpf(float(value))) <= error
    assert log_factorial_rest(np.array([-1]), center)[0] == np.inf
