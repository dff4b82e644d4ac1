"""Feature priority as published: each weight's noise, and the lack of a guarantee."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder
from fedldp.core.kinds import SENT_IN_CLEAR
from fedldp.data import Examples, load_dataset
from fedldp.papers.nbafl.parts import NbaflNoise
from fedldp.papers.priority.importance import pick_features, variance_importance
from fedldp.papers.priority.parts import NOISIER_FEATURES, UnevenRelease
from fedldp.papers.priority.preset import priority
from fedldp.papers.priority.training import RankingSgd, sensitivity_importance
from fedldp.protocol.roles import Batch, Client, Update
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, client_of, sender_of, trained
from fedldp.training.tensors import load_weights, read_weights

DIGITS = Problem((1, 8, 8), 10, 1437)
MNIST = Problem((1, 28, 28), 10, 33_600)
FEATURES = 64


def noise_of(config: priority) -> NbaflNoise:
    return config.composition.calibration.noise(DIGITS)


def config_of(**settings: Any) -> priority:
    config = fedldp.recipe("priority-digits", **settings)
    assert isinstance(config, priority)
    return config


def examples() -> Examples:
    train = load_dataset("digits", standardise=True).train
    return Examples(train.features[:60], train.labels[:60])


class Sent:
    """Return the noise on each weight, over many clients with equal weights and importance."""

    def __init__(self, config: priority, change: np.ndarray, count: int = 30) -> None:
        roles = Roles(config, DIGITS)
        encoder = roles.encoder()
        assert isinstance(encoder, Encoder)
        assert isinstance(encoder.release, UnevenRelease)
        self.start = roles.broadcast
        self.layer = encoder.release.noisier.first_layer
        self.weights = self.start.weights + change.astype(np.float32)
        self.importance = variance_importance(
            *map(self.layer.weights, (self.start.weights, self.weights))
        )
        self.least = noise_of(config).mechanism(config.epsilon_high)
        ranked = Update(rows=self.weights[None], aux={"importance": self.importance[None]})
        reports = [roles.encode(ranked, self.start, sender_of(60, index)) for index in range(count)]
        self.values = np.array(
            [np.frombuffer(report.payload, "<i4") * self.least.ball.step for report in reports]
        )
        self.hidden = roles.layout.shapes[0][0]

    def feature_deviations(self) -> np.ndarray:
        """Return the standard deviation of the noise on each feature's weights, shape (64,)."""
        noise = self.values - self.values.mean(axis=0)
        first = noise[:, : self.hidden * FEATURES].reshape(len(noise), self.hidden, FEATURES)
        return first.std(axis=(0, 1))

    def other_deviation(self) -> float:
        noise = self.values - self.values.mean(axis=0)
        return float(noise[:, self.hidden * FEATURES :].std())


def steps(size: int) -> np.ndarray:
    """Return a change of the first layer that grows with the index of the feature."""
    change = np.zeros(size)
    change[: 10 * FEATURES] = np.tile(np.linspace(0.001, 0.2, FEATURES), 10)
    return change


@pytest.mark.parametrize(("noisier", "share"), [("least", 0.25), ("most", 0.5), ("most", 0.0)])
def test_a_share_of_the_features_gets_the_noise_of_the_lower_epsilon(
    noisier: str, share: float
) -> None:
    config = config_of(
        noisier=noisier, noisier_share=share, epsilon_low=5.0, epsilon_high=50.0, clip=4.0
    )
    sent = Sent(config, steps(650))
    low, high = (noise_of(config).uplink_sigma(epsilon) for epsilon in (5.0, 50.0))
    assert low == pytest.approx(10 * high)
    found = sent.feature_deviations()
    count = round(share * FEATURES)
    noisy = np.zeros(FEATURES, np.bool_)
    noisy[:count] = noisier == "least"
    noisy[FEATURES - count :] |= noisier == "most"
    assert noisy.sum() == count
    np.testing.assert_allclose(found[noisy], low, rtol=0.25)
    np.testing.assert_allclose(found[~noisy], high, rtol=0.25)
    assert sent.other_deviation() == pytest.approx(high, rel=0.25)


