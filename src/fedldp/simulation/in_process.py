"""Clients on this machine, called through a function that takes and returns bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import RoundRequest, pack_request, read_reply_to, read_reports_to

Packed = Sequence[bytes] | NDArray[np.uint8]
"""Packed answers of several clients, as rows of one array if only the payloads differ."""

SentRequest = bytes | RoundRequest
"""The request to several clients: one packed request, or one that is packed for each client."""

Answers = Callable[[SentRequest, Sequence[int]], Iterator[tuple[Sequence[int], Packed]]]
"""Sends a request to clients, and yields their answers, several clients at a time."""


def answers_of(
    runtime: ClientRuntime, request: SentRequest, clients: Sequence[int]
) -> Iterator[tuple[Sequence[int], Packed]]:
    """Yield the answers of a runtime's clients in order, several at a time."""
    if isinstance(request, bytes):
        yield from runtime.answers(request, clients)
        return
    for client in clients:
        yield from runtime.answers(pack_request(request.to(client)), [client])


class InProcess:
    """The transport to clients that answer a function call.

    Args:
        answers: see ``Answers``.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield every client's answer; see ``Transport``."""
        asked = request if request.own else pack_request(request)
        for some, packed in self._answers(asked, clients):
            if len(packed) != len(some):
                raise RunError(f"{len(packed)} answers from {len(some)} clients")
            if isinstance(packed, np.ndarray):
                yield some, read_reports_to(request, packed)
                continue
            for client, answer in zip(some, packed, strict=True):
                yield client, read_reply_to(request, answer)
