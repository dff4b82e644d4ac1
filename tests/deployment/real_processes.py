"""Agents and servers as real processes, which can be made to die at an exact point."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

PATIENCE = 600.0
PRELOADED = [
    "pytest",
    "fedldp.simulation.engine",
    "fedldp.cli.deploy",
    "fedldp.deployment.running",
    "fedldp.deployment.https.server",
    "fedldp.deployment.https.site",
    __name__,
]


def eventually(holds: Callable[[], object], what: str = "", patience: float = PATIENCE) -> None:
    """Look ever less often: looking takes time that the processes need."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < patience, f"not in {patience:g} s: {what}"
        time.sleep(min(0.02 + waited / 20, 0.5))


# Processes


class Sabotage(Protocol):
    """A change of a process, applied before its command begins."""

    def apply(self) -> None: ...


class Party:
    """One process of the command line, restarted as often as needed.

    It forks from a clean process that has imported everything; otherwise a start would take
    seconds.
    """

    def __init__(self, log: Path, *arguments: object) -> None:
        self.log, self._arguments = log, [str(each) for each in arguments]
        self.process: BaseProcess | None = None

    def start(self, sabotage: Sabotage | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        given = (self._arguments, str(self.log), sabotage)
        self.process = context.Process(target=_act, args=given, daemon=True)
        self.process.start()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def wait(self, patience: float = PATIENCE) -> int:
        """Return its exit status, or the negative number of the signal that ended it."""
        self.process.join(patience)
        assert self.process.exitcode is not None, f"it hangs: {self.text()[-2000:]}"
        return self.process.exitcode

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process.is_alive(), self.text()[-2000:]
        self.process.kill()
        assert self.wait() == -signal.SIGKILL

    def stop(self) -> None:
        """Send SIGKILL, unless it has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def end(self) -> None:
        """Send SIGTERM, as systemd does."""
        if self.alive:
            self.process.terminate()
            assert self.wait() == 0, self.text()[-2000:]

    def interrupt(self, status: int = 130) -> None:
        """Send SIGINT, as Ctrl-C does, which ends a server with a status of 0."""
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGINT)
        assert self.wait() == status, self.text()[-2000:]

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def _act(arguments: list[str], log: str, sabotage: Sabotage | None) -> None:
    os.setsid()
    # The parent of the clean process may have blocked Ctrl-C.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    _hurry()
    if sabotage is not None:
        sabotage.apply()
    from fedldp.cli import main

    sys.argv = ["fedldp", *arguments]
    sys.orig_argv[1:] = ["-m", *sys.argv]  # with which it starts anew, without haste
    main()


def _hurry() -> None:
    """Shorten the pauses between tries, which are for networks and real outages, and the making of
    words."""
    from fedldp.deployment import running, sites, words
    from fedldp.deployment.https import server, site

    sites._PAUSE = sites._SEE = running._LOOK_SECONDS = 0.1
    site._LONGEST_PAUSE = 0.4
    server._TELL_SECONDS = 3.0
    words._STEPS = 1


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DiesAtCommit:
    """Dies after the n-th commit of a release to a ledger."""

    number: int

    def apply(self) -> None:
        import sqlite3

        number, seen = self.number, [0]
        connect = sqlite3.connect

        class Dying(sqlite3.Connection):
            releasing = False

            def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
                if sql == "BEGIN IMMEDIATE":
                    self.releasing = True
                seen[0] += self.releasing and sql == "COMMIT"
                done = super().execute(sql, *given)
                if self.releasing and sql == "COMMIT" and seen[0] == number:
                    die()
                return done

        sqlite3.connect = lambda *given, **named: connect(  # type: ignore[assignment]
            *given, factory=Dying, **named
        )


@dataclass(frozen=True)
class Hastens:
    """Signs of life, and what follows from silence, come so many times as fast."""

    times: float

    def apply(self) -> None:
        from fedldp.deployment import watch
        from fedldp.deployment.https import pipe, site

        watch.SILENT_SECONDS /= self.times
        site.BEAT_SECONDS /= self.times
        pipe._ALIVE_SECONDS /= self.times


@dataclass(frozen=True)
class DiesAtFile:
    """Dies after the n-th file that a server writes."""

    number: int

    def apply(self) -> None:
        from fedldp.deployment import journal, messages, server
        from fedldp.reporting import record

        written = itertools.count(1)

        def deadly(real: Callable[..., None]) -> Callable[..., None]:
            def write(*content: Any, **how: Any) -> None:
                real(*content, **how)
                if next(written) == self.number:
                    die()

            return write

        write = deadly(record.replace_file)
        for module in (record, journal, messages, server):
            module.replace_file = write  # type: ignore[attr-defined]
        record.append_file = journal.append_file = deadly(record.append_file)
