"""Finds the processes of one Flower instance on this machine, in Linux's /proc.

Flower starts programs that start programs in new sessions, so neither a process group nor a process
tree contains all of them. They are recognised by the folder in their environment or, because some
programs hide their environment, by the addresses of the Flower instance in their arguments.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PROGRAMS = {
    "flower-superlink": "superlink",
    "flower-supernode": "supernode",
    "flower-superexec": "superexec",
    "flwr-serverapp": "serverapp",
    "flwr-clientapp": "clientapp",
    "flwr": "flwr",
}


NODE_IS_IN = b"SuperNode ID:"
"""What a SuperNode (of ``flower_app.TESTED``) logs once the SuperLink has accepted it."""
_TAKEN = b"Received successfully"
_SETTLED = (b"Sent successfully", b"Ignoring", b"Failed to ", NODE_IS_IN)


@dataclass(frozen=True, kw_only=True)
class FlowerProcess:
    """A process, identified by its id and, because ids are reused, its start time (clock ticks)."""

    name: str
    pid: int
    started: str

    def kill(self) -> None:
        """Send SIGKILL if the id still belongs to this process, and wait until it has ended."""
        give_up = time.monotonic() + 10
        while _started(self.pid) == self.started and time.monotonic() < give_up:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.01)


def find(folder: Path, ports: Mapping[str, int]) -> list[FlowerProcess]:
    """Return the running processes of the Flower instance whose homes are in ``folder``.

    Args:
        folder: the folder that contains ``home``, in which each Flower program has its own home.
        ports: the ports of superlink and supernode-I, by process name.
    """
    owner = {str(port): name for name, port in ports.items()}
    home = b"FLWR_HOME=" + os.fsencode(folder / "home") + b"/"
    found = []
    for pid, arguments in _all():
        program = next((name for name in map(_program, arguments[:2]) if name), None)
        started = _started(pid)
        if program is None or started is None:
            continue
        by_port = owner.get(_port(program, arguments))
        environment = _environment(pid)
        ours = by_port is not None if environment is None else home in environment
        if ours:
            found.append(FlowerProcess(name=_name(program, by_port), pid=pid, started=started))
    return found


def is_waiting(log: bytes) -> bool:
    """Return whether a SuperNode has not replied to its last message, according to its log."""
    return log.rfind(_TAKEN) > max(log.rfind(said) for said in _SETTLED)


def _name(program: str, by_port: str | None) -> str:
    if program == "supernode":
        return by_port or program
    number = (by_port or "").removeprefix("supernode-").removeprefix("superlink")
    return f"{program}-{number}" if number else program


def _port(program: str, arguments: list[str]) -> str:
    option = "--port" if program in ("superlink", "supernode") else "--runtime-api-address"
    with contextlib.suppress(ValueError, IndexError):
        return arguments[arguments.index(option) + 1].rsplit(":", 1)[-1]
    return ""


def _program(argument: str) -> str | None:
    return PROGRAMS.get(argument.rsplit("/", 1)[-1])


def _all() -> Iterator[tuple[int, list[str]]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                yield int(entry.name), line.decode("utf-8", "replace").split("\0")


def _environment(pid: int) -> bytes | None:
    """Return a process's environment; None if it is hidden."""
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Return when a process started; None if no such process runs."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
