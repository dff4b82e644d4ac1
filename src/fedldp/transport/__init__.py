"""Ways from the server to clients and back. Simulation and deployment differ in the transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from fedldp.wire import Question, Refusal, Report, Shuffled

Delivery = tuple[int | None, Report | Refusal | Shuffled | None]
"""Whose it is, where that is seen, and what came; None for a client whose report comes unnamed."""


class Transport(Protocol):
    """Carries a question to clients and their answers back."""

    def exchange(self, question: Question, clients: Sequence[int]) -> Iterator[Delivery]:
        """Ask ``clients``; yield what comes in, in any order. Some may not answer."""
        ...
