"""What feature priority proves, with private and with public importance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedldp.accounting.events import (
    GaussianReport,
)
from fedldp.papers.priority.preset import priority
from fedldp.papers.priority.preset_public import priority_public
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, client_of
from fedldp.testing.data import PROBLEM, SMALL, images

# NbAFL and feature priority


@pytest.mark.parametrize(
    ("importance", "share"), [("variance", 0.0), ("sensitivity", 0.3), ("variance", 1.0)]
)
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


# Central DP


# PrivUnit FL


# The recipes
