"""Priority as published, and by public importance: importance, noise, masks and guarantees."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scripted import deployed
from torch import nn

import fedldp
from fedldp.accounting.events import GaussianReport
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.kinds import IDEALISED, SENT_IN_CLEAR
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.models import build_model, layout_of_module
from fedldp.papers.nbafl.parts import NbaflNoise
from fedldp.papers.priority.importance import FirstLayer, pick_features, variance_importance
from fedldp.papers.priority.mechanism import UnevenGaussian, check_ratio
from fedldp.papers.priority.parts import NOISIER_FEATURES, UnevenRelease
from fedldp.papers.priority.preset import priority
from fedldp.papers.priority.preset_public import priority_public
from fedldp.papers.priority.training import RankingSgd, check_dense_first, sensitivity_importance
from fedldp.protocol.roles import Batch, Client, State, Update
from fedldp.protocol.wire import Broadcast, Layout, Report
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


def values_of(roles: Roles, update: Any, told: Broadcast, count: int) -> np.ndarray:
    """Return the values that so many clients send with the same update."""
    step = roles.config.algorithm(DIGITS).release(0).mechanism.ball.step
    reports = (roles.encode(update, told, sender_of(7, index)) for index in range(count))
    return np.array([np.frombuffer(report.payload, "<i4") * step for report in reports])


def deviations(values: np.ndarray, hidden: int = 10) -> tuple[np.ndarray, float]:
    """Return the deviation of the noise on each feature's weights, and on all other weights."""
    noise = values - values.mean(axis=0)
    first = noise[:, : hidden * FEATURES].reshape(len(noise), hidden, FEATURES)
    return first.std(axis=(0, 1)), float(noise[:, hidden * FEATURES :].std())


def sent(config: priority, change: np.ndarray, count: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Return what clients with the same change send, and the importance of their features."""
    roles = Roles(config, DIGITS)
    told, release = roles.broadcast, config.algorithm(DIGITS).release(0)
    assert isinstance(release, UnevenRelease)
    weights = told.weights + change.astype(np.float32)
    importance = variance_importance(*map(release.first_layer.weights, (told.weights, weights)))
    update = Update(rows=weights[None], aux={"importance": importance[None]})
    return values_of(roles, update, told, count), importance


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
    found, others = deviations(sent(config, steps(650))[0])
    low, high = (noise_of(config).uplink_sigma(epsilon) for epsilon in (5.0, 50.0))
    assert low == pytest.approx(10 * high)
    count = round(share * FEATURES)
    noisy = np.zeros(FEATURES, np.bool_)
    noisy[:count] = noisier == "least"
    noisy[FEATURES - count :] |= noisier == "most"
    assert noisy.sum() == count
    np.testing.assert_allclose(found[noisy], low, rtol=0.25)
    np.testing.assert_allclose(found[~noisy], high, rtol=0.25)
    assert others == pytest.approx(high, rel=0.25)


def test_the_whole_vector_is_clipped_jointly() -> None:
    config = config_of(epsilon_low=500.0, epsilon_high=5e3, clip=2.0, send="weights")
    (values,) = sent(config, np.full(650, 3.0), count=1)[0]
    assert np.linalg.norm(values) == pytest.approx(2.0, rel=0.01)
    np.testing.assert_allclose(values, 2 / math.sqrt(650), rtol=0.2)


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
    (values,), importance = sent(config, change, count=1)
    first = values[: 256 * FEATURES].reshape(256, FEATURES)
    noisiest = np.argsort(first.std(axis=0))[-26:]
    assert set(noisiest) == set(np.flatnonzero(pick_features(importance, 0.4, "least")))


SIZE, HIDDEN = 650, 10


def public_of(**changes: Any) -> priority_public:
    config = fedldp.recipe("priority-public-digits", **changes)
    assert isinstance(config, priority_public)
    return config


def roles_of(config: priority_public) -> Roles:
    return Roles(config, DIGITS)


def known(round: int = 4, *, seed: int = 0) -> State:
    """Return the server's state in a later round, with an importance for every feature."""
    importance = np.random.default_rng(seed).permutation(FEATURES) / 100
    return State(
        round=round,
        weights=np.linspace(-1, 1, SIZE).astype(np.float32),
        arrays={"importance": importance, "precision": np.ones(FEATURES)},
    )


def picked_in(config: priority_public, state: State) -> np.ndarray:
    """Return which features get more noise in the round that ``state`` begins."""
    release = config.algorithm(DIGITS).release(0)
    assert isinstance(release, UnevenRelease)
    return release.picked_in(state.round, state.arrays["importance"])


# The budget


@settings(max_examples=25)
@given(
    st.floats(0.1, 1e4), st.sampled_from([1e-9, 1e-5, 0.01]), st.integers(1, 200), st.floats(0.1, 9)
)
def test_a_whole_run_stays_within_its_budget(
    epsilon: float, delta: float, rounds: int, clip: float
) -> None:
    config = public_of(epsilon=epsilon, delta=delta, rounds=rounds, clip=clip, num_clients=2)
    event = roles_of(config).encoder().event()
    assert isinstance(event, GaussianReport)
    spent = gaussian_epsilon(event.mu * math.sqrt(rounds), delta)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=2e-3)  # the clip is a whole number of steps


