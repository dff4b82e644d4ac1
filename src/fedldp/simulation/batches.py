"""Process items in consecutive batches, with the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

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
