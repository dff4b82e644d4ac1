"""Measures how long a user waits for commands that train nothing, and for a run's first line.

    python -m benchmarks.startup [TIMES]

Each command is a separate process. It runs once, to warm the disk's cache and to write byte-code,
and then TIMES times. Commands that train nothing are timed to their end. A run is timed to the
first line that it shows, in a terminal and through a pipe, and is then ended. A run without its
data is skipped. CPU seconds count up to the same moment; on a busy machine they say more than the
clock.
"""

from __future__ import annotations

import os
import pty
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

TO_THE_END = (("--help",), ("run", "--help"), ("list", "recipes"), ("account", "ldp-fl-mnist"))
TO_THE_FIRST_LINE = (("run",), ("run", "ldp-fl-mnist"))

# Let Python reuse the byte-code of the last run, as an installed package does.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

Seconds = tuple[float, float]
"""Seconds by the clock, and seconds of the processor."""


def to_the_end(command: list[str]) -> Seconds | None:
    """Return how long a command takes, from its start to its end."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        return None
    return time.perf_counter() - started, used.ru_utime + used.ru_stime


def to_the_first_line(command: list[str], *, terminal: bool) -> Seconds | None:
    """Return the time until a run's first line; None if that line is a refusal."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*command, "--workers", "1", "--out", f"{folder}/run"],
            stdin=subprocess.DEVNULL,
            stdout=writer if terminal else subprocess.DEVNULL,
            stderr=writer,
            env=ENVIRONMENT,
        )
        os.close(writer)
        seen = b""
        while b"\n" not in seen and (more := os.read(reader, 1 << 16)):
            seen += more
        taken = time.perf_counter() - started
        process.kill()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
        os.close(reader)
    if seen.lstrip().startswith(b"error:"):
        print(seen.decode().strip(), file=sys.stderr)
        return None
    return taken, used.ru_utime + used.ru_stime


def main() -> None:
    """Print the medians and the ranges of every command."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    script = str(Path(sysconfig.get_path("scripts")) / "fedldp")
    cases = [(" ".join(a), lambda a=a: to_the_end([script, *a])) for a in TO_THE_END]
    for arguments in TO_THE_FIRST_LINE:
        for place, terminal in (("a terminal", True), ("a pipe", False)):
            cases.append(
                (
                    f"{' '.join(arguments)}, first line in {place}",
                    lambda a=arguments, t=terminal: to_the_first_line([script, *a], terminal=t),
                )
            )
    for name, measure in cases:
        if measure() is None:
            print(f"fedldp {name}: left out", flush=True)
            continue
        found = [taken for _ in range(times) if (taken := measure()) is not None]
        clock, processor = zip(*found, strict=True)
        print(
            f"fedldp {name:44} median {statistics.median(clock):.2f} s of {times}, "
            f"{min(clock):.2f} to {max(clock):.2f}; processor {statistics.median(processor):.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
