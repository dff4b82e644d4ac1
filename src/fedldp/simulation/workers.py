"""Worker processes of this machine: each does one task at a time, and ends with this process.

They are separate programs, not a pool of ``multiprocessing``, because such a pool would run the
script that called ``fedldp.run`` or ``fedldp.sweep`` again in each process. Nothing that they
receive comes from that script; see ``check_travels``. A process ends when its connection is closed,
which also happens if this process dies for any reason.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import shutil
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError, first_line

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from fedldp.simulation.workers import serve; serve(int(sys.argv[1]))"
)

DIED = "a worker process died: perhaps memory ran out; continue with fewer workers"


class WorkerLost(RunError):
    """The process or the node that did a task died, so that nobody knows how far the task got."""


class Workers:
    """Processes that do tasks; each is started with its first task, and again if it died.

    Args:
        most: the largest number of processes, at least 1.
        make: called with ``given`` in each process; returns the function that does tasks there.
        given: the arguments of ``make``; they are pickled, as are tasks and their results.
        folder: a folder that the processes remove if this process dies.
    """

    def __init__(
        self,
        most: int,
        make: Callable[..., Callable[..., Any]],
        *given: object,
        folder: Path | None = None,
    ) -> None:
        self._first = make, given, folder
        self._threads = ThreadPoolExecutor(most)  # each thread has a process of its own
        self._own = threading.local()
        self._lock = threading.Lock()
        self._started: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def submit(self, *task: object) -> Future[Any]:
        """Do a task as soon as a process is free.

        Returns:
            The task's result, or the error that it raised; ``WorkerLost`` if its process died.
        """
        return self._threads.submit(self._done, task)

    def close(self) -> None:
        """End all processes, even busy ones: whatever they do is no longer needed, or continues."""
        with self._lock:
            self._closed = True
            for process in self._started:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._started:
            process.wait()

    def _done(self, task: object) -> Any:
        connection: Connection | None = getattr(self._own, "connection", None)
        try:
            if connection is None:
                connection = self._own.connection = self._start()
                connection.send(self._first)
            connection.send(task)
            failed, found = connection.recv()
        except (EOFError, OSError):
            self._own.connection = None
            raise WorkerLost(DIED) from None
        if failed:
            raise found
        return found

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        path = [place for place in sys.path if isinstance(place, str)]
        with self._lock:
            if self._closed:
                raise EOFError
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), json.dumps(path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Ctrl-C in a terminal reaches the whole process group, and only the parent decides
                # how to end.
                process_group=0,
            )
            self._started.append(process)
        theirs.close()
        return ours


def serve(descriptor: int) -> None:
    """Do tasks in the process that was started for them."""
    os.dup2(2, 1)  # output from a user's model must not mix with results
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    make, given, folder = connection.recv()
    threading.Thread(target=_listen, args=(connection, inbox, folder), daemon=True).start()
    import torch

    from fedldp.simulation.in_process import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    do: Callable[..., Any] | None = None
    while True:
        task = inbox.get()
        try:
            do = do or make(*given)
            result = False, do(*task)
        except Exception as error:
            error.add_note(traceback.format_exc())  # the frames themselves cannot be pickled
            result = True, _readable(error)
        connection.send(result)


def _readable(error: Exception) -> Exception:
    """Return an error that the other process can read: the same, or else its name and text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # such as a user's class of errors with several arguments
        found = RunError(f"{type(error).__name__}: {first_line(error)}")
        for note in error.__notes__:
            found.add_note(note)
        return found
    return error


def _listen(connection: Connection, inbox: queue.SimpleQueue[Any], folder: Path | None) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)
