"""Sound LDPFL: every example is randomised once, and the statement has the requested epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.data import Examples, load_dataset
from fedldp.mechanisms import mechanisms
from fedldp.papers.ldpfl.parts import RandomisedGradients
from fedldp.papers.ldpfl.preset_sound import ldpfl_sound
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, client_of
from fedldp.testing.clients import trained as trained_by

DIGITS = load_dataset("digits")
PROBLEM = Problem((1, 8, 8), 10, 1437)
FMNIST = Problem((1, 28, 28), 10, 60_000)
OWN = Examples(DIGITS.train.features[:30], DIGITS.train.labels[:30])
ALMOST_NONE = 1e4
"""A budget at which PrivUnit hardly randomises: it sends the gradient with an error below 1 %."""


def config(**changes: Any) -> Settings:
    settings: dict[str, Any] = {
        "dataset": "digits", "num_clients": 4, "rounds": 3, "learning_rate": 2.0, "epsilon": 1.0,
    }  # fmt: skip
    return ldpfl_sound(**{**settings, **changes})


def built(settings: Settings) -> Roles:
    return Roles(settings, PROBLEM)


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Client]:
    folders = iter(range(1000))

    def make(examples: Examples = OWN, *, round: int = 1) -> Client:
        return client_of(examples, round=round, folder=tmp_path / f"disk-{next(folders)}")

    return make


def broadcast(settings: Settings, round: int = 1) -> Broadcast:
    weights = np.random.default_rng(1).normal(size=1280).astype(np.float32)
    assert built(settings).layout.size == 1280
    return Broadcast(round=round, weights=weights)


def trained(settings: Settings, own: Client, *, round: int = 1) -> np.ndarray:
    return trained_by(built(settings).local_update, broadcast(settings, round), own)


def features_of(settings: Settings, examples: Examples) -> np.ndarray:
    found = settings.composition.features(PROBLEM, broadcast(settings), examples.features)
    assert found is not None
    return found


# One example, one round, one gradient


@pytest.mark.parametrize("batch_size", [1, 4, 1000])
def test_every_example_is_randomised_once_in_the_run(
    client: Callable[..., Client], batch_size: int
) -> None:
    settings = config(batch_size=batch_size)
    local, start = settings.composition.local, broadcast(settings)
    assert isinstance(local, RandomisedGradients)
    mechanism = local.mechanism(1280)
    seen: list[np.ndarray] = []

    class Watching:
        def encode(self, values: np.ndarray, stream: Any) -> bytes:
            seen.append(values)
            return mechanism.encode(values, stream)

        def aggregate(self, size: int) -> Any:
            return mechanism.aggregate(size)

    step = replace(built(settings).local_update, mechanism=Watching())
    for round in (1, 2, 3):
        trained_by(step, replace(start, round=round), client(round=round))
    assert len(seen) == len(OWN)
    # A gradient is (p - label) x features, so its features identify the example.
    rows = features_of(settings, OWN)
    owners = []
    for values in seen:
        gradient = values.reshape(10, 128)
        direction = np.linalg.svd(gradient)[2][0]
        owners.append(int(np.abs(rows @ direction).argmax()))
    assert sorted(owners) == list(range(len(OWN)))


def test_files_kept_for_a_round_are_deleted_in_the_next(tmp_path: Path) -> None:
    settings, seen = config(rounds=3), []
    for round in (1, 2, 3):
        own = client_of(OWN, round=round, folder=tmp_path)
        trained(settings, own, round=round)
        seen.append(sorted(path.parent.name for path in tmp_path.rglob("trained.safetensors")))
    assert seen == [["round-1"], ["round-2"], ["round-3"]]


def test_without_noise_training_is_clipped_gradient_descent(client: Callable[..., Client]) -> None:
    settings = config(epsilon=ALMOST_NONE, clip=0.5, rounds=1, batch_size=10)
    found = trained(settings, client())
    features = torch.from_numpy(features_of(settings, OWN))
    order = client().kept("portions").generator().permutation(len(OWN))
    weights = torch.from_numpy(broadcast(settings).weights.reshape(10, 128).copy())
    for places in torch.from_numpy(order).split(10):
        steps = torch.zeros_like(weights)
        for place in places:
            mine = weights.clone().requires_grad_()
            answer = torch.tensor([int(OWN.labels[place])])
            loss = functional.cross_entropy(features[place][None] @ mine.T, answer)
            (gradient,) = torch.autograd.grad(loss, mine)
            steps += gradient * min(1.0, 0.5 / float(gradient.norm()))
        weights = weights - 2.0 * steps / len(places)
    change = found - broadcast(settings).weights
    expected = weights.numpy().reshape(-1) - broadcast(settings).weights
    assert np.linalg.norm(change - expected) < 0.05 * np.linalg.norm(expected)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_example_that_is_not_finite_is_used_like_an_image_without_slopes(
    client: Callable[..., Client], value: float
) -> None:
    """A refusal would reveal such an example; here it does not affect the features of the
    others."""
    features, flat = OWN.features.copy(), OWN.features.copy()
    features[3, 0, 2, 2] = value
    flat[3] = 0.25
    for model in ("linear", "mlp_64"):
        settings = config(rounds=1, model=model)
        told = built(settings).broadcast
        found, expected = (
            trained_by(built(settings).local_update, told, client(Examples(images, OWN.labels)))
            for images in (features, flat)
        )
        assert np.isfinite(found).all()
        assert not np.array_equal(found, told.weights)
        np.testing.assert_array_equal(found, expected)


# The test


def test_the_test_set_is_shared_out_among_the_clients(tmp_path: Path) -> None:
    settings = config()
    tester = settings.algorithm(PROBLEM).tester(torch.device("cpu"))
    found = [
        tester(broadcast(settings), client_of(OWN, i, folder=tmp_path / str(i)), DIGITS.test)
        for i in range(4)
    ]
    assert sum(score.total for score in found) == len(DIGITS.test)
    features = features_of(settings, DIGITS.test)
    logits = features @ broadcast(settings).weights.reshape(10, 128).T
    assert sum(score.right for score in found) == (logits.argmax(1) == DIGITS.test.labels).sum()


# The statement


def lines(settings: Settings, problem: Problem = FMNIST) -> dict[str, dict[str, Any]]:
    found = plan(settings, problem).privacy["guarantees"]
    return {line["unit"]: line for line in found if line["kind"] != "approximate"}


@pytest.mark.parametrize(
    ("epsilon", "mechanism"),
    [
        (0.5, "nearest_direction"),
        (1.0, "privunit"),
        (2.0, "piecewise"),
        (4.0, "laplace"),
        (8.0, "privunit"),
    ],
)
def test_a_record_costs_the_requested_epsilon(mechanism: str, epsilon: float) -> None:
    settings = config(num_clients=10, mechanism=mechanism, epsilon=epsilon, rounds=20)
    line = lines(settings)["record"]
    assert (line["kind"], line["neighbours"]) == ("pure", "replace-record")
    assert line["epsilon"] <= epsilon
    assert line["epsilon"] == pytest.approx(epsilon, rel=1e-3)
    assert any("idealised" in text for text in line["assumptions"]) == (mechanism == "privunit")


def test_a_whole_client_costs_all_of_its_records_and_its_number_is_not_protected() -> None:
    found = lines(config(num_clients=10))
    assert found["client-run"]["epsilon"] == pytest.approx(6000, rel=1e-6)
    assert found["client-run"]["epsilon"] <= 6000
    uneven = lines(config(num_clients=10, partition="power-law:1"))
    assert uneven["record"]["epsilon"] == found["record"]["epsilon"]
    assert uneven["client-run"]["kind"] == "none"


# Settings


def test_the_accepted_mechanisms_are_those_that_a_refusal_names() -> None:
    def taken(mechanism: str) -> bool:
        try:
            plan(config(mechanism=mechanism, epsilon=1.0), PROBLEM)
        except ConfigError:
            return False
        return True

    description = ldpfl_sound.model_fields["mechanism"].description or ""
    named = set(description.split(": ")[1].replace(" or ", ", ").split(", "))
    assert named == {mechanism for mechanism in mechanisms() if taken(mechanism)}
    with pytest.raises(ConfigError) as refused:
        plan(config(mechanism="two_point"), PROBLEM)
    assert all(mechanism in str(refused.value) for mechanism in named)
