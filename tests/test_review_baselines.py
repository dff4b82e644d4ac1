"""Adversarial tests of baselines and sound variants: all that leaves a client is charged.

Where a mechanism's output is held fixed, what a client sends must be the same for all data: so
whatever the server learns of the data comes through the mechanism that the statement counts.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clients import client_of
from numpy.typing import NDArray

import fedldp
from fedldp.accounting.events import (
    DrawnOnce,
    GaussianReport,
    InClear,
    PerRecord,
    PureCoordinates,
    PureReport,
    SampledClientsGaussian,
)
from fedldp.accounting.guarantees import IDEALISED, ONCE
from fedldp.data import Dataset, Examples, load_dataset, partition
from fedldp.errors import ConfigError, RunError
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.privunit import PrivUnit
from fedldp.mechanisms.privunit_scalar import PrivUnitScalar
from fedldp.mechanisms.randomised_bits import RandomisedBits
from fedldp.parts.nbafl import NbaflNoise
from fedldp.parts.oriented_gradients import OrientedGradients
from fedldp.parts.private_sgd import NoisySums, PrivateSgd
from fedldp.parts.public_encoder import to_public
from fedldp.randomness import Stream
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.systems import Problem, System, SystemConfig
from fedldp.systems.central_dp import CentralDpConfig
from fedldp.systems.dp_sgd import DpSgdConfig
from fedldp.systems.ldpfl import Codes, LdpflConfig
from fedldp.systems.ldpfl_sound import LdpflSoundConfig
from fedldp.systems.nbafl import NbaflConfig
from fedldp.systems.priority import PriorityConfig
from fedldp.systems.priority_public import PriorityPublicConfig
from fedldp.systems.privunit_fl import PrivUnitFlConfig
from fedldp.wire import Broadcast

CPU = torch.device("cpu")
PROBLEM = Problem((1, 8, 8), 10, 60)
SMALL: dict[str, Any] = {
    "dataset": "digits", "num_examples": 60, "num_clients": 3, "rounds": 4, "model": "logistic",
    "learning_rate": 0.5,
}  # fmt: skip


def images(count: int, seed: int = 0) -> Examples:
    drawn = np.random.default_rng(seed)
    features = drawn.random((count, 1, 8, 8), dtype=np.float32)
    return Examples(features, drawn.integers(0, 10, count))


def with_another(examples: Examples, place: int) -> Examples:
    """Return the neighbour in which one example, with its label, is another."""
    features, labels = examples.features.copy(), examples.labels.copy()
    features[place] = -0.5 * features[place][:, ::-1]
    labels[place] = (labels[place] + 1) % 10
    return Examples(features, labels)


def built(config: SystemConfig) -> System:
    return config.build(PROBLEM, device=CPU)


def lines(config: SystemConfig, unit: str) -> list[dict[str, Any]]:
    found = plan(config, PROBLEM).privacy["guarantees"]
    return [line for line in found if line["unit"] == unit]


# Sound LDPFL: the proof of its docstring


def sound(**changes: Any) -> LdpflSoundConfig:
    settings = {**SMALL, "model": "linear", "epsilon": 8.0, **changes}
    return LdpflSoundConfig(**settings)


class Watched:
    """PrivUnit that notes what it is given, and randomises zeros in its place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[NDArray[Any]] = []
        original = PrivUnit.encode

        def encode(mechanism: PrivUnit, values: NDArray[Any], stream: Stream) -> bytes:
            self.given.append(values.copy())
            return original(mechanism, np.zeros_like(values), stream)

        monkeypatch.setattr(PrivUnit, "encode", encode)


def all_rounds(config: LdpflSoundConfig, examples: Examples, folder: Path) -> list[bytes]:
    system = built(config)
    broadcast, payloads = system.initial(), []
    for round in range(1, config.rounds + 1):
        client = client_of(examples, round=round, folder=folder)
        told = Broadcast(round=round, weights=broadcast.weights + np.float32(round))
        payloads.append(system.report(told, client).payload)
    return payloads


