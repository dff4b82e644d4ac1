"""Calibration: a budget for a whole run, the same for all clients or chosen by each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.participation import Balanced
from fedldp.algorithms.settings import ClientValue
from fedldp.core.errors import ConfigError

COMMON = PerRun(epsilon=2.0, delta=1e-5, clip=1.5, rounds=12)
CHOSEN = PerRun(epsilon=[1.0, 8.0], delta=[1e-5, 1e-3], clip=[0.5, 3.0], rounds=12, own=True)


def spent(calibration: PerRun, client: int, rounds: int) -> float:
    event = calibration.gaussian(client).event(100)
    return gaussian_epsilon(compose_mu([(event.mu, rounds)]), calibration.budget(client)[1])


@pytest.mark.parametrize("calibration", [COMMON, CHOSEN])
@pytest.mark.parametrize("client", [0, 1])
def test_all_rounds_of_a_client_cost_its_budget(calibration: PerRun, client: int) -> None:
    epsilon, _ = calibration.budget(client)
    assert calibration.rounds_of(client) == 12
    assert (
        0.99 * epsilon < spent(calibration, client, 12) <= epsilon < spent(calibration, client, 13)
    )


def test_fewer_participations_need_less_noise() -> None:
    third = replace(COMMON, participation=Balanced(num_clients=6, size=2, rounds=12))
    assert third.rounds_of(0) == 4
    assert third.sigma(0) < COMMON.sigma(0)
    assert 1.99 < spent(third, 0, 4) <= 2.0


def test_a_client_sizes_its_noise_from_its_own_settings() -> None:
    told = PerRun(
        epsilon=ClientValue(own=8.0),
        delta=ClientValue(own=1e-3),
        clip=ClientValue(own=3.0),
        rounds=12,
        own=True,
    )
    assert told.gaussian(1) == CHOSEN.gaussian(1) != CHOSEN.gaussian(0)


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, r"^epsilon = 1e-06, delta = 1e-05 and rounds = 12: the noise would be "),
        (
            {"own": True},
            r"^epsilon = 1e-06 and client_delta = 1e-05 \(delta if not set\) for client "
            r"4, with rounds = 12: the noise would be ",
        ),
    ],
)
def test_too_much_noise_is_refused_with_the_setting_that_asks_for_it(
    changes: dict[str, Any], given: str
) -> None:
    calibration = replace(COMMON, epsilon=1e-6, **changes)
    with pytest.raises(ConfigError, match=given + r".* give a larger epsilon$"):
        calibration.gaussian(4)
