"""Flower itself: bytes arrive, killed processes come back, and none remains at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedldp.core.errors import RunError, WireError
from fedldp.deployment.frames import read_frame, write_frame
from fedldp.deployment.loopback import Loopback
from fedldp.deployment.pipe import FlowerPipe
from fedldp.deployment.sockets import listen

PATIENCE = 600.0


class Echo:
    """An agent that answers with its name and the request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = listen(path)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it is closed at the end
            while True:
                connection, _address = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(WireError):
            body = read_frame(connection, 1 << 30)
            write_frame(connection, self.path.stem.encode() + body)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echoes(tmp_path: Path) -> Iterator[list[Echo]]:
    agents = [Echo(tmp_path / "agents" / f"{index}.sock") for index in range(2)]
    yield agents
    for agent in agents:
        agent.close()


def eventually(holds: Callable[[], bool], patience: float = PATIENCE) -> None:
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def take(pipe: FlowerPipe, count: int) -> dict[int, bytes | None]:
    found: list[tuple[int, bytes | None]] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        found += pipe.take(1)
    assert len(found) == count
    return dict(found)


def rounds(pipe: FlowerPipe, loop: Loopback, count: int, body: bytes) -> None:
    eventually(lambda: len(pipe.nodes(10)) == 2)
    for _ in range(count):
        tags = [pipe.ask(node, body, 300) for node in loop.node_ids]
        assert take(pipe, 2) == {tags[0]: b"0" + body, tags[1]: b"1" + body}


def run_app(pipe: FlowerPipe, loop: Loopback) -> None:
    loop.run_app()
    assert pipe.wait_connected(PATIENCE)


def of_folder(folder: Path) -> list[str]:
    """Return the command lines of the processes that mention a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if os.fsencode(folder) in line + (entry / "environ").read_bytes():
                found.append(line.decode("utf-8", "replace"))
    return found


@pytest.mark.slow
def test_bytes_go_through_and_no_process_remains(tmp_path: Path, echoes: list[Echo]) -> None:
    """``test_real_flower.py`` tests processes that die meanwhile."""
    folder = tmp_path / "flower"
    with (
        FlowerPipe(tmp_path / "server" / "pipe.sock") as pipe,
        Loopback(folder, [echo.path for echo in echoes], pipe.path) as loop,
    ):
        loop.start()
        run_app(pipe, loop)
        assert sorted(pipe.nodes(10)) == sorted(loop.node_ids)
        rounds(pipe, loop, 2, os.urandom(2_000_000))

        # An absent agent gives an empty answer, not an error.
        echoes[1].close()
        tag = pipe.ask(loop.node_ids[1], b"nobody", 300)
        assert take(pipe, 1) == {tag: b""}

        pipe.end()
        eventually(lambda: "serverapp" not in loop.processes())
        assert of_folder(folder)
        with pytest.raises(
            RunError, match="no process 'serverapp' is running to be killed; running: super"
        ):
            loop.kill("serverapp")
    assert loop.processes() == {}
    assert of_folder(folder) == []
    logs = b"".join(log.read_bytes() for log in folder.glob("*.log"))
    assert b"nobody" not in logs


BEGIN = """
import sys, time
from pathlib import Path
from fedldp.deployment.loopback import Loopback
folder = Path(sys.argv[1])
with Loopback(folder / "flower", [folder / "a"], folder / "b") as loop:
    loop.start()
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_signal_ends_all_processes(tmp_path: Path) -> None:
    """``test_real_demo.py`` tests Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert len(of_folder(tmp_path)) >= 4
        process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)  # impatient users press twice
        assert process.wait(120) != 0
    assert of_folder(tmp_path) == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        Loopback(tmp_path, [], tmp_path / "s") as loop,
        pytest.raises(RunError, match="is not empty: choose a new one"),
    ):
        loop.start()


def test_only_started_processes_can_be_restarted(tmp_path: Path) -> None:
    with Loopback(tmp_path, [], tmp_path / "s") as loop:
        with pytest.raises(RunError, match="cannot restart 'clientapp-0': give superlink or"):
            loop.restart("clientapp-0")
        assert loop.processes() == {}
