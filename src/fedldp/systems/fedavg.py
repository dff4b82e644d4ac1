"""FedAvg: federated averaging without any protection; the noise-free baseline.

    Broadcast: weights
        |
        v
    client_step   local SGD on the client's examples
        |         Sensitive weights
        v
    encoder       float32 weights as they are, and the example count (weighting = examples)
        |         Report: 32 d bits
        v
    server_step   weighted mean -> weights of the next Broadcast

Source: McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, Algorithm 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from fedldp.accounting.events import InClear
from fedldp.accounting.statement import Claim
from fedldp.parts.averaging import SendPlain, WeightedMean
from fedldp.systems import Problem, System, SystemConfig
from fedldp.wire import Broadcast


class FedAvgConfig(SystemConfig):
    """Settings of FedAvg."""

    system: Literal["fedavg"] = "fedavg"
    weighting: Literal["examples", "uniform"] = Field(
        "examples", description="weight of a client in the average: its example count, or one"
    )

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put FedAvg together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        return System(
            initial=lambda: Broadcast(round=1, weights=weights),
            client_step=training,
            encoder=SendPlain(by_examples=self.weighting == "examples"),
            server_step=WeightedMean(),
            model=model,
            layout=layout,
        )

    def release(self, client: int, size: int, problem: Problem) -> InClear:
        """Return the release of the weights, and of the example count where it is sent."""
        return InClear(
            what="weights and number of examples" if self.weighting == "examples" else "weights"
        )

    def claim(self) -> Claim | None:
        """FedAvg claims no differential privacy."""
        return None