def test_the_whole_vector_is_clipped_jointly() -> None:
    config = config_of(epsilon_low=500.0, epsilon_high=5e3, clip=2.0, send="weights")
    sent = Sent(config, np.full(650, 3.0), count=1)
    assert np.linalg.norm(sent.values) == pytest.approx(2.0, rel=0.01)
    np.testing.assert_allclose(sent.values[0], 2 / math.sqrt(650), rtol=0.2)


def ranked(step: RankingSgd, start: Broadcast, client: Client) -> tuple[np.ndarray, np.ndarray]:
    """Return a client's weights after training, and its importance of each feature."""
    update = step(start, Batch.of_one(client)).open()
    return np.asarray(update.rows[0]), update.aux["importance"][0]


def test_importance_comes_from_the_clients_own_weights_and_examples() -> None:
    for importance in ("variance", "sensitivity"):
        config = config_of(model="mlp", importance=importance)
        roles = Roles(config, DIGITS)
        step, start = roles.local_update, roles.broadcast
        assert isinstance(step, RankingSgd)
        weights, found = ranked(step, start, client_of(examples()))
        own = trained(step.training, start, client_of(examples()))
        np.testing.assert_array_equal(weights, own)
        assert (own != start.weights).any()
        if importance == "variance":
            before, after = map(step.first_layer.weights, (start.weights, weights))
            expected = variance_importance(before, after)
        else:
            # The mean absolute value of the noise of a selected feature.
            noise = np.abs(np.random.default_rng(1).normal(size=10**6)).mean()
            shift = noise_of(config).uplink_sigma(config.epsilon_low) * noise
            model = step.training.model
            load_weights(model, roles.layout, weights)
            cpu = torch.device("cpu")
            expected = sensitivity_importance(model, examples(), shift, cpu)
            flipped = Examples(examples().features[::-1].copy(), examples().labels)
            assert (sensitivity_importance(model, flipped, shift, cpu) != found).any()
            np.testing.assert_array_equal(read_weights(model), weights)
        np.testing.assert_allclose(found, expected, atol=0.02 if importance != "variance" else 0)
        picked = pick_features(found, 0.4, "least")
        assert picked.sum() == 26
        other = Examples(examples().features[::-1].copy(), examples().labels)
        assert (ranked(step, start, client_of(other))[1] != found).any()


def test_equal_epsilons_are_nbafl() -> None:
    config = config_of(epsilon_low=50.0, epsilon_high=50.0)
    nbafl = fedldp.recipe(
        "nbafl-digits",
        epsilon=50.0,
        clip=config.clip,
        send=config.send,
        batch_size=config.batch_size,
        num_clients=config.num_clients,
    )
    one, other = (fedldp.run(c.changed(rounds=2)) for c in (config, nbafl))
    for name, weights in one.weights.items():
        # One system trains its clients in a batch, the other one by one, so they agree up to float
        # rounding.
        np.testing.assert_allclose(weights, other.weights[name], atol=1e-6)


# What is claimed and what holds


@pytest.mark.parametrize("recipe", ["fig6-least20", "fig8-most80"])
def test_nothing_is_proven_for_the_mask_is_private(recipe: str) -> None:
    config = fedldp.recipe(f"priority-mnist-{recipe}")
    privacy = plan(config, MNIST).privacy
    units = {"record", "client-round", "client-run"}
    assert {line.unit for line in privacy.guarantees} == units
    for line in privacy.guarantees:
        assert (line.kind, line.epsilon) == ("none", None)
        assert line.reason == SENT_IN_CLEAR(what=(NOISIER_FEATURES,))
    claim = privacy.claim
    assert (claim.epsilon, claim.delta, claim.unit) == (10.0, 0.01, "record")
    assert "Talaei, Izadi 2024" in claim.source
    assert "0.5 for the features with more noise" in claim.source


def test_the_noise_level_shows_which_features_are_important() -> None:
    """The attack uses a single report, which has 256 weights for each feature."""
    config = config_of(model="mlp", epsilon_low=0.5, epsilon_high=50.0)
    change = np.random.default_rng(3).normal(size=19_210) / 1000
    sent = Sent(config, change, count=1)
    first = sent.values[0][: 256 * FEATURES].reshape(256, FEATURES)
    noisiest = np.argsort(first.std(axis=0))[-26:]
    assert set(noisiest) == set(np.flatnonzero(pick_features(sent.importance, 0.4, "least")))
