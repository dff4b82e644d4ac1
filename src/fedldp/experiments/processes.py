"""Several runs at once, in processes that carry out one run after another with one thread.

The processes are separate programs, not a pool of ``multiprocessing``, because a pool would run the
script that called ``fedldp.sweep`` or ``fedldp.compare`` again in each process. A process ends when
its connection is closed, which also happens if this process dies for any reason.
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
    "from fedldp.experiments.processes import serve; serve(int(sys.argv[1]))"
)
_TICK = 0.5
"""Seconds between two checks of the runs' progress."""

DIED = "its process died: perhaps memory ran out; continue with fewer workers"

Task = TypeVar("Task")
Given = TypeVar("Given", contravariant=True)


class Work(Protocol[Given]):
    """How to carry out tasks, with the state that they share.

    Both this object and the tasks can be pickled.
    """

    def carry_out(self, task: Given, /) -> Any:
        """Carry out a task; the result can be pickled."""
        ...

    def with_workers(self, workers: int) -> Self:
        """Return the same work, but with this many processes for each task."""
        ...


class _Worker(Generic[Task]):
    """A process that carries out tasks, as seen from the process that started it."""

    def __init__(self, work: Work[Task]) -> None:
        self.connection, theirs = Pipe()
        self.task: Task | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(_search_path())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Ctrl-C in a terminal reaches the whole process group, and only the parent decides how
            # to end.
            process_group=0,
        )
        theirs.close()
        self.connection.send(work)

    def begin(self, task: Task) -> None:
        self.task = task
        with suppress(OSError):  # ``result`` reports a worker that died
            self.connection.send(task)

    def result(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return DIED

    def end(self) -> None:
        # Killing is safe: either the task is no longer needed, or it can be continued, because a
        # run folder is always complete.
        self._process.kill()
        self._process.wait()
        self.connection.close()


def _search_path() -> list[str]:
    return [place for place in sys.path if isinstance(place, str)]


class Processes(Generic[Task]):
    """Processes of this machine; see ``SweepExecutor``.

    The processes of one ``do`` call are reused by the next, and end with the ``with`` block.

    Args:
        work: how to carry out a task; ``at_most`` determines how many processes each task has.
        at_most: the largest number of processes, at least 1.
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
        """Carry out tasks; see ``SweepExecutor``.

        Args:
            tasks: the tasks, in the order in which they begin.
            done: called with each task, and with what ``carry_out`` returned, or ``DIED``.
            tick: called from time to time.
            go_on: called before a task begins; if it returns False, no more tasks begin.
        """
        at_once = max(1, min(self.at_most, len(tasks)))
        each = self.at_most // at_once
        work = self._work.with_workers(each)
        # Runs that may start processes are not carried out in this process: the started processes
        # would run the caller's script again.
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
    """Carry out tasks, ``at_once`` at a time, each in another process."""
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
    """Carry out tasks in the process that was started for them."""
    os.dup2(2, 1)  # output from a user's model must not mix with results
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    work: Work[Any] = connection.recv()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    import torch

    from fedldp.simulation.in_process import keep_freed_memory

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
