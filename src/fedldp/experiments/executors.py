"""Who makes runs: this process, several processes of this machine, or a Ray cluster.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fedldp.experiments.making import Maker
from fedldp.experiments.runs import Ended, PlannedRun, Row, RunExecutor, WorkerLost
from fedldp.simulation.plan import check_workers, cores

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from fedldp.experiments.executors import serve; serve(int(sys.argv[1]))"
)
_TICK = 0.5
"""Seconds between two checks of the runs' progress."""

DIED = "its process died: perhaps memory ran out; continue with fewer workers"


@contextmanager
def executor_of(
    maker: Maker, workers: int | None, cluster: str | None, left: int
) -> Iterator[RunExecutor]:
    """Yield who makes runs; at the end, or if interrupted, stop every worker.

    Args:
        maker: how to make a run.
        workers: the number of processes on this machine; None starts one per core.
        cluster: "auto" or the address of a Ray cluster, instead of workers.
        left: how many runs are left; if these are fewer than the workers, each run gets several.

    Raises:
        FedldpError: the settings contradict each other, or the cluster cannot be reached.
    """
    if cluster is None:
        with Processes(maker, min(workers or cores(), cores()), left) as processes:
            yield processes
        return
    check_workers(None, cluster, maker.device)
    from fedldp.experiments.cluster import ClusterExecutor  # imports torch

    with ClusterExecutor(cluster, maker) as nodes:
        yield nodes


class _Worker:
    """A process that makes runs, as seen from the process that started it."""

    def __init__(self, maker: Maker) -> None:
        self.connection, theirs = Pipe()
        self.run: PlannedRun | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(_search_path())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Ctrl-C in a terminal reaches the whole process group, and only the parent decides how
            # to end.
            process_group=0,
        )
        theirs.close()
        self._send(maker)

    def begin(self, run: PlannedRun, place: Path | None) -> None:
        self.run = run
        self._send((run, place))

    def _send(self, message: object) -> None:
        with suppress(OSError):  # ``result`` reports a worker that died
            self.connection.send(message)

    def result(self) -> Row | Exception | None:
        """Return what the worker made; None if it died."""
        try:
            found: Row | Exception = self.connection.recv()
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> None:
        # Killing is safe: either the run is no longer needed, or it can be continued, because a
        # run folder is always complete.
        self._process.kill()
        self._process.wait()
        self.connection.close()


def _search_path() -> list[str]:
    return [place for place in sys.path if isinstance(place, str)]


class Processes:
    """Processes of this machine, or this process alone; see ``RunExecutor``.

    Args:
        maker: how to make a run.
        at_most: the largest number of processes, at least 1.
        left: how many runs are left.
    """

    def __init__(self, maker: Maker, at_most: int, left: int) -> None:
        self.slots = max(1, min(at_most, left))
        self._maker = copy(maker)
        self._maker.workers = at_most // self.slots
        self._workers: dict[Connection, _Worker] = {}
        self._done: list[Ended] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    def begin(self, run: PlannedRun, place: Path | None) -> None:
        """Begin a run; see ``RunExecutor``."""
        # Runs that may start processes are not made in this process: the started processes would
        # run the caller's script again.
        if self.slots == 1 and self._maker.workers == 1:
            self._done.append((run, self._maker.attempt(run, place)))
            return
        free = next((each for each in self._workers.values() if each.run is None), None)
        if free is None:
            free = _Worker(self._maker)
            self._workers[free.connection] = free
        free.begin(run, place)

    def ended(self) -> list[Ended]:
        """Return the runs that have ended; see ``RunExecutor``."""
        found, self._done = self._done, []
        busy = [c for c, w in self._workers.items() if w.run is not None]
        for connection in wait(busy, timeout=_TICK) if busy else ():
            assert isinstance(connection, Connection)
            worker = self._workers[connection]
            run, worker.run = worker.run, None
            assert run is not None
            result = worker.result()
            if result is None:
                del self._workers[connection]
                worker.end()
            found.append((run, WorkerLost(DIED) if result is None else result))
        return found


def serve(descriptor: int) -> None:
    """Make runs in the process that was started for them."""
    os.dup2(2, 1)  # output from a user's model must not mix with results
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    maker: Maker = connection.recv()
    threading.Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    import torch

    from fedldp.simulation.in_process import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    while True:
        connection.send(maker.attempt(*inbox.get()))


def _listen(connection: Connection, inbox: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(1)
