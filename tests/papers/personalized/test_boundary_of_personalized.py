"""Personalised systems: every client stays within its own budget, and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedldp.accounting.events import GaussianReport
from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset, Examples
from fedldp.papers.personalized.preset import personalized
from fedldp.papers.personalized.preset_sound import personalized_sound
from fedldp.protocol.keys import draws_of_seed
from fedldp.simulation.engine import simulate

OWN = Problem((4,), 2, 48)


def own_data(labels: Sequence[int]) -> Dataset:
    generator = np.random.default_rng(0)

    def some(answers: Sequence[int]) -> Examples:
        features = generator.random((len(answers), 4), dtype=np.float32)
        return Examples(features, np.array(answers, np.int64))

    return Dataset("own", some(labels), some([0, 1, 0]), 2)


def settings(**changes: Any) -> dict[str, Any]:
    small = {"dataset": "own.npz", "num_clients": 4, "rounds": 5, "model": "logistic", "clip": 1.0}
    return {**small, **changes}


@pytest.mark.parametrize(
    ("kind", "changes", "probability"),
    [
        (personalized_sound, {"perturbation": "gaussian"}, 1.0),
        (personalized_sound, {"perturbation": "sign"}, 0.01),
        (personalized, {"perturbation": "sign"}, 0.01),
    ],
)
def test_a_client_with_few_examples_still_reports(
    kind: type[RunConfig], changes: dict[str, Any], probability: float
) -> None:
    """A refusal would reveal the number, and no event charges for that."""
    shares = {"partition": "power-law:3", "sampling_probability": probability, "epsilon": 1.0}
    made = kind(**settings(**shares, **changes))
    result = simulate(made, dataset=own_data([0, 1] * 11))
    assert [record.clients for record in result.rounds] == [4] * 5


def noise(made: personalized_sound) -> PerRun:
    found = made.composition.calibration
    assert isinstance(found, PerRun)
    return found


def sound(**changes: Any) -> personalized_sound:
    budgets = {"epsilon": [1.0, 2.0, 4.0, 8.0], "client_delta": [1e-5, 1e-3, 1e-2, 1e-6]}
    return personalized_sound(**settings(**{**budgets, **changes}))


@pytest.mark.parametrize(
    ("seed", "changes"), [(0, {}), (1, {"selects_first": True}), (2, {"clients_per_round": 2})]
)
def test_everything_a_client_sends_stays_within_its_own_epsilon_at_its_own_delta(
    changes: dict[str, Any], seed: int
) -> None:
    draws = draws_of_seed(seed)
    made = sound(seed=seed, rounds=12, **changes).with_schedule(draws)
    for client in range(4):
        event = made.algorithm(OWN).encoder(client).event()
        assert isinstance(event, GaussianReport)
        if made.selects_first:
            there = [
                client in (made.composition.participation.clients(r, draws) or [])
                for r in range(1, 13)
            ]
            assert sum(there) == noise(made).rounds_of(client)
        epsilon, delta = noise(made).budget(client)
        composed = compose_mu([event.mu] * max(1, noise(made).rounds_of(client)))
        assert gaussian_epsilon(composed, delta) <= epsilon
        # Before noise, two reports with opposite directions are as far apart as the clip allows.
        ends = np.full(10, 1e3)
        mechanism = noise(made).gaussian(client)
        apart = np.linalg.norm(mechanism.bound(ends) - mechanism.bound(-ends))
        assert (
            apart / noise(made).sigma(client)
            <= event.mu
            <= 2 * 1.0 / noise(made).sigma(client) * (1 + 1e-9)
        )


def test_the_selection_follows_from_public_settings_alone() -> None:
    draws = draws_of_seed(0)

    def selected(config: personalized_sound, rounds: int) -> list[Any]:
        return [
            config.composition.participation.clients(round, draws) for round in range(1, rounds + 1)
        ]

    made = sound(selects_first=True).with_schedule(draws)
    changes = {"partition": "power-law:3", "learning_rate": 0.1, "perturbation": "sign"}
    same = sound(selects_first=True, **changes).with_schedule(draws)
    assert selected(made, 5) == selected(same, 5)
    assert made.turns == same.turns
    # A changed copy selects by its own settings, not by the first one's result.
    stale = made.changed(rounds=2)
    with pytest.raises(ConfigError, match="leave turns out"):
        stale.with_schedule(draws)
    fewer = stale.changed(turns=None).with_schedule(draws)
    assert [noise(fewer).rounds_of(c) for c in range(4)] == [
        sum(c in chosen for chosen in selected(made, 2)) for c in range(4)
    ]