@pytest.mark.parametrize("model", ["linear", "mlp", "own_models:dropout"])
@pytest.mark.parametrize("batch_size", [1, 3, 1000])
def test_one_example_moves_one_input_of_the_mechanism_and_nothing_else(
    model: str, batch_size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = sound(model=model, batch_size=batch_size)
    seen, sent = [], []
    for run, examples in enumerate((images(20), with_another(images(20), 7))):
        with monkeypatch.context() as patch:
            watched = Watched(patch)
            sent.append(all_rounds(config, examples, tmp_path / str(run)))
        seen.append(watched.given)
    assert sent[0] == sent[1]
    assert len(seen[0]) == len(seen[1]) == 20, "every example is randomised exactly once"
    moved = [not np.array_equal(a, b) for a, b in zip(*seen, strict=True)]
    assert sum(moved) == 1


def test_a_round_that_is_asked_for_again_draws_nothing_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system, watched = built(sound()), Watched(monkeypatch)
    first = system.initial()
    client = client_of(images(20), folder=tmp_path)
    once = system.report(first, client).payload
    randomised = len(watched.given)
    other = Broadcast(round=1, weights=first.weights + 1)
    assert system.report(other, client).payload == once
    assert len(watched.given) == randomised


@pytest.mark.parametrize("round", [-1, 0, 5])
def test_a_round_that_is_none_of_the_run_cannot_use_an_example_twice(
    round: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Counted from the end, round 0 would be the last one, under a name of its own."""
    system, watched = built(sound()), Watched(monkeypatch)
    told = Broadcast(round=round, weights=system.initial().weights)
    with pytest.raises(RunError, match=f"round {round}: .* rounds 1 to 4"):
        system.report(told, client_of(images(20), round=round, folder=tmp_path))
    assert not watched.given


@pytest.mark.parametrize("count", [1, 2, 3])
def test_with_fewer_examples_than_rounds_a_client_reports_all_the_same(
    count: int, tmp_path: Path
) -> None:
    lengths = {len(payload) for payload in all_rounds(sound(), images(count), tmp_path)}
    assert lengths == {4 * built(sound()).layout.size}


def test_with_fewer_test_examples_than_clients_a_run_is_tested_all_the_same() -> None:
    few = Dataset("own", images(60), images(2, seed=1), 10)
    result = simulate(sound(dataset="own.npz", rounds=2), dataset=few)
    assert 0 <= result.accuracy <= 1


@pytest.mark.parametrize("partition_name", ["dirichlet:0.3", "shards:1", "power-law:1"])
def test_where_the_number_of_examples_is_private_only_examples_have_a_line(
    partition_name: str,
) -> None:
    config = sound(partition=partition_name)
    assert {line["kind"] for line in lines(config, "client-run")} == {"none"}
    assert {line["kind"] for line in lines(config, "client-round")} == {"none"}
    assert [line["epsilon"] <= 8 for line in lines(config, "record")] == [True, True]


@pytest.mark.parametrize("num_clients", [1, 3, 7, 9, 11])
def test_no_client_of_an_iid_partition_has_more_examples_than_are_charged(
    num_clients: int,
) -> None:
    made = sound(num_clients=num_clients, mechanism="laplace")
    event = made.release(0, 1290, PROBLEM)
    assert isinstance(event, PerRecord)
    assert isinstance(event.client, DrawnOnce)
    assert isinstance(event.client.drawn, PureReport)
    own = ldpfl(num_clients=num_clients, evaluation="common")
    bits = own.release(0, 100, PROBLEM)
    assert isinstance(bits, PerRecord)
    assert isinstance(bits.client, DrawnOnce)
    assert isinstance(bits.client.drawn, PureCoordinates)
    for seed in range(5):
        parts = partition(np.zeros(60, np.int64), num_clients, "iid", np.random.default_rng(seed))
        for part in parts:
            assert event.client.drawn.epsilon >= 8.0 * len(part)
            charged = sum(count for _, count in bits.client.drawn.groups)
            assert charged >= own.num_trained(len(part)) * (own.num_bits(PROBLEM) + 1)


def test_privunit_is_idealised_in_every_line_and_piecewise_in_none() -> None:
    for unit in ("record", "client-round", "client-run"):
        for line in lines(sound(), unit):
            assert {IDEALISED, ONCE} <= set(line["assumptions"])
        for line in lines(sound(mechanism="piecewise"), unit):
            assert IDEALISED not in line["assumptions"]
            assert ONCE in line["assumptions"]


def test_what_is_drawn_round_by_round_is_not_said_to_be_drawn_before_the_first() -> None:
    assert "before" not in ONCE


@pytest.mark.parametrize("mechanism", ["two_point", "two_point_l1", "sign", "gaussian", "k_rr"])
def test_a_mechanism_whose_epsilon_is_no_budget_of_the_whole_gradient_is_refused(
    mechanism: str,
) -> None:
    with pytest.raises(ConfigError, match="epsilon is no pure budget of a whole vector"):
        built(sound(mechanism=mechanism))


@pytest.mark.parametrize("clip", [1e-40, 1e-300, 1e30])
def test_a_clip_beyond_what_floats_divide_by_is_refused_before_there_are_examples(
    clip: float,
) -> None:
    with pytest.raises(ConfigError, match="clip = "):
        sound(clip=clip)


@pytest.mark.parametrize("clip", [1e-9, 1e9])
def test_no_gradient_is_refused_for_its_size(clip: float, tmp_path: Path) -> None:
    system = built(sound(clip=clip))
    told = Broadcast(round=1, weights=system.initial().weights * np.float32(1e6))
    assert system.report(told, client_of(images(20), folder=tmp_path)).payload


def test_a_model_that_takes_no_single_examples_is_refused_in_one_line(tmp_path: Path) -> None:
    system = built(sound(model="own_models:branching"))
    with pytest.raises(ConfigError, match=r"torch\.func cannot differentiate it") as refused:
        system.report(system.initial(), client_of(images(8), folder=tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_no_image_makes_features_that_would_be_refused() -> None:
    """A refusal is seen, and no event charges for it."""
    largest = float(np.finfo(np.float32).max)
    hard = np.zeros((6, 1, 8, 8), np.float32)
    hard[1] = largest
    hard[2, 0, ::2] = largest
    hard[2, 0, 1::2] = -largest
    hard[3, 0, 0, 0] = 1e-45
    hard[4, 0, :, :4] = 1e25
    hard[5, 0, 3, 3] = 1e-23
    features = OrientedGradients((1, 8, 8), 4, 8)(hard)
    assert np.isfinite(features).all()
    for row, image in zip(features, hard, strict=True):
        assert np.array_equal(row, OrientedGradients((1, 8, 8), 4, 8)(image[None])[0])


# LDPFL


def ldpfl(**changes: Any) -> LdpflConfig:
    small = {"encoder_channels": [3], "encoder_epochs": 1, "label_epsilon": 1.0}
    return LdpflConfig(**{**SMALL, **small, **changes})


@pytest.mark.parametrize("encoder", ["own", "public"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_all_that_a_client_sends_follows_from_its_randomised_bits_and_labels(
    encoder: str, optimizer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bits, labels = RandomisedBits.randomise, KRR.randomise
    monkeypatch.setattr(
        RandomisedBits, "randomise", lambda self, x, stream: bits(self, np.zeros_like(x), stream)
    )
    monkeypatch.setattr(
        KRR, "randomise", lambda self, x, stream: labels(self, np.zeros_like(x), stream)
    )
    system = built(ldpfl(encoder=encoder, optimizer=optimizer))
    told = system.initial()
    sent = {
        system.report(told, client_of(examples, folder=tmp_path / str(run))).payload
        for run, examples in enumerate((images(20), images(20, seed=1)))
    }
    assert len(sent) == 1


def test_bits_are_drawn_once_whatever_encoder_a_later_broadcast_carries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = ldpfl(encoder="public")
    codes, first = Codes(config, PROBLEM, CPU), built(config).initial()
    drawn: list[int] = []
    bits = RandomisedBits.randomise

    def randomise(self: RandomisedBits, x: NDArray[np.uint8], stream: Stream) -> NDArray[np.uint8]:
        drawn.append(len(x))
        return bits(self, x, stream)

    monkeypatch.setattr(RandomisedBits, "randomise", randomise)
    kept = codes.for_training(first, client_of(images(20), folder=tmp_path))
    net = config.architecture(PROBLEM).build(Stream(bytes(32), simulated=True))
    other = Broadcast(round=2, weights=first.weights, public=to_public(net))
    again = codes.for_training(other, client_of(images(20), round=2, folder=tmp_path))
    assert np.array_equal(kept["bits"], again["bits"])
    assert np.array_equal(kept["labels"], again["labels"])
    assert drawn == [config.num_trained(20)]


def test_one_record_costs_its_own_bits_of_a_public_encoder_but_all_bits_of_an_own_one() -> None:
    # 28 x 28 images, 64 channels of 4 x 4: 1,024 features of 10 bits.
    problem = Problem((1, 28, 28), 10, 600)
    common = {"evaluation": "common", "label_epsilon": 2.0}
    settings = {**SMALL, "dataset": "mnist", "num_examples": 600, **common}
    public, own = (
        LdpflConfig(**settings, encoder=encoder).release(0, 100, problem)
        for encoder in ("public", "own")
    )
    assert isinstance(public, PerRecord)
    assert isinstance(own, PerRecord)
    costs = []
    for event in (public.record, own.record):
        assert isinstance(event, DrawnOnce)
        assert isinstance(event.drawn, PureCoordinates)
        costs.append(math.fsum(epsilon * count for epsilon, count in event.drawn.groups))
    assert costs[0] == pytest.approx(34884.836349495786 + 2, rel=1e-12)
    assert costs[1] == pytest.approx(180 * 34884.836349495786 + 2, rel=1e-12)
    in_clear = LdpflConfig(**{**settings, "label_epsilon": None}, encoder="public")
    line = in_clear.release(0, 100, problem)
    assert isinstance(line.record, InClear)
    assert line.record == line.client
    assert "34,884.837" in line.record.what, "rounded up"


def test_public_data_is_told_apart_from_the_clients_also_where_they_are_given() -> None:
    """Else the public encoder could be trained on the very records that it leaves in place."""
    config = ldpfl(dataset="svhn", encoder="public", public_dataset="digits")
    with pytest.raises(ConfigError, match=r"dataset = svhn: the run was given .* digits"):
        simulate(config, dataset=load_dataset("digits"))
    with pytest.raises(ConfigError, match="it is not public here"):
        ldpfl(encoder="public", public_dataset="digits")


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
        config = NbaflConfig(**SMALL, epsilon=1.0, clip=1.0, weighting="examples", send=send)
        assert {line["kind"] for line in lines(config, "client-run")} == {"none"}


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("importance", ["variance", "sensitivity"])
def test_priority_proves_nothing_whatever_its_settings(share: float, importance: Any) -> None:
    config = PriorityConfig(
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
    """With equal noise two clients' reports differ as their clipped vectors do, mask included."""
    config = PriorityPublicConfig(
        **SMALL, epsilon=5.0, clip=0.01, noise_ratio=7.0, noisier_share=0.4, send=send
    )
    system, event = built(config), config.release(0, 650, PROBLEM)
    importance = np.random.default_rng(0).normal(size=64)
    told = Broadcast(
        round=round,
        weights=system.initial().weights,
        public={"importance": importance, "precision": np.ones(64)},
    )
    sent = [
        np.frombuffer(system.report(told, client_of(images(20, seed=seed))).payload, "<i4")
        for seed in (0, 1)
    ]
    apart = np.linalg.norm(sent[0].astype(np.float64) - sent[1])
    assert isinstance(event, GaussianReport)
    least = config.mechanism()
    assert 0 < apart <= 2 * least.ball.radius
    assert event.mu >= 2 * least.ball.radius / 2.0**least.scale_bits


# DP-SGD


def test_how_a_client_samples_does_not_tell_how_many_examples_it_has() -> None:
    config = DpSgdConfig(**SMALL, noise_multiplier=1.0, partition="power-law:1", local_epochs=3)
    sums = config.sums(PROBLEM)
    event = config.release(0, 650, PROBLEM).record
    for count in (1, 7, 53):
        for round in (1, 2):
            assert len(list(sums.samples(client_of(images(count), round=round)))) == event.steps
    assert event.sampling_rate >= config.batch_size * config.num_clients / 60
    assert event.sampling_rate == sums.sampling_rate


def test_steps_and_rounds_sample_independently() -> None:
    sums = NoisySums(steps=400, sampling_rate=0.5, batch_size=1, clip=1.0, noise_multiplier=1.0)
    drawn = np.zeros((800, 20))
    for round in (1, 2):
        steps = sums.samples(client_of(images(20), round=round))
        for step, places in enumerate(steps, start=400 * (round - 1)):
            drawn[step, places] = 1
    # 16,000 fair bits, next to one another in steps, examples and rounds: five deviations.
    signs = 2 * drawn - 1
    for product in (
        signs[1:] * signs[:-1],
        signs[:, 1:] * signs[:, :-1],
        signs[:400] * signs[400:],
    ):
        assert abs(product.mean()) < 5 / math.sqrt(product.size)


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e15])
def test_with_dropout_too_one_example_moves_a_step_by_twice_the_clip_at_most(
    scale: float,
) -> None:
    torch.manual_seed(0)
    sums = NoisySums(steps=1, sampling_rate=1.0, batch_size=1, clip=0.5, noise_multiplier=1e-6)
    system = built(DpSgdConfig(**{**SMALL, "model": "own_models:dropout"}, noise_multiplier=1.0))
    step = PrivateSgd(system.model, sums, 1.0, CPU)
    told = Broadcast(round=1, weights=np.zeros(650, np.float32))
    own = images(12)
    far = Examples(own.features * np.float32(scale), own.labels)
    ends = [
        step(told, client_of(examples)).open().astype(np.float64)
        for examples in (far, with_another(far, 5))
    ]
    assert 0 < np.linalg.norm(ends[0] - ends[1]) <= 2 * 0.5 * (1 + 1e-5)


