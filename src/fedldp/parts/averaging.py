"""The unprotected path: clients send their weights as they are."""

from __future__ import annotations

from dataclasses import dataclass

from fedldp.accounting.events import Event
from fedldp.parts.changes import open_weights
from fedldp.parts.sides import Sender
from fedldp.wire import Broadcast, Report, Sensitive, Vector


@dataclass(frozen=True)
class SendPlain:
    """An encoder that protects nothing itself: float32 weights, little-endian.

    Attributes:
        releases: what the weights release: they are in clear, or follow from what was randomised.
        by_examples: also release the number of the client's examples, as its weight in the average.
    """

    releases: Event
    by_examples: bool = False

    def event(self, exchange: int = 0) -> Event:
        """Return what the weights release."""
        return self.releases

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, sender: Sender) -> Report:
        """Return the report of one client."""
        weights = open_weights(update, broadcast)
        return Report(
            round=broadcast.round,
            size=weights.size,
            payload=weights.astype("<f4").tobytes(),
            chunk=weights.size,
            weight=float(sender.num_examples.open()) if self.by_examples else None,
        )
