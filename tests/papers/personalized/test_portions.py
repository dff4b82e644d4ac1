"""Portions of a client's examples, scikit-learn's rate, and selections, against slow oracles."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import SGDClassifier
from torch import nn

from fedldp.algorithms.features import Features
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset
from fedldp.models import build_model
from fedldp.papers.personalized.parts import PortionSgd, draw_selection, optimal_rate
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import client_of, trained
from fedldp.training.local_sgd import LocalSgd, evaluate
from fedldp.training.losses import one_vs_rest
from fedldp.training.tensors import read_weights

CPU = torch.device("cpu")


def numbered(count: int) -> Examples:
    """Return examples whose only feature is their number."""
    return Examples(np.arange(count, dtype=np.float32)[:, None], np.zeros(count, np.int64))


def portions(rounds: int, sampling_probability: float = 1.0) -> PortionSgd:
    training = LocalSgd(nn.Linear(1, 2), 1, 1, 1.0, CPU)
    return PortionSgd(training, rounds, sampling_probability, 1e-4)


def sampled(step: PortionSgd, count: int, round: int, *, seed: int = 0) -> list[int]:
    client = client_of(numbered(count), 3, seed=seed, round=round)
    return [int(value) for value in step.sample(client, round).features[:, 0]]


# The rate


def test_one_against_the_rest_with_a_penalty_agrees_with_scikit_learn() -> None:
    """One example at a time, without biases, which scikit-learn does not penalise."""
    generator = np.random.default_rng(0)
    x, y = generator.random((60, 5), np.float32), generator.integers(0, 3, 60)
    theirs = SGDClassifier(loss="log_loss", alpha=0.05, fit_intercept=False)
    for row, label in zip(x, y, strict=True):
        theirs.partial_fit(row[None], [label], classes=[0, 1, 2])
    weights = torch.zeros(3, 5, requires_grad=True)
    for step, (row, label) in enumerate(zip(torch.from_numpy(x), torch.from_numpy(y), strict=True)):
        loss = one_vs_rest((weights @ row)[None], label[None]).sum()
        (slope,) = torch.autograd.grad(loss + 0.05 / 2 * weights.square().sum(), weights)
        weights = (weights - optimal_rate(step, 0.05) * slope).detach().requires_grad_()
    np.testing.assert_allclose(weights.detach().numpy(), theirs.coef_, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("alpha", [1e-4, 1e-3, 0.05, 0.7])
def test_the_rate_agrees_with_scikit_learn(alpha: float) -> None:
    """One example at a time, where the change of a step divided by the slope of the loss is the
    rate."""
    model = SGDClassifier(
        loss="log_loss", penalty=None, alpha=alpha, learning_rate="optimal", fit_intercept=False
    )
    x, before = 0.03, 0.0
    for step in range(50):
        label = step % 2
        model.partial_fit([[x]], [label], classes=[0, 1])
        slope = (1 / (1 + math.exp(-before * x)) - label) * x
        after = float(model.coef_[0, 0])
        assert (before - after) / slope == pytest.approx(optimal_rate(step, alpha), rel=1e-9)
        before = after


# Portions and samples


@pytest.mark.parametrize(("count", "rounds"), [(20, 10), (23, 10), (7, 7), (479, 10)])
def test_every_example_is_in_the_portion_of_exactly_one_round(count: int, rounds: int) -> None:
    found = [sampled(portions(rounds), count, round) for round in range(1, rounds + 1)]
    assert sorted(number for portion in found for number in portion) == list(range(count))
    assert {len(portion) for portion in found} <= {count // rounds, -(-count // rounds)}
    assert found != [sampled(portions(rounds), count, r, seed=1) for r in range(1, rounds + 1)]


def test_a_real_client_uses_no_example_in_two_rounds_even_after_a_restart() -> None:
    """The client's noise is fresh, but the order of its examples comes from its secret."""
    step = portions(7)

    def of_run(run: str) -> list[list[int]]:
        found = []
        for round in range(1, 8):
            keys = SecretKeys(bytes(range(32)), run)
            fresh = partial(keys.fresh, round, 0)
            client = replace(client_of(numbered(40)), fresh=fresh, kept=keys.kept)
            found.append([int(v) for v in step.sample(client, round).features[:, 0]])
        return found

    first, again, other = of_run("run"), of_run("run"), of_run("another run")
    assert sorted(number for portion in first for number in portion) == list(range(40))
    assert first == again != other


