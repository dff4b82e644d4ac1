"""How long a user waits for what trains nothing: help, and a statement, as whole processes.

    python benchmarks/startup.py [TIMES]

Each command runs once, to warm the disk's cache and to write byte-code, and then TIMES times.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

COMMANDS = (("--help",), ("run", "--help"), ("list", "recipes"), ("account", "ldp-fl-mnist"))

# As an installed package runs: with the byte-code of its last run.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: list[str]) -> float:
    """Return how long a command takes, from its start to its end."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - started


def main() -> None:
    """Print the median and the range of every command's seconds."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    script = str(Path(sysconfig.get_path("scripts")) / "fedldp")
    for arguments in COMMANDS:
        command = [script, *arguments]
        seconds(command)
        taken = [seconds(command) for _ in range(times)]
        median = statistics.median(taken)
        print(
            f"fedldp {' '.join(arguments):22} median {median:.2f} s of {times}, "
            f"{min(taken):.2f} to {max(taken):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