@pytest.mark.parametrize("noise_ratio", [1.0, 7.0])
def test_the_statement_has_the_epsilon_of_the_least_noise(noise_ratio: float) -> None:
    """A vector with mixed noise, clipped as a whole, costs what its smallest sigma gives at
    distance 2 C."""
    config = public_of(epsilon=64.0, rounds=5, noise_ratio=noise_ratio)
    found = plan(config, DIGITS).privacy
    assert found.claim is None
    runs = [line for line in found.guarantees if line.unit == "client-run"]
    assert [line.kind for line in runs] == ["approximate"]
    assert IDEALISED not in runs[0].assumptions
    assert runs[0].epsilon == pytest.approx(64.0, rel=1e-4)
    assert runs[0].epsilon <= 64.0
    one = next(line for line in found.guarantees if line.unit == "client-round")
    sigma = config.algorithm(DIGITS).release(0).mechanism.sigma
    exact = gaussian_epsilon(2 * config.clip / sigma, config.delta)
    assert one.epsilon == pytest.approx(exact, rel=1e-4)


# The mask


@pytest.mark.parametrize("noisier", ["least", "most"])
def test_the_mask_follows_from_the_broadcast_and_no_client(noisier: str) -> None:
    config = public_of(noisier=noisier, noisier_share=0.25, noise_ratio=5.0)
    state = known()
    order = np.argsort(state.arrays["importance"])
    expected = np.zeros(FEATURES, np.bool_)
    expected[order[:16] if noisier == "least" else order[-16:]] = True
    np.testing.assert_array_equal(picked_in(config, state), expected)
    sigma = config.algorithm(DIGITS).release(0).mechanism.sigma
    for weights in (state.weights, state.weights[::-1].copy(), np.zeros(SIZE, np.float32)):
        roles = roles_of(config)
        found, _ = deviations(values_of(roles, weights, roles.server.publish(state), 40))
        np.testing.assert_allclose(found[expected], 5 * sigma, rtol=0.25)
        np.testing.assert_allclose(found[~expected], sigma, rtol=0.25)


# The ranking


def reports_of(
    config: priority_public,
    state: State,
    change: np.ndarray,
    count: int,
    seed: int = 0,
) -> list[Report]:
    roles = roles_of(config)
    told = roles.server.publish(state)
    weights = (told.weights + change).astype(np.float32)
    return [
        roles.encode(weights, told, sender_of(7, index, seed=seed, round=told.round))
        for index in range(count)
    ]