def test_a_sample_keeps_each_example_with_its_probability() -> None:
    kept, count = 0, 0
    for seed in range(40):
        whole = [sampled(portions(5), 100, r, seed=seed) for r in (1, 2)]
        some = [sampled(portions(5, 0.8), 100, r, seed=seed) for r in (1, 2)]
        for portion, sample in zip(whole, some, strict=True):
            assert set(sample) <= set(portion)
            kept, count = kept + len(sample), count + len(portion)
    # The probability beyond five deviations is below 1e-6.
    assert abs(kept - 0.8 * count) < 5 * math.sqrt(0.16 * count)


def gradient_descent(
    weights: np.ndarray, examples: Examples, steps: int, *, rest: bool = False, decay: float = 0.0
) -> np.ndarray:
    """Return W of shape (classes, pixels + 1) after lines 11 to 13 of Algorithm 1."""
    x = np.hstack([examples.features.reshape(len(examples), -1), np.ones((len(examples), 1))])
    x = x.astype(np.float64)
    for step in range(steps):
        odds = np.exp(x @ weights.T)
        slopes = odds / (1 + odds if rest else odds.sum(1, keepdims=True))
        slopes[np.arange(len(x)), examples.labels] -= 1
        rate = 1 / (1e-4 * (1000 + step))
        weights = weights - rate * (slopes.T @ x / len(x) + decay * weights)
    return weights


@pytest.mark.parametrize("rest", [False, True])
def test_a_local_update_is_gradient_descent_on_its_sample(rest: bool) -> None:
    train = load_dataset("digits").train
    own = Examples(train.features[:60], train.labels[:60])
    model = build_model("logistic", (1, 8, 8), 10)
    given: dict[str, Any] = {"losses": one_vs_rest, "weight_decay": 0.01} if rest else {}
    step = PortionSgd(LocalSgd(model, 4, 100, 1.0, CPU, **given), 3, 0.8, 1e-4)
    start = (np.arange(650) % 13 - 6).astype(np.float32) / 50
    client = client_of(own, 1, round=2)
    found = trained(step, Broadcast(round=2, weights=start), client)
    matrix = np.hstack([start[:640].reshape(10, 64), start[640:, None]]).astype(np.float64)
    decay = 0.01 if rest else 0.0
    expected = gradient_descent(matrix, step.sample(client, 2), 4, rest=rest, decay=decay)
    np.testing.assert_allclose(found[:640].reshape(10, 64), expected[:, :-1], atol=1e-4)
    np.testing.assert_allclose(found[640:], expected[:, -1], atol=1e-4)


def test_features_are_scaled_in_training_and_in_evaluation() -> None:
    data = load_dataset("digits")
    factor = 16.0
    bigger = Examples(data.train.features[:40] * np.float32(factor), data.train.labels[:40])
    test = Examples(data.test.features * np.float32(factor), data.test.labels)
    models = [build_model("logistic", (1, 8, 8), 10) for _ in range(2)]
    Features(scale=factor).prepare(models[0])
    own = (Examples(data.train.features[:40], data.train.labels[:40]), bigger)
    start = Broadcast(round=1, weights=read_weights(models[0]))
    one, other = (
        trained(LocalSgd(model, 2, 5, 0.1, CPU), start, client_of(examples))
        for model, examples in zip(models, own, strict=True)
    )
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert evaluate(models[0], data.test, CPU).right == evaluate(models[1], test, CPU).right


# Selections


def stream(number: int) -> Stream:
    return Stream.simulation(seed=number, round=1, client=-1, purpose="selection")


@pytest.mark.slow
def test_clients_are_selected_as_often_as_one_omega_implies() -> None:
    """P(P_i > omega), given that somebody is selected, is P_i/max P, and selections are nested."""
    rho = np.array([1.0, 4.0, 2.0, 4.0])
    count, times, redrawn = 4000, np.zeros(4), 0
    for number in range(count):
        chosen, again = draw_selection(rho, stream(number))
        assert list(np.unique(rho[chosen])) == [v for v in (1, 2, 4) if v >= rho[chosen].min()]
        assert chosen[rho >= rho[chosen].min()].all()
        times += chosen
        redrawn += again
    expected = rho / rho.max()
    assert times[1] == times[3] == count
    deviation = np.sqrt(expected * (1 - expected) * count)
    # The probability beyond five deviations is below 2e-6.
    assert (np.abs(times - expected * count) <= 5 * deviation).all()
    # A draw fails with probability 1 - max P = 7/11: 7/4 failures before a success.
    assert redrawn / count == pytest.approx(7 / 4, abs=5 * math.sqrt(7 * 11 / 16 / count))
