"""Baselines and sound variants: all that leaves a client is charged.

A client's data change what leaves by no more than the event says, and nothing else leaves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedldp
from fedldp.accounting.events import (
    GaussianReport,
    PerRecord,
    PureReport,
    SampledClientsGaussian,
    SampledGaussian,
)
from fedldp.algorithms.presets.central_dp import central_dp, gaussian, of_broadcast
from fedldp.algorithms.presets.dp_sgd import NoisySteps, dp_sgd
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.papers.nbafl.parts import NbaflNoise
from fedldp.papers.nbafl.preset import nbafl
from fedldp.papers.priority.preset import priority
from fedldp.papers.priority.preset_public import priority_public
from fedldp.papers.privunit_fl.mechanism import PrivUnitScalar
from fedldp.papers.privunit_fl.preset import privunit_fl
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import Roles, client_of, lines, trained
from fedldp.testing.data import PROBLEM, SMALL, images, with_another
from fedldp.training.noisy_sums import NoisySums
from fedldp.training.private_sgd import PrivateSgd

CPU = torch.device("cpu")


# NbAFL and feature priority


def test_nbafl_has_its_published_noise_and_the_guarantee_of_its_clip() -> None:
    common = {"clip": 5.0, "delta": 0.01, "rounds": 25, "clients": 30, "smallest": 1120}
    every, single = NbaflNoise(**common, exposures=25), NbaflNoise(**common, exposures=1)
    assert every.uplink_sigma(0.5) == pytest.approx(1.38728190182689, rel=1e-14)
    assert every.downlink_sigma(0.5) == 0
    assert single.uplink_sigma(1.0) == pytest.approx(0.0277456380365379, rel=1e-14)
    assert single.downlink_sigma(1.0) == pytest.approx(0.022559628540147, rel=1e-14)
    for noise, epsilon in ((every, 0.5), (single, 1.0)):
        event = noise.mechanism(epsilon).event(1000)
        assert event.mu == pytest.approx(2 * 5 / noise.uplink_sigma(epsilon), rel=1e-6)


def test_an_example_count_in_clear_leaves_no_guarantee() -> None:
    for send in ("weights", "update"):
        config = nbafl(**SMALL, epsilon=1.0, clip=1.0, weighting="examples", send=send)
        assert {line["kind"] for line in lines(config, "client-run")} == {"none"}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("importance", ["variance", "sensitivity"])
def test_priority_proves_nothing_at_any_settings(share: float, importance: Any) -> None:
    config = priority(
        **{**SMALL, "model": "mlp"}, epsilon_low=1.0, epsilon_high=10.0, clip=1.0,
        noisier_share=share, importance=importance,
    )  # fmt: skip
    found = plan(config, PROBLEM).privacy["guarantees"]
    assert {line["kind"] for line in found} == {"none"}


@pytest.mark.parametrize("send", ["weights", "update"])
@pytest.mark.parametrize("round", [1, 2])
def test_public_priority_hides_all_but_a_difference_of_twice_the_clip(
    send: Any, round: int
) -> None:
    """With equal noise, two reports differ exactly as their clipped vectors do, including the
    mask."""
    config = priority_public(
        **SMALL, epsilon=5.0, clip=0.01, noise_ratio=7.0, noisier_share=0.4, send=send
    )
    roles = Roles(config)
    event = roles.encoder().event()
    importance = np.random.default_rng(0).normal(size=64)
    told = Broadcast(
        round=round,
        weights=roles.first.weights,
        public={"importance": importance, "precision": np.ones(64)},
    )
    sent = [
        np.frombuffer(roles.report(told, client_of(images(20, seed=seed))).payload, "<i4")
        for seed in (0, 1)
    ]
    apart = np.linalg.norm(sent[0].astype(np.float64) - sent[1])
    assert isinstance(event, GaussianReport)
    least = config.algorithm(PROBLEM).release(0).mechanism
    assert 0 < apart <= 2 * least.ball.radius
    assert event.mu >= 2 * least.ball.radius / 2.0**least.scale_bits


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


@pytest.mark.parametrize("noise", [1e-3, 0.7, 1e3])
@pytest.mark.parametrize("per_round", [None, 1, 2, 3])
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


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 32.0, 500.0, 5000.0])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.9])
def test_direction_and_length_together_stay_within_the_budget(epsilon: float, share: float) -> None:
    config = privunit_fl(**SMALL, epsilon=epsilon, length_share=share)
    for size in (1, 2, 650, 100_000):
        mechanism = config.composition.calibration.every
        event = mechanism.event(size)
        assert isinstance(event, PureReport)
        assert event.idealised
        spent = mechanism.cap(size).epsilon + mechanism.length.realised_epsilon
        assert spent <= event.epsilon <= epsilon


def test_a_zero_update_is_sent_like_any_other() -> None:
    mechanism = PrivUnitScalar(4.0, 1.0)
    stream = Stream.simulation(seed=0, round=1, client=0, purpose="mechanism")
    sizes = set()
    for values in (np.zeros(50), np.full(50, 5e-324), np.full(50, 1e308), np.eye(50)[0]):
        for _ in range(200):
            payload = mechanism.encode(values, stream)
            sizes.add(len(payload))
            direction = np.frombuffer(payload, "<f4", 50).astype(np.float64)
            assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-5)
    assert sizes == {50 * 4 + 1}


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
