"""How requests reach clients and answers return, in a simulation or a deployment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fedldp.protocol.wire import Counted, Refusal, Report, Reports, RoundRequest, Shuffled

Content = Report | Reports | Refusal | Shuffled | Counted | None
"""What arrived; None for clients that answered, but whose reports arrive without a sender."""

Delivery = tuple[int | Sequence[int] | None, Content]
"""The sender, if visible, and the content. If there are several senders, it is Reports or None."""


class Transport(Protocol):
    """Carries a request to clients and their answers back."""

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Ask ``clients``; yield what arrives, in any order. Some clients may not answer."""
        ...


def one_by_one(deliveries: Iterable[Delivery]) -> Iterator[tuple[int | None, Content]]:
    """Yield ``deliveries`` one client at a time."""
    for sender, content in deliveries:
        if sender is None or isinstance(sender, int):
            yield sender, content
        elif isinstance(content, Reports):
            yield from zip(sender, content, strict=True)
        else:
            for client in sender:
                yield client, content
