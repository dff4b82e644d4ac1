"""Findings of a privacy review: words that said more than is proven, and what it looked at."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from clients import client_of

import fedldp
from fedldp.accounting.events import Event, GaussianReport
from fedldp.accounting.guarantees import local_guarantees
from fedldp.data import Examples
from fedldp.models import build_model
from fedldp.parts.local_sgd import read_weights
from fedldp.parts.private_sgd import PIECE, NoisySums, PrivateSgd
from fedldp.simulation.plan import plan, problem_of
from fedldp.wire import Broadcast


def planned(recipe: str, **changes: Any) -> dict[str, Any]:
    config = fedldp.recipe(recipe, **changes)
    return plan(config, problem_of(config, None)).privacy


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_the_figure_for_the_client_protected_most_has_its_delta(delta: float) -> None:
    (_, warning) = planned("personalized-sound-digits", delta=delta)["warnings"]
    assert f"(delta {delta!r})" in warning


def test_no_figure_is_said_to_be_the_cost_of_a_client_that_sends_nothing() -> None:
    # Two of three clients send, and the third is protected most.
    changes = {"num_clients": 3, "clients_per_round": 2, "rounds": 1}
    (_, warning) = planned("quickstart", epsilon=[1.0, 2.0, 3.0], **changes)["warnings"]
    assert "costs at most epsilon" in warning


def test_the_rounds_that_a_line_rests_on_are_enough_for_every_client() -> None:
    # Client 0, of budget 2, is drawn once, and client 1, of budget 1, three times: 3 d is the
    # largest cost. Were client 0 drawn three times, as "at most 3 rounds" allows, it were 6 d.
    changes = {"num_clients": 3, "clients_per_round": 1, "rounds": 6, "seed": 5}
    privacy = planned("quickstart", epsilon=[2.0, 1.0, 1.0], **changes)
    for line in privacy["guarantees"]:
        if line["unit"] == "client-run":
            assert not [a for a in line["assumptions"] if "in at most" in a]
            assert (
                "no client takes part in more rounds than it is drawn for here"
                in (line["assumptions"])
            )
    pure = next(g for g in privacy["guarantees"] if g["unit"] == "client-run")
    assert pure["epsilon"] == 3 * 650
    same = planned("quickstart", epsilon=1.0, **changes)["guarantees"]
    assert all(
        "the client takes part in at most 3 rounds" in line["assumptions"]
        for line in same
        if line["unit"] == "client-run"
    )


def test_what_secure_aggregation_hides_is_said_of_a_server_without_accomplices() -> None:
    # Bonawitz et al. 2017, Theorem 6.3: all but the sum over those who do not collude.
    (line, _) = planned("secure-aggregation-digits")["guarantees"]
    assert "colludes with no client" in line["method"]


@pytest.mark.parametrize("shifts", [(100, 5), (64,), (40, 40)])
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-6])
def test_rounds_of_discrete_noise_cost_what_is_printed_at_most(
    shifts: tuple[int, ...], delta: float
) -> None:
    scale = 64  # the proof needs a scale well above 4, not 2^12
    mus = [shift / (scale - 16 / scale) for shift in shifts]
    history: Counter[Event] = Counter(
        GaussianReport(mu=math.nextafter(mu, math.inf), rho=1e9) for mu in mus
    )
    (line,) = local_guarantees(history, "client-run", delta)
    assert line.epsilon is not None
    reach = 12 * scale + max(shifts)
    noise = np.arange(-reach, reach + 1)
    weights = np.exp(-(noise**2) / (2 * scale**2))
    low, losses = np.ones(()), np.zeros(())
    for shift in shifts:
        low = np.multiply.outer(low, weights / weights.sum())
        losses = np.add.outer(losses, (shift**2 - 2 * noise * shift) / (2 * scale**2))
    lost = low * -np.expm1(np.minimum(line.epsilon - losses, 0))
    assert 0 < lost.sum() <= delta


def test_a_sample_in_pieces_gets_its_noise_once() -> None:
    sums = NoisySums(steps=1, sampling_rate=1.0, batch_size=8, clip=1e-6, noise_multiplier=3.0)
    torch.manual_seed(0)
    step = PrivateSgd(build_model("mlp", (1, 8, 8), 10), sums, 1e3, torch.device("cpu"))
    drawn = np.random.default_rng(0)
    size = 3 * PIECE + 1
    features = drawn.normal(size=(size, 1, 8, 8)).astype(np.float32)
    start = Broadcast(round=1, weights=read_weights(step.model).copy())
    trained = step(start, client_of(Examples(features, drawn.integers(0, 10, size)))).open()
    # All gradients together move a weight by less than the noise: 769 clips over 5,000 weights.
    assert np.std(trained - start.weights) == pytest.approx(3.0 * 1e-6 * 1e3 / 8, rel=0.05)
