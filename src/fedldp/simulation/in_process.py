"""Clients in processes of this machine: functions that take and return bytes, batches in order."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

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


Task = TypeVar("Task")
Done = TypeVar("Done")

LARGEST = 16
"""The largest number of groups in a batch."""


def in_order(
    items: Sequence[int],
    workers: int,
    *,
    group: int,
    begin: Callable[[Sequence[int]], Task],
    result: Callable[[Task], Done],
    cancel: Callable[[Task], object],
) -> Iterator[tuple[Sequence[int], Done]]:
    """Yield batches of ``items`` with their results, in order, with few in progress at once.

    Args:
        items: the items to process.
        workers: how many batches are processed at once.
        group: the size of a group. A batch consists of whole groups, so that work done in groups
            does not depend on the number of workers.
        begin: hands a batch to a worker.
        result: waits for a batch's result.
        cancel: called with each batch whose result is no longer needed.
    """
    size = group * max(1, min(LARGEST, len(items) // (workers * 4 * group)))
    waiting: deque[tuple[Sequence[int], Task]] = deque()
    try:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            waiting.append((batch, begin(batch)))
            if len(waiting) > 2 * workers:
                yield _next(waiting, result)
        while waiting:
            yield _next(waiting, result)
    finally:
        for _, task in waiting:
            cancel(task)


def _next(
    waiting: deque[tuple[Sequence[int], Task]], result: Callable[[Task], Done]
) -> tuple[Sequence[int], Done]:
    batch, task = waiting[0]
    done = result(task)
    waiting.popleft()  # only now, so that a batch is also cancelled if waiting for it fails
    return batch, done


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names in glibc's malloc.h
_KEPT = 2**28
_ALWAYS_GIVEN_BACK = 2**25  # bytes; the largest value that glibc allows


def keep_freed_memory() -> None:
    """Make this process keep up to 256 MiB of freed memory, in blocks of less than 32 MiB.

    By default glibc returns large freed blocks to the system, which clears their pages when they
    are allocated again: this caused 2,372 page faults in each training step of the VGG model.
    Without glibc, this function does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_TRIM_THRESHOLD, _KEPT)
        set_option(_MMAP_THRESHOLD, _ALWAYS_GIVEN_BACK)
