"""Baselines and sound variants: all that leaves a client is charged.

A client's data change what leaves by no more than the event says, and nothing else leaves.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fedldp
from fedldp.accounting.events import (
    PerRecord,
    SampledClientsGaussian,
    SampledGaussian,
)
from fedldp.algorithms.presets.central_dp import central_dp, gaussian, of_broadcast
from fedldp.algorithms.presets.dp_sgd import NoisySteps, dp_sgd
from fedldp.core.errors import ConfigError
from fedldp.data import Examples
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import Roles, client_of, trained
from fedldp.testing.data import PROBLEM, SMALL, images, with_another
from fedldp.training.noisy_sums import NoisySums
from fedldp.training.private_sgd import PrivateSgd

CPU = torch.device("cpu")


# NbAFL and feature priority


# DP-SGD


def test_a_clients_samples_do_not_reveal_its_number_of_examples() -> None:
    config = dp_sgd(**SMALL, noise_multiplier=1.0, partition="power-law:1", local_epochs=3)
    sums = NoisySteps(settings=config).sums(PROBLEM)
    released = Roles(config).encoder().event()
    assert isinstance(released, PerRecord)
    event = released.record
    assert isinstance(event, SampledGaussian)
    for count in (1, 7, 53):
        for round in (1, 2):
            stream = client_of(images(count), round=round).fresh("batches")
            assert len(list(sums.samples(stream, count))) == event.steps
    assert event.sampling_rate >= config.batch_size * config.num_clients / 60
    assert event.sampling_rate == sums.sampling_rate


def test_steps_and_rounds_sample_independently() -> None:
    sums = NoisySums(steps=400, sampling_rate=0.5, batch_size=1, clip=1.0, noise_multiplier=1.0)
    drawn = np.zeros((800, 20))
    for round in (1, 2):
        steps = sums.samples(client_of(images(20), round=round).fresh("batches"), 20)
        for step, places in enumerate(steps, start=400 * (round - 1)):
            drawn[step, places] = 1
    # 16,000 fair bits, consecutive in steps, examples and rounds: five standard deviations.
    signs = 2 * drawn - 1
    for product in (
        signs[1:] * signs[:-1],
        signs[:, 1:] * signs[:, :-1],
        signs[:400] * signs[400:],
    ):
        assert abs(product.mean()) < 5 / math.sqrt(product.size)


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e15])
def test_even_with_dropout_one_example_moves_a_step_by_at_most_twice_the_clip(
    scale: float,
) -> None:
    torch.manual_seed(0)
    sums = NoisySums(steps=1, sampling_rate=1.0, batch_size=1, clip=0.5, noise_multiplier=1e-6)
    config = dp_sgd(**{**SMALL, "model": "own_models:dropout"}, noise_multiplier=1.0)
    step = PrivateSgd(config.algorithm(PROBLEM).sgd(CPU).model, sums, 1.0, CPU)
    told = Broadcast(round=1, weights=np.zeros(650, np.float32))
    own = images(12)
    far = Examples(own.features * np.float32(scale), own.labels)
    ends = [
        trained(step, told, client_of(examples)).astype(np.float64)
        for examples in (far, with_another(far, 5))
    ]
    assert 0 < np.linalg.norm(ends[0] - ends[1]) <= 2 * 0.5 * (1 + 1e-5)


# Central DP


@pytest.mark.parametrize(("per_round", "noise"), [(None, 1e-3), (1, 0.7), (2, 1e3), (3, 0.7)])
def test_the_downlink_line_overstates_neither_noise_nor_rarity_of_samples(
    noise: float, per_round: int | None
) -> None:
    config = central_dp(**SMALL, noise_multiplier=noise, clip=0.3, clients_per_round=per_round)
    event, mechanism = Roles(config).server.downlink, gaussian(config, 0.3)
    assert isinstance(event, SampledClientsGaussian)
    assert event.noise_multiplier * mechanism.ball.radius < 2.0**mechanism.scale_bits
    # Of three clients, one that was not drawn knows this, so it sees a sample of the other two.
    assert event.population == 2
    assert event.sample_size == min(per_round or 3, 2)
    for line in plan(config, PROBLEM).privacy["guarantees"]:
        assert (line["kind"] == "none") == (line["adversary"] == "server")


def test_account_refuses_a_vector_that_a_run_would_refuse() -> None:
    config = central_dp(**SMALL, noise_multiplier=1e3, clip=1.0)
    length = 4 * gaussian(config, 1.0).ball.radius ** 2
    with pytest.raises(ConfigError, match="too long for this much noise"):
        of_broadcast(config, length)


# PrivUnit FL


# The recipes


@pytest.mark.parametrize(
    ("name", "unit", "epsilon"),
    [
        ("priority-mnist-fig6-least20", "client-run", None),
        ("ldpfl-digits", "record", None),
        ("central-dp-mnist", "client-run", None),
        ("ldpfl-sound-digits", "record", 8.0),
    ],
)
def test_every_recipe_has_the_expected_lines(name: str, unit: str, epsilon: float | None) -> None:
    config = fedldp.recipe(name)
    found = plan(config, problem_of(config, None)).privacy["guarantees"]
    for line in (one for one in found if one["unit"] == unit):
        if epsilon is None:
            assert (line["kind"], line["epsilon"]) == ("none", None)
        else:
            assert 0.99 * epsilon < line["epsilon"] <= epsilon
            assert line["neighbours"] == "replace-record"
