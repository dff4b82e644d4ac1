"""Ways from the server to clients and back. Simulation and deployment differ in the transport."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fedldp.protocol.wire import Counted, Refusal, Report, Reports, RoundRequest, Shuffled

Content = Report | Reports | Refusal | Shuffled | Counted | None
"""What came in; None for clients whose reports come unnamed."""

Delivery = tuple[int | Sequence[int] | None, Content]
"""Whose it is, where that is seen, and what came. Several clients bring Reports, or None."""


class Transport(Protocol):
    """Carries a question to clients and their answers back."""

    def exchange(self, question: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Ask ``clients``; yield what comes in, in any order. Some may not answer."""
        ...


def one_by_one(deliveries: Iterable[Delivery]) -> Iterator[tuple[int | None, Content]]:
    """Yield ``deliveries``, those of several clients apart."""
    for sender, content in deliveries:
        if sender is None or isinstance(sender, int):
            yield sender, content
        elif isinstance(content, Reports):
            yield from zip(sender, content, strict=True)
        else:
            for client in sender:
                yield client, content
