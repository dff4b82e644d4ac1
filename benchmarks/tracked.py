"""Tracks a few speeds from commit to commit, each relative to work that never changes.

    python -m benchmarks.tracked FILE.jsonl           measures, and adds a line
    python -m benchmarks.tracked --show FILE.jsonl    prints them as a table

Each number is CPU time over that of a reference on the same machine at the same time, so that lines
from different machines can roughly be compared: look into a change by a third. The command takes a
minute, and needs no data set.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from benchmarks.kernels import encoding_seconds

TIMES = 3
WEIGHTS = 357_706
BLOCKS = 64
"""How many blocks of 16 MiB the reference hashes."""
COMMANDS = {
    "fedldp --help": ("--help",),
    "account ldp-fl-mnist": ("account", "ldp-fl-mnist"),
    "run quickstart": ("run", "quickstart", "--workers", "1"),
    "audit two_point": ("audit", "--mechanism", "two_point", "--quick", "--workers", "1"),
}
"""Commands whose CPU time is tracked, in units of the reference."""


def reference() -> float:
    """Return the CPU seconds of hashing a gigabyte of zeros, in C code that no version changes."""
    block = bytes(1 << 24)
    started = os.times().user
    digest = hashlib.blake2b()
    for _ in range(BLOCKS):
        digest.update(block)
    return os.times().user - started


def of_command(arguments: tuple[str, ...]) -> float:
    """Return the CPU seconds of a command, including its child processes."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "fedldp", *arguments],
            cwd=folder, check=True, capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system


def measured() -> dict[str, float]:
    """Return all numbers: medians of ``TIMES`` runs, after a run that warms the disk's cache."""
    torch.set_num_threads(1)
    found = {"encode, over plain torch": 1 / encoding_seconds(WEIGHTS)[2]}
    unit = _median(reference)
    for name, arguments in COMMANDS.items():
        of_command(arguments)
        found[name] = _median(lambda words=arguments: of_command(words)) / unit
    return {name: round(value, 4) for name, value in found.items()}


def _median(task: Callable[[], float]) -> float:
    return statistics.median(task() for _ in range(TIMES))


def line() -> dict[str, object]:
    """Return the line to add to the file."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "version": version("fedldp"),
        "commit": _commit(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "figures": measured(),
    }


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True)
    return found.stdout.strip()


def table(lines: list[dict[str, object]]) -> str:
    """Return the last ten lines as a Markdown table, each number beside the earlier median."""
    names = list(dict.fromkeys(name for each in lines for name in each["figures"]))  # type: ignore[attr-defined]
    rows = [f"| date | commit | {' | '.join(names)} |", "| --- " * (len(names) + 2) + "|"]
    for at in range(max(0, len(lines) - 10), len(lines)):
        cells = [_cell(name, lines[: at + 1]) for name in names]
        rows.append(f"| {lines[at]['date']} | {lines[at]['commit']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(name: str, lines: list[dict[str, object]]) -> str:
    values = [each["figures"].get(name) for each in lines]  # type: ignore[attr-defined]
    earlier = [value for value in values[:-1] if value is not None]
    if values[-1] is None:
        return "-"
    if not earlier:
        return f"{values[-1]:.3g}"
    return f"{values[-1]:.3g} ({values[-1] / statistics.median(earlier):.2f} times)"


def main() -> None:
    """Measure, or print the table."""
    *options, file = sys.argv[1:]
    if options == ["--show"]:
        print(table([json.loads(each) for each in Path(file).read_text().splitlines()]))
        return
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(json.dumps(line()) + "\n")


if __name__ == "__main__":
    main()
