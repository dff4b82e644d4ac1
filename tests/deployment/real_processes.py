"""Agents and servers as real processes, which can be made to die at an exact point.

    server process --socket--> Courier, or Flower --socket--> Proxy --socket--> agent process

A Proxy records everything that ever left an agent. A Courier carries bytes as Flower's two apps do,
but within milliseconds, for tests that are not about Flower itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedldp.core.errors import WireError
from fedldp.deployment.frames import LENGTH, ConnectionLost, read_frame, write_frame
from fedldp.deployment.messages import Answered, Ask, read_by_server, read_by_site
from fedldp.deployment.sockets import listen
from fedldp.protocol.roles import ServerRole, State
from fedldp.protocol.wire import Report, read_reply, read_request

PATIENCE = 600.0
LIMIT = 1 << 30
PRELOADED = [
    "pytest",
    "fedldp.simulation.engine",
    "fedldp.cli.deploy",
    "fedldp.deployment.running",
    "fedldp.deployment.https.server",
    "fedldp.deployment.https.site",
    __name__,
]

Place = tuple[int, int]
"""A round and a phase."""


def eventually(holds: Callable[[], object], what: str = "", patience: float = PATIENCE) -> None:
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, f"not in {patience:g} s: {what}"
        time.sleep(0.02)


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
        assert self.process is not None
        self.process.join(patience)
        assert self.process.exitcode is not None, f"it hangs: {self.text()[-2000:]}"
        return self.process.exitcode

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self.process is not None
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
            assert self.process is not None
            self.process.terminate()
            assert self.wait() == 0, self.text()[-2000:]

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGINT)
        assert self.wait() == 130, self.text()[-2000:]

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
    main()


def _hurry() -> None:
    """Shorten the pauses between tries, which are for networks and real outages."""
    from fedldp.deployment import sites
    from fedldp.deployment.https import site

    sites._PAUSE = sites._LOOK = 0.1
    site._LONGEST_PAUSE = 0.4


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DiesAtCommit:
    """Dies before or after the n-th commit of a release to a ledger."""

    number: int
    after: bool

    def apply(self) -> None:
        import sqlite3

        number, after, seen = self.number, self.after, [0]
        connect = sqlite3.connect

        class Dying(sqlite3.Connection):
            releasing = False

            def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
                if sql == "BEGIN IMMEDIATE":
                    self.releasing = True
                seen[0] += self.releasing and sql == "COMMIT"
                last = self.releasing and sql == "COMMIT" and seen[0] == number
                if last and not after:
                    die()
                done = super().execute(sql, *given)
                if last:
                    die()
                return done

        sqlite3.connect = lambda *given, **named: connect(  # type: ignore[assignment]
            *given, factory=Dying, **named
        )


@dataclass(frozen=True)
class DiesAtAnswer:
    """Dies when its n-th answer is ready, before it leaves or with some of its bytes sent."""

    number: int
    bytes_sent: int

    def apply(self) -> None:
        from fedldp.deployment import listening

        real, seen = listening.write_frame, [0]

        def write(sock: socket.socket, body: bytes, timeout: float | None = None) -> None:
            seen[0] += isinstance(read_by_server(body), Answered)
            if seen[0] == self.number:
                sock.sendall((LENGTH.pack(len(body)) + body)[: self.bytes_sent])
                die()
            real(sock, body, timeout)

        listening.write_frame = write


@dataclass(frozen=True)
class HoldsAnAnswer:
    """Over HTTPS, sends its n-th answer late, or half of it before the process dies.

    Attributes:
        seconds: the delay; None to send half of the answer.
    """

    number: int
    seconds: float | None = None

    def apply(self) -> None:
        import httpx

        real, seen = httpx.Client.stream, [0]

        def half(content: bytes) -> Iterator[bytes]:
            yield content[: len(content) // 2]
            time.sleep(0.2)  # until the bytes have left
            die()

        def stream(client: httpx.Client, method: str, url: str, **given: Any) -> Any:
            if url.startswith("/v1/answer/"):
                content = given["content"]
                seen[0] += isinstance(read_by_server(content), Answered)
                if seen[0] == self.number and self.seconds is not None:
                    time.sleep(self.seconds)
                elif seen[0] == self.number:
                    length = {"content-length": str(len(content))}
                    given |= {"headers": {**given["headers"], **length}, "content": half(content)}
            return real(client, method, url, **given)

        httpx.Client.stream = stream  # type: ignore[method-assign,assignment]


@dataclass(frozen=True)
class DiesAtEveryFile:
    """Dies once for each file that a server replaces, before or after the replacement.

    Attributes:
        done: a file with the names of the files at which it has died.
        after: whether it dies after the replacement.
        within: part of the paths of the files that count.
    """

    done: Path
    after: bool
    within: str = ""

    def apply(self) -> None:
        from fedldp.deployment import journal, receipts, server
        from fedldp.reporting import record

        real = record.replace_file

        def write(path: Path, content: bytes) -> None:
            known = self.done.read_text().splitlines() if self.done.exists() else []
            if str(path) in known or self.within not in str(path):
                real(path, content)
                return
            if self.after:
                real(path, content)
            self.done.write_text("\n".join([*known, str(path)]))
            die()

        for module in (record, journal, receipts, server):
            module.replace_file = write  # type: ignore[attr-defined]


@dataclass(frozen=True)
class DiskIsFull:
    """Limits the size of files from the first write to a file with a given name on.

    Attributes:
        name: the name; None for a limit from the beginning.
    """

    limit: int
    name: str | None = None

    def apply(self) -> None:
        import resource

        from fedldp.deployment import journal, server
        from fedldp.reporting import record

        # The log is on another disk.
        log = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        assert log.stdin is not None
        for stream in (1, 2):
            os.dup2(log.stdin.fileno(), stream)

        def fill() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))

        if self.name is None:
            fill()
            return
        real = record.replace_file

        def write(path: Path, content: bytes) -> None:
            if path.name == self.name:
                fill()
            real(path, content)

        for module in (record, journal, server):
            module.replace_file = write  # type: ignore[attr-defined]


@dataclass(frozen=True)
class OtherWeights:
    """A server whose first weights differ from those that its secret gives."""

    def apply(self) -> None:
        from fedldp.deployment import server

        real = server.server_role

        def role(*given: Any) -> ServerRole:
            honest = real(*given)

            def initial(draw: Any) -> State:
                state = honest.initial(draw)
                return replace(state, weights=state.weights + np.float32(0.01))

            return replace(honest, initial=initial)

        server.server_role = role


@dataclass(frozen=True)
class GivesUpSoon:
    """A site and a server that count a silent connection as lost after seconds, not a minute."""

    seconds: float

    def apply(self) -> None:
        import httpx

        from fedldp.deployment.https import server, site

        site._SECONDS = httpx.Timeout(self.seconds)
        server._ALIVE_SECONDS = server._PART_SECONDS = self.seconds
        server.POLL_SECONDS = self.seconds / 3


@dataclass(frozen=True)
class ClockJumps:
    """The wall clock shows a different time whenever it is read."""

    seconds: float

    def apply(self) -> None:
        real, looks = time.time, [0]

        def jumping() -> float:
            looks[0] += 1
            return real() + self.seconds * (-1) ** looks[0]

        time.time = jumping


# What lies between agents and server


@dataclass
class Passed:
    """One request to an agent, and the bytes that came back: only some of them if it died."""

    asked: bytes
    frame: bytes

    @property
    def answer(self) -> bytes | None:
        whole = len(self.frame) >= LENGTH.size
        whole = whole and len(self.frame) == LENGTH.size + LENGTH.unpack_from(self.frame)[0]
        return self.frame[LENGTH.size :] if whole else None


Call = Callable[[bytes], bytes | None]
Tamper = Callable[[bytes, Call], bytes | None]


class Proxy:
    """Stands before an agent's socket, and records what passes.

    Attributes:
        target: the agent's socket.
        passed: everything that has passed.
        tamper: gets the request and a function that calls the agent; returns what the pipe gets, or
            None to hang up.
    """

    def __init__(self, path: Path, target: Path | None = None) -> None:
        self.path, self.target = path, target
        self.forget()
        self._listener = listen(path)
        threading.Thread(target=self._serve, daemon=True).start()

    def forget(self) -> None:
        """Forget everything that passed."""
        self.passed: list[Passed] = []
        self.tamper: Tamper = lambda asked, call: call(asked)

    def call(self, body: bytes) -> bytes | None:
        """Return the agent's answer; None if it is absent or dies."""
        parts = bytearray()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            try:
                agent.connect(str(self.target))
                write_frame(agent, body, PATIENCE)
                while part := agent.recv(1 << 20):
                    parts += part
            except (OSError, WireError):
                pass
        passed = Passed(body, bytes(parts))
        if parts:
            self.passed.append(passed)
        return passed.answer

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed at the end
            while True:
                connection, _address = self._listener.accept()
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(WireError, OSError):
            answer = self.tamper(body := read_frame(connection, LIMIT), self.call)
            del body
            if answer is not None:
                write_frame(connection, answer, PATIENCE)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.path.unlink(missing_ok=True)


