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

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from fedldp.accounting.statement import Claim
from fedldp.algorithms.release import Encoder, in_clear
from fedldp.algorithms.server_update import Weighted, read_plain
from fedldp.parts.sides import ServerSide
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import Problem
from fedldp.systems.settings import Momentum

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


class FedAvgConfig(MeanServerConfig):
    """Settings of FedAvg."""

    rounds_only_add: ClassVar[bool] = True

    system: Literal["fedavg"] = "fedavg"
    weighting: Literal["examples", "uniform"] = Field(
        "examples", description="weight of a client in the average: its example count, or one"
    )

    momentum: Momentum = Field(0.0, description="of the clients' SGD; every round begins from rest")

    @property
    def by_examples(self) -> bool:
        """Whether a client sends its example count."""
        return self.weighting == "examples"

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what sends weights as they are, and perhaps the number of examples."""
        size = self.layout(problem).size
        return Encoder(release=in_clear(size), tells_examples=self.by_examples)

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return SGD."""
        return self.sgd(problem, device, self.momentum)

    def server(self, problem: Problem) -> ServerSide:
        """Return the averaging server."""
        mean = Weighted(read=read_plain, gives="weights", by_examples=self.by_examples)
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))

    def claim(self) -> Claim | None:
        """FedAvg claims no differential privacy."""
        return None