@pytest.mark.parametrize("send", ["update", "weights"])
def test_importance_estimates_the_square_change_without_bias(send: str) -> None:
    config = public_of(send=send, clip=1e3, epsilon=1e7, noisier_share=0.5, noise_ratio=3.0)
    state = known()
    unknown = {"importance": state.arrays["importance"], "precision": np.zeros(FEATURES)}
    state = replace(state, arrays=unknown)
    change = np.zeros(SIZE)
    change[: HIDDEN * FEATURES] = np.tile(np.linspace(0, 2, FEATURES), HIDDEN)
    roles, found = roles_of(config), []
    for seed in range(60):
        following, _ = roles.aggregate(reports_of(config, state, change, 2, seed=seed), state)
        found.append(following.arrays["importance"])
    estimates = np.array(found)
    error = estimates.std(axis=0) / math.sqrt(len(found))
    truth = np.linspace(0, 2, FEATURES) ** 2
    assert (np.abs(estimates.mean(axis=0) - truth) < 5 * error).all()
    # Estimates with more noise vary more.
    noisy = picked_in(config, state)
    assert estimates[:, noisy].std(axis=0).mean() > 2 * estimates[:, ~noisy].std(axis=0).mean()


def test_rounds_are_averaged_by_the_precision_of_their_noise() -> None:
    config = public_of(noisier_share=0.5, noise_ratio=2.0, clip=100.0, epsilon=1e8)
    before = known()
    change = np.full(SIZE, 0.5)
    after, _ = roles_of(config).aggregate(reports_of(config, before, change, 2), before)
    noisy = picked_in(config, before)
    share = np.where(noisy, 1 / 16, 1.0)
    np.testing.assert_allclose(after.arrays["precision"], 1 + share)
    old = before.arrays["importance"]
    np.testing.assert_allclose(
        after.arrays["importance"], (old + share * 0.25) / (1 + share), atol=0.01
    )
    np.testing.assert_allclose(after.weights, before.weights + 0.5, atol=0.25)


CPU = torch.device("cpu")


def deep(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 12),
        nn.Tanh(),
        nn.Linear(12, 9),
        nn.ReLU(),
        nn.Linear(9, classes),
    )


