r"""fedldp beside a plain PyTorch loop, pfl-research and Flower's simulation.

    FEDLDP_DATA=... python benchmarks/peers/run.py --environments DIR --out FILE.jsonl \
        [--only FRAMEWORK] [--cores N] [--workload NAME] [--repetitions 3]

Run it in fedldp's environment. It creates one environment below DIR for each peer, with pip and the
torch and numpy of this one, writes each run's inputs there, and appends one JSON line per cell to
FILE: a framework with a number of cores, on a workload, in one repetition. Cells that FILE has are
not run again. All frameworks start from the same examples, shares of clients and first weights, and
do the same work (``workloads.py``); each framework's own script, ``*_cell.py``, shows how it is
used.

Of a cell:

- seconds_per_round, cpu_seconds_per_round: the mean over the rounds after the first, with the test;
  CPU time is that of all processes.
- startup_seconds: from the start of the command to the end of the first round, less such a round.
- peak_mib: the largest sum of the proportional set sizes (PSS) of all processes.
- accuracy: of the last round's weights, on the 10,000 test examples.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fedldp_cell import MNIST, inputs_of
from measure import measure
from workloads import WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
PINNED = {"pfl": ("pfl==0.6.0",), "flower": ("flwr[simulation]==1.41.0",)}
CORES = {"plain": (1, 2), "pfl": (1, 2), "flower": (2,), "fedldp": (1, 2)}
LARGEST = {"plain": 100_000, "pfl": 100_000, "flower": 10_000, "fedldp": 1_000_000}
"""The most clients that a framework gets: more would take it hours."""
SHORTER = {("flower", "many-10000"): 2}
"""Rounds, with one repetition, where a round takes a framework minutes."""


@dataclass(frozen=True)
class Cell:
    """One run."""

    framework: str
    cores: int
    workload: Workload
    repetition: int

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return SHORTER.get((self.framework, self.workload.name), self.workload.rounds)


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    """Return what distinguishes the lines of two cells."""
    return tuple(line[name] for name in ("framework", "cores", "workload", "repetition"))


def cells(only: str | None, workload: str | None, repetitions: int) -> Iterator[Cell]:
    """Yield the cells to run; repetitions come last, so that frameworks take turns."""
    for repetition in range(repetitions):
        for task in WORKLOADS.values():
            if repetition >= task.repetitions or workload not in (None, task.name):
                continue
            for framework, cores in CORES.items():
                if only not in (None, framework) or task.clients > LARGEST[framework]:
                    continue
                if repetition > 0 and (framework, task.name) in SHORTER:
                    continue
                yield from (Cell(framework, number, task, repetition) for number in cores)


def interpreter(framework: str, environments: Path) -> str:
    """Return the Python of a framework's environment, which is created if it is missing."""
    if framework not in PINNED:
        return sys.executable
    shared = tuple(f"{name}=={version(name).partition('+')[0]}" for name in ("torch", "numpy"))
    wanted = "\n".join((*PINNED[framework], *shared))
    folder = environments / framework
    python, ready = folder / "bin" / "python", folder / "installed.txt"
    if not ready.exists() or ready.read_text() != wanted:
        print(f"making {folder}: {wanted.split()}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", *wanted.split()]
        subprocess.run(pip, check=True)
        ready.write_text(wanted)
    return str(python)


def environment(framework: str) -> dict[str, str]:
    """Return the environment variables of a run, without those that would affect a peer."""
    dropped = {"OMP_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"}
    if framework in PINNED:
        dropped |= {"PYTHONPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def write_inputs(workload: Workload, seed: int, folder: Path) -> None:
    """Write what all frameworks except fedldp read; see ``common.py``."""
    basis = workload if workload.clients * workload.examples <= MNIST else WORKLOADS["many-10000"]
    inputs, initial = inputs_of(basis, seed)
    members = np.stack(list(inputs.members))
    if basis is not workload:  # more clients than examples: they are used again, in other groups
        generator = np.random.default_rng(seed)
        times = -(-workload.clients * workload.examples // MNIST)
        order = np.concatenate([generator.permutation(MNIST) for _ in range(times)])
        members = order[: workload.clients * workload.examples].reshape(-1, workload.examples)
    arrays = {
        "features": inputs.dataset.train.features,
        "labels": inputs.dataset.train.labels,
        "test_features": inputs.dataset.test.features,
        "test_labels": inputs.dataset.test.labels,
        "members": members,
        "initial": initial,
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def run(cell: Cell, environments: Path, limit_seconds: float) -> dict[str, Any]:
    """Run one cell and return its line.

    Raises:
        ValueError: it failed; the message has the end of its output.
    """
    python = interpreter(cell.framework, environments)
    with tempfile.TemporaryDirectory(prefix="inputs-", dir=environments) as folder:
        if cell.framework != "fedldp":
            write_inputs(cell.workload, cell.repetition, Path(folder))
        command = [python, str(HERE / f"{cell.framework}_cell.py"), "--inputs", folder]
        command += ["--workload", cell.workload.name, "--seed", str(cell.repetition)]
        command += ["--cores", str(cell.cores), "--rounds", str(cell.rounds)]
        found = measure(command, environment(cell.framework), limit_seconds)
    try:
        figures = found.round_figures()
    except ValueError as error:
        raise ValueError(f"{error}:\n{''.join(found.output[-30:])}") from None
    return {
        "framework": cell.framework,
        "version": found.events[-1]["version"],
        "cores": cell.cores,
        "workload": cell.workload.name,
        "clients": cell.workload.clients,
        "repetition": cell.repetition,
        **figures,
        "torch": version("torch"),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> int:
    """Run the cells that FILE lacks; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=CORES)
    parser.add_argument("--cores", type=int)
    parser.add_argument("--workload", choices=WORKLOADS)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--limit-seconds", type=float, default=3600.0, help="for one cell")
    given = parser.parse_args()
    environments = given.environments.resolve()
    environments.mkdir(parents=True, exist_ok=True)
    done = set()
    if given.out.exists():
        done = {key(json.loads(line)) for line in given.out.read_text().splitlines()}
    failed = 0
    for cell in cells(given.only, given.workload, given.repetitions):
        identity = {**vars(cell), "workload": cell.workload.name}
        if key(identity) in done or given.cores not in (None, cell.cores):
            continue
        try:
            line = run(cell, environments, given.limit_seconds)
        except ValueError as error:
            failed += 1
            print(f"FAILED {key(identity)}: {error}", flush=True)
            continue
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{cell.framework:8} {cell.cores} cores {cell.workload.name:12} "
            f"{line['seconds_per_round']:9.3f} s a round, {line['cpu_seconds_per_round']:9.3f} s "
            f"CPU, {line['peak_mib']:7.0f} MiB, accuracy {line['accuracy']:.4f}",
            flush=True,
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
