"""What systems have in common whose clients send their change by one mechanism, and no more."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import Aggregate
from fedldp.mechanisms import Mechanism
from fedldp.parts.sides import ServerSide
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import Problem

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


class MeanChangeConfig(MeanServerConfig):
    """Settings of such a system."""

    rounds_only_add: ClassVar[bool] = True

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """The randomiser of every client, in the unit of the weights."""

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what randomises the change of a client's weights."""
        return Encoder(
            release=Release(
                bound=Unbounded(send="update"),  # the mechanism has one of its own
                mechanism=self.mechanism,
                size=self.layout(problem).size,
            )
        )

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        return self.sgd(problem, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that adds the mean change to the weights."""
        mean = Aggregate(empty=self.mechanism.aggregate, gives="update")
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))
