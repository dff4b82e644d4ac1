"""Calibration: a budget for a whole run, the same for all clients or chosen by each."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from fedldp import recipe
from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.participation import Balanced
from fedldp.algorithms.settings import ClientValue
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError, RunError
from fedldp.mechanisms import mechanisms
from fedldp.simulation.plan import plan, problem_of

COMMON = PerRun(epsilon=2.0, delta=1e-5, clip=1.5, rounds=12)
CHOSEN = PerRun(epsilon=[1.0, 8.0], delta=[1e-5, 1e-3], clip=[0.5, 3.0], rounds=12)


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
    )
    assert told.gaussian(1) == CHOSEN.gaussian(1) != CHOSEN.gaussian(0)


@pytest.mark.parametrize("mechanism", [name for name in mechanisms() if name != "none"])
def test_a_budget_that_grows_releases_and_states_each_rounds_own(mechanism: str) -> None:
    found = 0
    for channel, bound in product(("named", "shuffle", "sum"), ("range", "norm", "direction")):
        settings = {
            "dataset": "digits", "model": "logistic", "num_clients": 6, "participation": "all",
            "learning_rate": 0.1, "rounds": 3, "mechanism": mechanism, "bound": bound,
            "channel": channel,
        }  # fmt: skip

        def encoder(settings: dict[str, Any] = settings, **more: Any) -> Any:
            config = find_system("composed").model_validate({**settings, **more})
            return config.algorithm(problem_of(config, None)).encoder(0)

        try:
            apart = {round: encoder(epsilon=2.0**round) for round in (1, 2, 3)}
        except ConfigError:
            continue  # these parts do not go together
        growing, found = encoder(epsilon=2.0, epsilon_growth=2.0), found + 1
        stated = [growing.event(0, round) for round in apart]
        assert stated == [each.event(0, round) for round, each in apart.items()]
        assert len(set(stated)) == len(stated)
        mechanisms_used = [growing.release.at(round).mechanism for round in apart]
        assert mechanisms_used == [each.release.mechanism for each in apart.values()]
        for wrong in (0, 4):  # neither the last round's mechanism nor any other
            with pytest.raises(RunError, match="the run has the rounds 1 to 3"):
                growing.event(0, wrong)
    assert found


def test_budgets_that_grow_to_a_target_are_told_as_those_of_the_rounds() -> None:
    """The line is of the last round, the setting of the first."""
    target = {"unit": "weight", "epsilon": 20.0, "delta": 1e-5, "adversary": "server"}
    config = recipe("composed-digits-growing", target=target)
    planned = plan(config, problem_of(config, None))
    told = planned.config.epsilon_in_words(planned.privacy.guarantees)
    assert told is not None
    assert told.endswith(" to 20 per weight against a server (proven)")
    least = float(told.split()[1])
    assert least == pytest.approx(20 / config.epsilon_growth ** (config.rounds - 1), rel=1e-3)
