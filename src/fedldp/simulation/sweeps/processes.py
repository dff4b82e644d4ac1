"""Several runs at once: processes of which each does one run after the other, with one thread.

They are programs of their own and not a pool of ``multiprocessing``, which would run the script of
whoever calls ``fedldp.sweep`` or ``fedldp.compare`` again in each of them. A process ends with its
connection: when it is closed, and when this process dies, however that comes about.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, Self, TypeVar

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from fedldp.simulation.sweeps.processes import serve; serve(int(sys.argv[1]))"
)
_TICK = 0.5
"""Seconds between two looks at how far runs are."""

DIED = "its process died: perhaps memory ran out; continue with fewer workers"

Task = TypeVar("Task")
Given = TypeVar("Given", contravariant=True)


class Work(Protocol[Given]):
    """How one task is done, and what all of them share. It can be pickled, and so can tasks."""

    def carry_out(self, task: Given, /) -> Any:
        """Do a task; what is returned can be pickled."""
        ...

    def with_workers(self, workers: int) -> Self:
        """Return the same work, of which each task may have so many processes of its own."""
        ...


class _Worker(Generic[Task]):
    """A process that does tasks, as the process that started it sees it."""

    def __init__(self, work: Work[Task]) -> None:
        self.connection, theirs = Pipe()
        self.task: Task | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(_search_path())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Ctrl-C in a terminal reaches a whole group, and the parent alone decides how to end.
            process_group=0,
        )
        theirs.close()
        self.connection.send(work)

    def begin(self, task: Task) -> None:
        self.task = task
        with suppress(OSError):  # where it is dead already, its result says so
            self.connection.send(task)

    def result(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return DIED

    def end(self) -> None:
        # What it is at is of no use any more, or can be continued: a run folder is always whole.
        self._process.kill()
        self._process.wait()
        self.connection.close()


def _search_path() -> list[str]:
    return [place for place in sys.path if isinstance(place, str)]


class Processes(Generic[Task]):
    """Processes of this machine; see ``SweepExecutor``.

    Those of one ``do`` are kept for the next, and end with the ``with`` that they are used in.

    Args:
        work: what tasks share; how many processes a task has follows from ``at_most``.
        at_most: processes, at least 1.
    """

    def __init__(self, work: Work[Task], at_most: int) -> None:
        self._work = work
        self._workers: dict[Connection, _Worker[Task]] = {}
        self.at_most = at_most

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    def do(
        self,
        tasks: Sequence[Task],
        *,
        done: Callable[[Task, Any], None],
        tick: Callable[[], None] = lambda: None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Do tasks; see ``SweepExecutor``.

        Args:
            tasks: in the order in which they begin.
            done: is told of each task, and what ``carry_out`` returned, or ``DIED``.
            tick: is called now and then.
            go_on: asked before a task begins; where it says no, the rest is left.
        """
        at_once = max(1, min(self.at_most, len(tasks)))
        each = self.at_most // at_once
        work = self._work.with_workers(each)
        # Not in this process where a run may start others, which would run its caller's script
        # again.
        if at_once > 1 or each > 1:
            _all_of(tasks, work, self._workers, at_once, done, tick, go_on)
            return
        for task in tasks:
            if not go_on():
                return
            done(task, work.carry_out(task))
            tick()


def _all_of(
    tasks: Sequence[Task],
    work: Work[Task],
    workers: dict[Connection, _Worker[Task]],
    at_once: int,
    done: Callable[[Task, Any], None],
    tick: Callable[[], None],
    go_on: Callable[[], bool],
) -> None:
    """Do tasks, ``at_once`` of them at the same time, each in another process."""
    waiting = deque(tasks)
    while waiting or any(worker.task is not None for worker in workers.values()):
        if waiting and not go_on():
            waiting.clear()
        for _ in range(min(at_once, len(waiting)) - len(workers)):
            worker = _Worker(work)
            workers[worker.connection] = worker
        for worker in workers.values():
            if worker.task is None and waiting:
                worker.begin(waiting.popleft())
        busy = [c for c, w in workers.items() if w.task is not None]
        for connection in wait(busy, timeout=_TICK):
            assert isinstance(connection, Connection)
            worker = workers[connection]
            task, worker.task = worker.task, None
            assert task is not None
            result = worker.result()
            if isinstance(result, str) and result == DIED:
                del workers[connection]
                worker.end()
            done(task, result)
        tick()


def serve(descriptor: int) -> None:
    """Do tasks, as the process that was started for them."""
    os.dup2(2, 1)  # what a model of the user's prints is no result
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    work: Work[Any] = connection.recv()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    import torch

    from fedldp.simulation.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    while True:
        connection.send(work.carry_out(inbox.get()))


def _listen(connection: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(1)
