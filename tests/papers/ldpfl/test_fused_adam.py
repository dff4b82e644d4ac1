"""The fused Adam of LDPFL's training agrees with Adam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedldp
from fedldp.papers.ldpfl.training import TrainOnBits
from fedldp.protocol.wire import (
    Broadcast,
    RoundRequest,
    pack_request,
)
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.plan import plan
from fedldp.simulation.population import Population, Watched
from fedldp.testing.clients import Roles, trained
from fedldp.training.batched_sgd import GROUP

FEW = {"num_clients": 10, "local_epochs": 1, "model": "logistic"}


def population_of(name: str, folder: Path, **settings: Any) -> Population:
    config = fedldp.recipe(name, **FEW | settings)
    inputs = Inputs.of(config, None, None)
    return Population(
        config=plan(config, inputs.problem).scheduled,
        problem=inputs.problem,
        dataset=inputs.dataset,
        members=inputs.members,
        device=torch.device("cpu"),
        folder=folder,
        lasting=False,
        run="run",
    )


def request(population: Population, round: int = 1) -> tuple[bytes, Broadcast]:
    roles = Roles(population.config, population.problem)
    first = roles.broadcast
    broadcast = Broadcast(
        round=round, weights=first.weights, ranges=first.ranges, public=first.public
    )
    return pack_request(RoundRequest(run="run", phase=0, broadcast=broadcast)), broadcast


def test_the_fused_adam_agrees_with_adam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fused optimizer that receives a gradient with other strides steps in a wrong direction.
    settings = {"optimizer": "adam", "learning_rate": 0.001, "model": "mlp_64"}
    population = population_of("ldpfl-digits-public", tmp_path, **settings)
    step = population.local_update
    assert isinstance(step, Watched)
    assert isinstance(step.local_update, TrainOnBits)
    _, broadcast = request(population)
    clients = population.batch([0, 1, 4], 1)
    together = step(broadcast, clients, GROUP).open().rows
    alone = [trained(step, broadcast, client) for client in clients]

    def plain(self: TrainOnBits, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.learning_rate, foreach=False)

    monkeypatch.setattr(TrainOnBits, "_optimizer", plain)
    expected = [trained(step, broadcast, client) for client in clients]
    for found in (together, alone):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(expected - broadcast.weights).max() > 3e-3