def place_of(asked: bytes) -> Place | None:
    """Return a server's request; None for a greeting, or for anything else."""
    with contextlib.suppress(WireError):
        message = read_by_site(asked)
        if isinstance(message, Ask):
            request = read_request(message.request)
            return request.broadcast.round, request.phase
    return None


def reports(proxy: Proxy) -> dict[Place, set[bytes]]:
    """Return the different complete reports that left an agent, by place."""
    found: dict[Place, set[bytes]] = {}
    for passed in list(proxy.passed):
        message = read_by_server(passed.answer) if passed.answer else None
        if isinstance(message, Answered):
            _run, phase, content = read_reply(message.answer)
            if isinstance(content, Report):
                found.setdefault((content.round, phase), set()).add(message.answer)
    return found


Deliver = Callable[[int, bytes, bytes | None], Sequence[bytes | None]]


@dataclass
class Courier:
    """Carries what Flower carries, in threads; see ``flower_app``.

    Attributes:
        server: the server's socket.
        sites: the sockets of the agents, or of the proxies before them.
        deliver: gets a site, a request and an answer; returns what arrives, or None for Flower's
            error.
        patience: how many seconds to wait for an agent to come back.
    """

    server: Path
    sites: list[Path]
    deliver: Deliver = lambda site, asked, answer: [answer]
    patience: float = 5.0
    _over: threading.Event = field(default_factory=threading.Event)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Courier:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._over.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
                try:
                    server.connect(str(self.server))
                    self._carry(server)
                except (OSError, ConnectionLost):
                    self._over.wait(0.02)

    def _carry(self, server: socket.socket) -> None:
        server.settimeout(PATIENCE)
        while not self._over.is_set():
            frame = read_frame(server, LIMIT, PATIENCE)
            if frame[:1] == b"E":
                return
            if frame[:1] == b"N":
                nodes = [100 + site for site in range(len(self.sites))]
                self._write(server, b"N" + struct.pack(f">{len(nodes)}Q", *nodes))
                continue
            tag, node, _ttl = struct.unpack(">8sQI", frame[1:21])
            given = (server, tag, node - 100, frame[21:])
            threading.Thread(target=self._pass_on, args=given, daemon=True).start()

    def _pass_on(self, server: socket.socket, tag: bytes, site: int, body: bytes) -> None:
        for answer in self.deliver(site, body, self._ask(site, body)):
            failed = answer is None
            with contextlib.suppress(OSError, ConnectionLost):
                self._write(server, b"F" + tag + bytes(4) if failed else b"R" + tag + answer)

    def _ask(self, site: int, body: bytes) -> bytes:
        until = time.monotonic() + self.patience
        while time.monotonic() < until and not self._over.is_set():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
                try:
                    agent.connect(str(self.sites[site]))
                    write_frame(agent, body, PATIENCE)
                    return read_frame(agent, LIMIT, PATIENCE)
                except (OSError, WireError):
                    time.sleep(0.05)
        return b""

    def _write(self, server: socket.socket, body: bytes) -> None:
        with self._writing:
            write_frame(server, body, PATIENCE)


@contextlib.contextmanager
def proxies_at(paths: Sequence[Path]) -> Iterator[list[Proxy]]:
    found = [Proxy(path) for path in paths]
    try:
        yield found
    finally:
        for proxy in found:
            proxy.close()
