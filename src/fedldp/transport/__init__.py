"""Ways from the clients to the server. Simulation and deployment differ in the transport alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from fedldp.wire import Broadcast, Report, Shuffled


class Transport(Protocol):
    """Carries a broadcast to clients and their reports back."""

    def exchange(self, broadcast: Broadcast, clients: Sequence[int]) -> Iterator[Report | Shuffled]:
        """Let ``clients`` take part in the round of ``broadcast``; yield what comes in."""
        ...
