"""Worker processes of this machine: each does one task at a time, and ends with this process.

They are separate programs, not a pool of ``multiprocessing``, because such a pool would run the
script that called ``fedldp.run`` or ``fedldp.sweep`` again in each process. Nothing that they
receive comes from that script; see ``check_travels``. A process ends when its connection is closed,
which also happens if this process dies for any reason.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError, first_line
from fedldp.core.locks import scratch

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from fedldp.simulation.workers import serve; serve(int(sys.argv[1]), sys.argv[2])"
)

DIED = "a worker process died: perhaps memory ran out; continue with fewer workers"


class WorkerLost(RunError):
    """The process or the node that did a task died, so that nobody knows how far the task got."""


class Workers:
    """Processes that do tasks; each is started with its first task, and again if it died.

    Args:
        size: the number of processes, at least 1.
        make: called with ``given`` in each process; returns the function that does tasks there.
        given: the arguments of ``make``; all processes map their arrays from one file. Tasks and
            their results are pickled.
    """

    def __init__(self, size: int, make: Callable[..., Callable[..., Any]], *given: object) -> None:
        self.size = size
        self._given = make, given
        self._threads = ThreadPoolExecutor(size)  # each thread has a process of its own
        self._own = threading.local()
        self._lock = threading.Lock()
        self._started: list[subprocess.Popen[bytes]] = []
        self._folder = ExitStack()
        self._closed = False

    def submit(self, *task: object) -> Future[Any]:
        """Do a task as soon as a process is free.

        Returns:
            The task's result, or the error that it raised; ``WorkerLost`` if its process died.
        """
        return self._threads.submit(self._done, task)

    def result(self, begun: Future[Any]) -> Any:
        """Return the result of a task, or raise its error."""
        return begun.result()

    def close(self) -> None:
        """End all processes, even busy ones: whatever they do is no longer needed, or continues."""
        with self._lock:
            self._closed = True
            for process in self._started:
                process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._started:
            process.wait()
        self._folder.close()

    def _done(self, task: object) -> Any:
        try:
            if getattr(self._own, "connection", None) is None:
                self._own.connection = self._start()
            self._own.connection.send(task)
            failed, found = self._own.connection.recv()
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
            if not self._started:
                import joblib  # takes a fifth of a second, which runs of one process need not wait

                self._file = self._folder.enter_context(scratch()) / "given"
                joblib.dump(self._given, self._file)
            arguments = [str(theirs.fileno()), str(self._file), json.dumps(path)]
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # Ctrl-C in a terminal reaches the whole process group, and only the parent decides
                # how to end.
                process_group=0,
            )
            self._started.append(process)
        theirs.close()
        return ours


def serve(descriptor: int, file: str) -> None:
    """Do tasks in the process that was started for them.

    Args:
        descriptor: the connection to the parent.
        file: holds how to do them; its folder, which holds all temporary files too, is removed by
            the parent, or by this process if the parent dies.
    """
    import joblib

    os.dup2(2, 1)  # output from a user's model must not mix with results
    connection = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    folder = Path(file).parent
    tempfile.tempdir = str(folder)
    threading.Thread(target=_listen, args=(connection, inbox, folder), daemon=True).start()
    settle()
    do: Callable[..., Any] | None = None
    while True:
        task = inbox.get()
        try:
            if do is None:
                # Copy-on-write: all processes read the same pages, and torch gets writable memory.
                make, given = joblib.load(file, mmap_mode="c")
                do = make(*given)
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


def _listen(connection: Connection, inbox: queue.SimpleQueue[Any], folder: Path) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names in glibc's malloc.h
_KEPT = 2**28
_ALWAYS_GIVEN_BACK = 2**25  # bytes; the largest value that glibc allows


def settle() -> None:
    """Make this process train with one thread, and keep up to 256 MiB of freed memory.

    By default glibc returns large freed blocks to the system, which clears their pages when they
    are allocated again: this caused 2,372 page faults in each training step of the VGG model. Now
    blocks of less than 32 MiB are kept. Without glibc, only the threads are set.
    """
    import torch

    torch.set_num_threads(1)
    set_option = None
    if sys.platform.startswith("linux"):
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_TRIM_THRESHOLD, _KEPT)
        set_option(_MMAP_THRESHOLD, _ALWAYS_GIVEN_BACK)
