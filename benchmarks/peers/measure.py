"""CPU time, wall time and memory of a command with all processes that it starts; Linux only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PREFIX = "@cell "  # see common.say
OFTEN, SELDOM = 0.2, 1.0  # seconds between two memory readings: in the first 5 s, and later


class Tree:
    """A process and its descendants, including those that have ended or lost their parent."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._spent: dict[tuple[int, str], float] = {}
        self._lock = threading.Lock()
        self.peak_bytes = 0

    def cpu_seconds(self) -> float:
        """Return the CPU time of all so far; for one that has ended, the last value seen."""
        with self._lock:
            for pid, start in self._living():
                try:
                    # The clock of another process, threads that have ended included: the same
                    # number as clock_getcpuclockid(3) makes.
                    self._spent[pid, start] = time.clock_gettime((~pid << 3) | 2)
                except OSError:
                    continue
            return sum(self._spent.values())

    def look(self) -> None:
        """Record the memory: the sum of proportional set sizes."""
        self.cpu_seconds()
        total = sum(_proportional_bytes(pid) for pid, _ in list(self._spent))
        self.peak_bytes = max(self.peak_bytes, total)

    def _living(self) -> Iterator[tuple[int, str]]:
        children: dict[int, list[int]] = {}
        starts: dict[int, str] = {}
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            starts[int(entry.name)] = fields[19]
        pending = [self._root, *(pid for pid, start in self._spent if starts.get(pid) == start)]
        seen: set[int] = set()
        while pending:
            pid = pending.pop()
            if pid not in seen and pid in starts:
                seen.add(pid)
                pending += children.get(pid, [])
                yield pid, starts[pid]


def _proportional_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


@dataclass
class Measured:
    """What one command took.

    Attributes:
        events: the lines that it said, each with the CPU seconds of all processes by then.
        started: when, by ``time.monotonic``.
        peak_bytes: of all processes together.
        status: its exit status; negative where it was ended by a signal.
        output: its other lines, of both streams.
    """

    started: float
    events: list[dict[str, Any]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    peak_bytes: int = 0
    status: int = 0

    def round_figures(self) -> dict[str, float]:
        """Return the metrics of a round, without the first: its excess counts as start-up.

        Raises:
            ValueError: it did not finish two rounds.
        """
        rounds = [event for event in self.events if event["event"] == "round"]
        if len(rounds) < 2 or self.events[-1]["event"] != "done":
            raise ValueError(f"it ended with {self.status} after {len(rounds)} rounds")
        first, last, later = rounds[0], rounds[-1], len(rounds) - 1
        seconds = (last["at"] - first["at"]) / later
        return {
            "seconds_per_round": round(seconds, 4),
            "cpu_seconds_per_round": round((last["cpu"] - first["cpu"]) / later, 4),
            "startup_seconds": round(first["at"] - self.started - seconds, 3),
            "rounds": len(rounds),
            "peak_mib": round(self.peak_bytes / 2**20, 1),
            "accuracy": round(last["accuracy"], 4),
        }


def measure(command: list[str], environment: dict[str, str], limit_seconds: float) -> Measured:
    """Run a command to its end and measure it; it is killed after ``limit_seconds``."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    found = Measured(started=time.monotonic())
    tree, ended = Tree(process.pid), threading.Event()

    def watch() -> None:
        while True:
            tree.look()
            passed = time.monotonic() - found.started
            if passed > limit_seconds:
                os.killpg(process.pid, signal.SIGKILL)
            if ended.wait(OFTEN if passed < 5 else SELDOM):
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(PREFIX):
            found.events.append(
                {**json.loads(line.removeprefix(PREFIX)), "cpu": tree.cpu_seconds()}
            )
            tree.look()
            if found.events[-1]["event"] == "done":
                break  # a framework's shutdown is not measured
        elif line.strip():
            found.output.append(line)
    ended.set()
    watcher.join()
    found.peak_bytes = tree.peak_bytes
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    found.status = process.returncode
    return found
