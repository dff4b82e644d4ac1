"""The sound variant: its budgets hold for the run, and its mask comes from public values alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedldp
from fedldp.accounting.events import GaussianReport
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.algorithms.problem import Problem
from fedldp.core.kinds import IDEALISED
from fedldp.papers.priority.parts import UnevenRelease
from fedldp.papers.priority.preset_public import priority_public
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Report
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, sender_of

DIGITS = Problem((1, 8, 8), 10, 1437)
SIZE, FEATURES, HIDDEN = 650, 64, 10


def config_of(**changes: Any) -> priority_public:
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
    return release.noisier.picked_in(state.round, state.arrays["importance"])


def noise_of(
    config: priority_public, state: State, weights: np.ndarray, count: int = 40
) -> np.ndarray:
    """Return the deviation of each feature's noise, shape (64,), over the reports of clients."""
    roles, step = roles_of(config), config.algorithm(DIGITS).release(0).mechanism.ball.step
    told = roles.server.publish(state)
    sent = [
        np.frombuffer(roles.encode(weights, told, sender_of(7, index)).payload, "<i4") * step
        for index in range(count)
    ]
    first = np.array(sent)[:, : HIDDEN * FEATURES].reshape(count, HIDDEN, FEATURES)
    return (first - first.mean(axis=0)).std(axis=(0, 1))


# The budget


@settings(max_examples=25)
@given(
    st.floats(0.1, 1e4), st.sampled_from([1e-9, 1e-5, 0.01]), st.integers(1, 200), st.floats(0.1, 9)
)
def test_a_whole_run_stays_within_its_budget(
    epsilon: float, delta: float, rounds: int, clip: float
) -> None:
    config = config_of(epsilon=epsilon, delta=delta, rounds=rounds, clip=clip, num_clients=2)
    event = roles_of(config).encoder().event()
    assert isinstance(event, GaussianReport)
    spent = gaussian_epsilon(event.mu * math.sqrt(rounds), delta)
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=2e-3)  # the clip is a whole number of steps


@pytest.mark.parametrize("noise_ratio", [1.0, 7.0])
def test_the_statement_has_the_epsilon_of_the_least_noise(noise_ratio: float) -> None:
    """A vector with mixed noise, clipped as a whole, costs what its smallest sigma gives at
    distance 2 C."""
    config = config_of(epsilon=64.0, rounds=5, noise_ratio=noise_ratio)
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
    config = config_of(noisier=noisier, noisier_share=0.25, noise_ratio=5.0)
    state = known()
    order = np.argsort(state.arrays["importance"])
    expected = np.zeros(FEATURES, np.bool_)
    expected[order[:16] if noisier == "least" else order[-16:]] = True
    np.testing.assert_array_equal(picked_in(config, state), expected)
    sigma = config.algorithm(DIGITS).release(0).mechanism.sigma
    for weights in (state.weights, state.weights[::-1].copy(), np.zeros(SIZE, np.float32)):
        found = noise_of(config, state, weights)
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
    config = config_of(send=send, clip=1e3, epsilon=1e7, noisier_share=0.5, noise_ratio=3.0)
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
    config = config_of(noisier_share=0.5, noise_ratio=2.0, clip=100.0, epsilon=1e8)
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
