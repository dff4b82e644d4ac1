"""Several runs at once: processes of which each does one run after the other, with one thread.

They are programs of their own and not a pool of ``multiprocessing``, which would run the script of
whoever calls ``fedldp.sweep`` again in each of them. A process ends with its connection: when it is
closed, and when this process dies, however that comes about.
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
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from fedldp.simulation.sweeps.one_run import RunContext, RunTask, carry_out

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from fedldp.simulation.sweeps.processes import serve; serve(int(sys.argv[1]))"
)
_TICK = 0.5
"""Seconds between two looks at how far runs are."""

DIED = "its process died: perhaps memory ran out; continue the sweep with fewer workers"


class _Worker:
    """A process that does runs, as the process that started it sees it."""

    def __init__(self, context: RunContext) -> None:
        self.connection, theirs = Pipe()
        self.task: RunTask | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(_search_path())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Ctrl-C in a terminal reaches a whole group, and the parent alone decides how to end.
            process_group=0,
        )
        theirs.close()
        self.connection.send(context)

    def begin(self, task: RunTask) -> None:
        self.task = task
        with suppress(OSError):  # where it is dead already, its result says so
            self.connection.send(task)

    def result(self) -> str | None:
        try:
            reason: str | None = self.connection.recv()
        except (EOFError, OSError):
            reason = DIED
        return reason

    def end(self) -> None:
        # What it is at is of no use any more, or can be continued: a run folder is always whole.
        self._process.kill()
        self._process.wait()
        self.connection.close()


def _search_path() -> list[str]:
    return [place for place in sys.path if isinstance(place, str)]


class Processes:
    """Processes of this machine; see ``SweepExecutor``.

    Args:
        context: what runs share; how many processes a run has follows from ``at_most``.
        at_most: processes, at least 1.
    """

    def __init__(self, context: RunContext, at_most: int) -> None:
        self._context = context
        self.at_most = at_most

    def do(
        self,
        tasks: Sequence[RunTask],
        *,
        done: Callable[[RunTask, str | None], None],
        tick: Callable[[], None],
    ) -> None:
        """Do runs; see ``SweepExecutor``."""
        at_once = max(1, min(self.at_most, len(tasks)))
        context = replace(self._context, workers=self.at_most // at_once)
        # Not in this process where a run may start others, which would run its caller's script
        # again.
        if at_once > 1 or context.workers > 1:
            _all_of(tasks, context, at_once, done, tick)
            return
        for task in tasks:
            done(task, carry_out(task, context))
            tick()


def _all_of(
    tasks: Sequence[RunTask],
    context: RunContext,
    at_once: int,
    done: Callable[[RunTask, str | None], None],
    tick: Callable[[], None],
) -> None:
    """Do runs, ``at_once`` of them at the same time, each in another process."""
    waiting = deque(tasks)
    workers: dict[Connection, _Worker] = {}
    try:
        while waiting or any(worker.task for worker in workers.values()):
            for _ in range(min(at_once, len(waiting)) - len(workers)):
                worker = _Worker(context)
                workers[worker.connection] = worker
            for worker in workers.values():
                if worker.task is None and waiting:
                    worker.begin(waiting.popleft())
            for connection in wait([c for c, w in workers.items() if w.task], timeout=_TICK):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                task, worker.task = worker.task, None
                assert task is not None
                reason = worker.result()
                if reason == DIED:
                    del workers[connection]
                    worker.end()
                done(task, reason)
            tick()
    finally:
        for worker in workers.values():
            worker.end()


def serve(descriptor: int) -> None:
    """Do runs, as the process that was started for them."""
    os.dup2(2, 1)  # what a model of the user's prints is no result
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[RunTask] = queue.SimpleQueue()
    context: RunContext = connection.recv()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    import torch

    from fedldp.simulation.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    while True:
        connection.send(carry_out(inbox.get(), context))


def _listen(connection: Connection, inbox: queue.SimpleQueue[RunTask]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(1)
