"""What systems have in common whose clients send their change by one mechanism, and no more."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedldp.mechanisms import Mechanism
from fedldp.parts.changes import AddMeanChange, SendChange
from fedldp.parts.sides import ServerSide
from fedldp.systems.base import Problem, SystemConfig

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


class MeanChangeConfig(SystemConfig):
    """Settings of such a system."""

    rounds_only_add: ClassVar[bool] = True

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """The randomiser of every client, in the unit of the weights."""

    def client_encoder(self, problem: Problem, client: int) -> SendChange:
        """Return what randomises the change of a client's weights."""
        return SendChange(self.mechanism, self.layout(problem).size)

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        return self.sgd(problem, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that adds the mean change to the weights."""
        return ServerSide(
            initial=lambda draw: self.first_state(problem, draw),
            aggregate=AddMeanChange(self.mechanism),
        )
