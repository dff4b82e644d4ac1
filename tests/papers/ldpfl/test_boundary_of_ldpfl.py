"""LDPFL: all that leaves a client follows from bits and labels that are drawn once.

With a mechanism's output held fixed, a client must send the same for all data. Then everything the
server learns about the data comes through the mechanism that the statement counts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedldp.accounting.events import InClear, Memoized, PerRecord, PureCoordinates
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.data import load_dataset, partition
from fedldp.mechanisms.k_rr import KRR
from fedldp.papers.ldpfl.encoding import Codes, num_trained, to_public
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits
from fedldp.papers.ldpfl.networks import FeatureNet, build
from fedldp.papers.ldpfl.parts import Bits, OnBits
from fedldp.papers.ldpfl.preset import ldpfl as ldpfl_preset
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import SHARED, plan, problem_of
from fedldp.testing.clients import Roles, client_of
from fedldp.testing.data import PROBLEM, SMALL, images


def bits_of(settings: RunConfig) -> Bits:
    found = settings.composition.features
    assert isinstance(found, Bits)
    return found


def local_of(settings: RunConfig) -> OnBits:
    found = settings.composition.local
    assert isinstance(found, OnBits)
    return found


def ldpfl(**changes: Any) -> RunConfig:
    small = {"encoder_channels": [3], "encoder_epochs": 1, "label_epsilon": 1.0}
    return ldpfl_preset(**{**SMALL, **small, **changes})


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
    roles = Roles(ldpfl(encoder=encoder, optimizer=optimizer))
    told = roles.broadcast
    sent = {
        roles.report(told, client_of(examples, folder=tmp_path / str(run))).payload
        for run, examples in enumerate((images(20), images(20, seed=1)))
    }
    assert len(sent) == 1


def test_bits_are_drawn_once_even_if_a_later_broadcast_has_another_encoder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = ldpfl(encoder="public")
    codes, first = local_of(config).codes(PROBLEM, torch.device("cpu")), Roles(config).broadcast
    drawn: list[int] = []
    bits = RandomisedBits.randomise

    def randomise(self: RandomisedBits, x: NDArray[np.uint8], stream: Stream) -> NDArray[np.uint8]:
        drawn.append(len(x))
        return bits(self, x, stream)

    monkeypatch.setattr(RandomisedBits, "randomise", randomise)
    kept = codes.for_training(first, client_of(images(20), folder=tmp_path))
    net = build(bits_of(config).architecture(PROBLEM), Stream(bytes(32), simulated=True))
    other = Broadcast(round=2, weights=first.weights, public=to_public(net))
    again = codes.for_training(other, client_of(images(20), round=2, folder=tmp_path))
    assert np.array_equal(kept["bits"], again["bits"])
    assert np.array_equal(kept["labels"], again["labels"])
    assert drawn == [num_trained(20, config.test_share)]


@pytest.mark.parametrize("what", ["bits", "labels"])
def test_bits_drawn_again_after_a_loss_are_the_same_or_independent(
    what: str, tmp_path: Path
) -> None:
    config = ldpfl(encoder="public", epsilon=1e-6, label_epsilon=1e-3, randomisation="symmetric")
    codes, first = local_of(config).codes(PROBLEM, torch.device("cpu")), Roles(config).broadcast
    net = build(bits_of(config).architecture(PROBLEM), Stream(bytes(32), simulated=True))
    other = Broadcast(round=1, weights=first.weights, public=to_public(net))
    keys = SecretKeys(bytes(32), "run")

    def drawn(told: Broadcast, life: str, seed: int = 0, codes: Codes = codes) -> NDArray[np.uint8]:
        client = replace(client_of(images(200, seed=seed), folder=tmp_path / life), kept=keys.kept)
        found = codes.for_training(told, client)[what]
        return np.unpackbits(found) if what == "bits" else found

    one = drawn(first, "one")
    assert np.array_equal(one, drawn(first, "two"))
    other_epsilon = config.changed(epsilon=2e-6, label_epsilon=2e-3)
    others = [
        drawn(first, "three", seed=1),
        drawn(first, "four", codes=local_of(other_epsilon).codes(PROBLEM, torch.device("cpu"))),
    ]
    if what == "bits":
        others.append(drawn(other, "five"))
    else:  # encoders do not affect labels
        assert np.array_equal(one, drawn(other, "five"))
    classes = 2 if what == "bits" else PROBLEM.num_classes
    for again in others:
        # Like two coins: with the same stream for both, all entries that do not differ would be
        # equal.
        equal_share = np.mean(one == again)
        assert equal_share == pytest.approx(1 / classes, abs=5 / math.sqrt(len(one)))


def test_if_one_bit_differs_on_another_machine_all_are_drawn_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = ldpfl(encoder="public", epsilon=1e-6, randomisation="symmetric")
    codes, told = local_of(config).codes(PROBLEM, torch.device("cpu")), Roles(config).broadcast
    keys, features = SecretKeys(bytes(32), "run"), FeatureNet.features

    def drawn(life: str, change: float) -> NDArray[np.uint8]:
        def here(net: FeatureNet, images: NDArray[np.float32], device: torch.device) -> Any:
            found = features(net, images, device).copy()
            found[0, 0] += change
            return found

        monkeypatch.setattr(FeatureNet, "features", here)
        client = replace(client_of(images(200), folder=tmp_path / life), kept=keys.kept)
        return np.unpackbits(codes.for_training(told, client)["bits"])

    one, step = drawn("one", 0.0), 2.0**-codes.code.fraction_bits
    assert np.array_equal(one, drawn("two", 1e-9 * step))  # the same bits
    assert np.mean(one == drawn("three", step)) == pytest.approx(0.5, abs=5 / math.sqrt(len(one)))


@pytest.mark.parametrize("num_clients", [1, 3, 7, 9, 11])
def test_no_client_of_an_iid_partition_has_more_examples_than_are_charged(
    num_clients: int,
) -> None:
    config = ldpfl(num_clients=num_clients, encoder="public", evaluation="common")
    event = Roles(config).encoder().event()
    assert isinstance(event, PerRecord)
    assert isinstance(event.client, Memoized)
    assert isinstance(event.client.drawn, PureCoordinates)
    charged = sum(count for _, count in event.client.drawn.groups)
    for seed in range(5):
        parts = partition(np.zeros(60, np.int64), num_clients, "iid", np.random.default_rng(seed))
        for part in parts:
            trained = num_trained(len(part), config.test_share)
            assert charged >= trained * (bits_of(config).num_bits(PROBLEM) + 1)


def test_with_equal_draws_the_lines_are_those_of_that_many_examples() -> None:
    config = ldpfl(num_clients=5, partition="drawn:20", encoder="public", evaluation="common")
    problem = problem_of(config, None)
    event = config.algorithm(problem).encoder(0).event()
    assert isinstance(event, PerRecord)
    assert isinstance(event.record, Memoized)
    assert isinstance(event.client, Memoized)
    assert isinstance(event.client.drawn, PureCoordinates)
    trained = num_trained(20, config.test_share)
    assert trained < 20
    assert sum(count for _, count in event.client.drawn.groups) == trained * (
        bits_of(config).num_bits(problem) + 1
    )
    price = cost(event.record, "pure") * trained
    privacy = plan(config, problem).privacy
    for unit in ("client-round", "client-run"):
        pure, _ = (line for line in privacy["guarantees"] if line["unit"] == unit)
        assert pure["epsilon"] == pytest.approx(price, rel=1e-12)
    assert SHARED in privacy["warnings"]
    result = simulate(config.changed(rounds=1))
    assert result.privacy == plan(config.changed(rounds=1), problem).privacy


def test_one_record_costs_its_own_bits_or_everything_with_a_clients_own_encoder() -> None:
    # 28 x 28 images, 64 channels of 4 x 4: 1,024 features of 10 bits.
    problem = Problem((1, 28, 28), 10, 600)
    common = {"evaluation": "common", "label_epsilon": 2.0}
    settings = {**SMALL, "dataset": "mnist", "num_examples": 600, **common}
    event = ldpfl_preset(**settings, encoder="public").algorithm(problem).encoder(0).event()
    assert isinstance(event, PerRecord)
    assert isinstance(event.record, Memoized)
    assert isinstance(event.record.drawn, PureCoordinates)
    cost = math.fsum(epsilon * count for epsilon, count in event.record.drawn.groups)
    assert cost == pytest.approx(34884.836349495786 + 2, rel=1e-12)
    # Its bits and the scores pass through an encoder that the other examples trained.
    own = ldpfl_preset(**settings, encoder="own").algorithm(problem).encoder(0).event()
    assert isinstance(own, PerRecord)
    assert isinstance(own.record, InClear)
    assert own.record == own.client
    assert own.record.what == "scores through an encoder trained on own examples"
    in_clear = ldpfl_preset(**{**settings, "label_epsilon": None}, encoder="public")
    line = in_clear.algorithm(problem).encoder(0).event()
    assert isinstance(line, PerRecord)
    assert isinstance(line.record, InClear)
    assert line.record == line.client
    assert "34,884.837" in line.record.what, "rounded up"


def test_public_data_are_distinguished_from_the_clients_even_if_given_as_objects() -> None:
    """Otherwise the public encoder could be trained on the clients' records."""
    config = ldpfl(dataset="svhn", encoder="public", public_dataset="digits")
    with pytest.raises(ConfigError, match=r"dataset = svhn: the run was given .* digits"):
        simulate(config, dataset=load_dataset("digits"))
    with pytest.raises(ConfigError, match="it is not public here"):
        ldpfl(encoder="public", public_dataset="digits")
