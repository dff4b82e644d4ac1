"""What a system says of the secure sum that may carry its reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from fedldp.algorithms.release import Encoder
from fedldp.algorithms.server_update import ServerUpdate

if TYPE_CHECKING:
    import torch

    from fedldp.mechanisms.summing import Summing
    from fedldp.parts.sides import ClientSide, ServerSide


class MaySum(ABC):
    """The part of a system's configuration that is about secure sums; a problem is ``Problem``."""

    @abstractmethod
    def client(self, problem: Any, client: int, device: torch.device) -> ClientSide: ...

    @abstractmethod
    def client_encoder(self, problem: Any, client: int) -> Any: ...

    @property
    @abstractmethod
    def round_size(self) -> int: ...

    @abstractmethod
    def server(self, problem: Any) -> ServerSide: ...

    def summing(self, problem: Any) -> Summing | None:
        """Return how reports are summed, where the server step needs no more than their sum."""
        encoder = self.client_encoder(problem, 0)
        found = encoder.summing(self.round_size) if isinstance(encoder, Encoder) else None
        if found is None:
            return None
        server = self.server(problem).aggregate
        needs = server.estimate.needs if isinstance(server, ServerUpdate) else "reports"
        return found if needs == "sum" else None

    @property
    def always_summed(self) -> bool:
        """Whether a deployed run must go through a secure sum, for nothing else is meant by it."""
        return False

    def inner_client(self, problem: Any, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client whose report a secure sum carries, in one exchange."""
        return self.client(problem, client, device)

    def inner_server(self, problem: Any) -> ServerSide:
        """Return the server's half that reads what ``Summing.total`` gives."""
        return self.server(problem)