def model_of(name: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = deep(shape, classes) if name == "deep" else build_model(name, shape, classes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def one_by_one(model: nn.Module, examples: Examples, shift: float) -> np.ndarray:
    """Return the importance as defined in section III-C, with a new model for every feature."""
    features, labels = torch.from_numpy(examples.features), torch.from_numpy(examples.labels)

    def accuracy(evaluated: nn.Module) -> float:
        with torch.no_grad():
            return float((evaluated(features).argmax(1) == labels).double().mean())

    found = []
    for feature in range(math.prod(examples.features.shape[1:])):
        changed = copy.deepcopy(model)
        with torch.no_grad():
            next(changed.parameters())[:, feature] += shift
        found.append(abs(accuracy(changed) - accuracy(model)))
    return np.array(found)


@pytest.mark.parametrize(("shift", "name"), [(0.5, "logistic"), (3.0, "mlp"), (0.5, "deep")])
def test_sensitivity_agrees_with_a_plain_loop_on_digits(name: str, shift: float) -> None:
    train = load_dataset("digits").train
    examples = Examples(train.features[:150], train.labels[:150])
    model = model_of(name, (1, 8, 8), 10)
    expected = one_by_one(model, examples, shift)
    found = sensitivity_importance(model, examples, shift, CPU)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # A softmax layer alone is blind to a shift of all logits; deeper models are not.
    assert (expected.max() > 0) == (name != "logistic")


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
def test_variance_agrees_with_a_plain_loop(hidden: int, features: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    before, after = generator.normal(size=(2, hidden, features)).astype(np.float32)
    expected = [
        math.fsum(
            (float(before[j, i]) - float(after[j, i])) ** 2 / 4 * abs(float(after[j, i]))
            for j in range(hidden)
        )
        for i in range(features)
    ]
    np.testing.assert_allclose(variance_importance(before, after), expected, rtol=1e-9)


# Picking


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.floats(0, 1),
    st.sampled_from(["least", "most"]),
)
def test_the_share_of_least_or_most_important_is_picked(
    importance: list[int], share: float, which: str
) -> None:
    values = np.array(importance, np.float64)
    chosen = pick_features(values, share, which)  # type: ignore[arg-type]
    assert chosen.sum() == round(share * values.size)
    sign = 1 if which == "least" else -1
    if chosen.any() and not chosen.all():
        assert (sign * values)[chosen].max() <= (sign * values)[~chosen].min()


def test_least_and_most_important_features_are_disjoint_even_in_ties() -> None:
    for size in (5, 64, 784):
        least, most = (pick_features(np.zeros(size), 0.4, w) for w in ("least", "most"))
        assert not (least & most).any()


def test_the_first_layers_weights_in_the_vector() -> None:
    model = model_of("mlp", (1, 8, 8), 10)
    layer = FirstLayer.of(layout_of_module(model), "mlp", (1, 8, 8))
    vector = read_weights(model)
    dense = next(model.parameters()).detach().numpy()
    np.testing.assert_array_equal(layer.weights(vector), dense)
    assert np.shares_memory(layer.weights(vector), vector)
    assert layer.num_features == 64
    chosen = np.zeros(64, np.bool_)
    chosen[[3, 60]] = True
    where = layer.coordinates(chosen)
    assert where.shape == vector.shape
    assert where.sum() == 2 * 256  # biases and the second layer are none of them
    np.testing.assert_array_equal(vector[where].reshape(256, 2), dense[:, [3, 60]])


# Accepted models


def flat_first(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(math.prod(shape), classes))


def dropout_first(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(math.prod(shape), classes))


class Hidden(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.flatten, self.dense = nn.Flatten(), nn.Linear(math.prod(shape), classes)


@pytest.mark.parametrize("build", [flat_first, dropout_first, Hidden])
def test_a_model_without_a_first_dense_layer_is_refused(
    build: Callable[[tuple[int, ...], int], nn.Module],
) -> None:
    """The model's layout looks as if it had a first dense layer."""
    model = build((6,), 3)
    assert FirstLayer.of(layout_of_module(model), "some", (6,)).num_features == 6
    with pytest.raises(ConfigError, match="model = some: its first layer is not a dense layer"):
        check_dense_first(model, "some")


def test_a_layout_without_a_weight_for_every_pixel_is_refused() -> None:
    """The layout shows this before there is a model."""
    for shape in ((1, 8, 7), (3, 8, 8)):
        with pytest.raises(ConfigError, match="model = some: its first layer is not a dense layer"):
            FirstLayer.of(layout_of_module(model_of("mlp", (1, 8, 8), 10)), "some", shape)
    with pytest.raises(ConfigError, match="model = cnn: its first layer is not a dense layer"):
        FirstLayer.of(layout_of_module(build_model("cnn", (1, 16, 16), 10)), "cnn", (1, 16, 16))


# The mechanism: more noise in some coordinates


COORDINATES = 20_000
NOISIER = np.arange(COORDINATES) % 4 == 1


def simulated(number: int = 0) -> Stream:
    return Stream.simulation(seed=number, round=1, client=0, purpose="mechanism")


def drawn(mechanism: Gaussian, values: np.ndarray, stream: Stream) -> np.ndarray:
    indices = np.frombuffer(mechanism.encode(values, stream), "<i4")
    return indices * mechanism.ball.step


@pytest.mark.parametrize("stream", [simulated, deployed])
@pytest.mark.parametrize(("clip", "sigma", "ratio"), [(5.0, 0.07, 20.0), (1.0, 2.5, 3.0)])
def test_every_coordinate_has_its_noise(
    clip: float, sigma: float, ratio: float, stream: type[Stream]
) -> None:
    mechanism = UnevenGaussian(clip, sigma, NOISIER, ratio)
    noise = drawn(mechanism, np.zeros(COORDINATES), stream())
    deviations = np.sqrt(mechanism.variance(np.zeros(COORDINATES)))
    np.testing.assert_allclose(np.unique(deviations), [sigma, ratio * sigma])
    for part, deviation in ((NOISIER, ratio * sigma), (~NOISIER, sigma)):
        np.testing.assert_allclose(deviations[part], deviation)
        assert stats.kstest(noise[part] / deviation, "norm").pvalue > 1e-3


@given(
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.floats(1.0, 60.0),
    st.floats(0.5, 10.0),
    st.integers(0, 1000),
)
def test_the_report_is_the_even_one_with_more_noise(
    noisier: list[bool], ratio: float, clip: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(scale=5, size=5)
    even, mask = Gaussian(clip, 1.0), np.array(noisier)
    uneven = UnevenGaussian(clip, 1.0, mask, ratio)
    first = np.frombuffer(even.encode(values, simulated(seed)), "<i4")
    second = np.frombuffer(uneven.encode(values, simulated(seed)), "<i4")
    np.testing.assert_array_equal(first[~mask], second[~mask])
    # The added noise depends neither on the values nor on the noise of the even report.
    other = np.frombuffer(even.encode(-values, simulated(seed)), "<i4")
    moved = np.frombuffer(uneven.encode(-values, simulated(seed)), "<i4")
    np.testing.assert_array_equal(second - first, moved - other)


def test_the_guarantee_is_that_of_the_least_noise() -> None:
    even, uneven = Gaussian(5.0, 0.07), UnevenGaussian(5.0, 0.07, NOISIER, 20.0)
    assert uneven.event(COORDINATES) == even.event(COORDINATES)
    exact = 2 * 5.0 / 0.07  # the whole difference may be where the noise is smallest
    assert uneven.event(COORDINATES).mu == pytest.approx(exact, rel=1e-4)
    assert uneven.event(COORDINATES).mu <= exact * (1 + 1e-9)


def test_all_or_no_coordinates_may_be_noisier() -> None:
    none = UnevenGaussian(1.0, 1.0, np.zeros(COORDINATES, np.bool_), 5.0)
    everyone = UnevenGaussian(1.0, 1.0, np.ones(COORDINATES, np.bool_), 5.0)
    zeros = np.zeros(COORDINATES)
    even = Gaussian(1.0, 1.0).encode(zeros, simulated())
    for stream in (simulated, deployed):
        assert np.std(drawn(none, zeros, stream())) == pytest.approx(1.0, rel=0.03)
        assert np.std(drawn(everyone, zeros, stream())) == pytest.approx(5.0, rel=0.03)
    assert none.encode(zeros, simulated()) == even


@pytest.mark.parametrize(("clip", "sigma"), [(1e-9, 1e-5), (1.0, 1.0), (5.0, 0.07), (1e4, 1.0)])
def test_ratios_that_the_integers_cannot_hold_are_refused(clip: float, sigma: float) -> None:
    least = Gaussian(clip, sigma)
    for ratio in (0.99, 0.0, float("nan"), float("inf"), 1e12):
        with pytest.raises(ConfigError, match="times as much noise"):
            check_ratio(least, ratio)
        with pytest.raises(ConfigError, match="times as much noise"):
            UnevenGaussian(clip, sigma, NOISIER, ratio)
    largest = 2.0**31 / 8 / 2**least.scale_bits * 0.9
    check_ratio(least, 1.0)
    check_ratio(least, largest)
    # Eight deviations of the noise plus the longest coordinate fit into 32 bits.
    assert least.ball.radius + 8 * largest * 2**least.scale_bits < 2**31


def test_nan_is_refused() -> None:
    values = np.zeros(COORDINATES)
    values[7] = np.nan
    with pytest.raises(PrivacyError):
        UnevenGaussian(1.0, 1.0, NOISIER, 2.0).encode(values, simulated())


def test_a_release_is_claimed_for_the_noise_that_is_drawn() -> None:
    layer, least = FirstLayer(Layout(names=("a.weight",), shapes=((1, 13),))), Gaussian(1.0, 2.0)
    release = UnevenRelease(
        bound=InNorm(clip=1.0), mechanism=least, size=13, first_layer=layer, ratio=3.0,
        which="least", share=0.5, ranks="public",
    )  # fmt: skip
    assert release.event() == least.event(13)
    drawn = release.uneven(release.picked_in(2, np.arange(13.0)))
    assert (drawn.clip, drawn.sigma, drawn.noisier.sum()) == (least.clip, least.sigma, 6)
    assert not release.picked_in(1, np.arange(13.0)).any()