# Central DP


@pytest.mark.parametrize("noise", [1e-3, 0.7, 1e3])
@pytest.mark.parametrize("per_round", [None, 1, 2, 3])
def test_the_downlink_counts_no_more_noise_than_there_is_and_no_rarer_samples(
    noise: float, per_round: int | None
) -> None:
    config = CentralDpConfig(**SMALL, noise_multiplier=noise, clip=0.3, clients_per_round=per_round)
    event, mechanism = config.downlink(650, PROBLEM), config.mechanism(0.3)
    assert isinstance(event, SampledClientsGaussian)
    assert event.noise_multiplier * mechanism.ball.radius < 2.0**mechanism.scale_bits
    # Of three clients, one that was not drawn knows so.
    assert event.sample_size == (per_round or 3)
    assert event.population == max(event.sample_size, 2)
    for line in plan(config, PROBLEM).privacy["guarantees"]:
        assert (line["kind"] == "none") == (line["adversary"] == "server")


def test_an_account_refuses_a_vector_that_the_run_would_refuse() -> None:
    config = CentralDpConfig(**SMALL, noise_multiplier=1e3, clip=1.0)
    length = 4 * config.mechanism(1.0).ball.radius ** 2
    with pytest.raises(ConfigError, match="too long for this much noise"):
        config.downlink(length, PROBLEM)


# PrivUnit FL


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 32.0, 500.0, 5000.0])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.9])
def test_direction_and_length_together_keep_to_the_budget(epsilon: float, share: float) -> None:
    config = PrivUnitFlConfig(**SMALL, epsilon=epsilon, length_share=share)
    for size in (1, 2, 650, 100_000):
        event, mechanism = config.release(0, size, PROBLEM), config.mechanism
        assert event.idealised
        spent = mechanism.cap(size).epsilon + mechanism.length.realised_epsilon
        assert spent <= event.epsilon <= epsilon


def test_an_update_of_nothing_is_sent_like_any_other() -> None:
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
def test_a_recipe_is_accounted_for_as_it_should_be(
    name: str, unit: str, epsilon: float | None
) -> None:
    config = fedldp.recipe(name)
    found = plan(config, problem_of(config, None)).privacy["guarantees"]
    for line in (one for one in found if one["unit"] == unit):
        if epsilon is None:
            assert (line["kind"], line["epsilon"]) == ("none", None)
        else:
            assert 0.99 * epsilon < line["epsilon"] <= epsilon
            assert line["neighbours"] == "replace-record"
