"""Runs, the choice among them, and the file that holds them all."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import fedldp
from benchmarks.study.contestants import BY_NAME, CONTESTANTS, UNPROTECTED, Contestant, Try
from benchmarks.study.proving import Cell, checked, configuration, digest, proven, solved
from benchmarks.study.tasks import TASKS, examples_for
from fedldp.errors import ConfigError, Diverged, PrivacyError
from fedldp.reporting.record import environment
from fedldp.simulation.plan import plan, problem_with

Row = dict[str, Any]
Purpose = Literal["tried", "measured"]

EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
CLIENTS = (100, 1_000, 10_000)
CHOSEN_ON = 100
"""The seed on which hyperparameters are chosen."""

SEEDS = (0, 1, 2)
"""Those that are measured."""

_CNN = ("FedAvg, no noise", "central_dp", "distributed_gaussian", "ldp_fl, privunit",
        "ldp_fl, gaussian")  # fmt: skip


FIRST = (
    ("mnist", 1_000, 4.0),
    ("mnist", 1_000, 1.0),
    ("mnist", 1_000, 16.0),
    ("mnist-gradients", 1_000, 4.0),
    ("mnist-gradients", 1_000, 1.0),
    ("mnist", 100, 4.0),
    ("mnist", 10_000, 4.0),
    ("covertype", 1_000, 4.0),
    ("mnist", 1_000, 2.0),
    ("mnist", 1_000, 8.0),
    ("mnist", 10_000, 1.0),
    ("mnist", 100, 16.0),
    ("covertype", 10_000, 1.0),
    ("mnist-gradients", 100, 4.0),
)
"""Task, clients and epsilon of the most telling comparisons, in their order."""


def panels() -> list[tuple[str, int, float]]:
    """Return task, clients and epsilon of all comparisons, the most telling first."""
    tasks = [name for name in TASKS if name != "mnist-cnn"]
    others = [
        (task, clients, epsilon)
        for epsilon in (4.0, 1.0, 16.0, 2.0, 8.0)
        for task in tasks
        for clients in (1_000, 100, 10_000)
    ]
    cnn = [("mnist-cnn", 1_000, epsilon) for epsilon in (4.0, 16.0, 1.0)]
    return list(dict.fromkeys([*FIRST, *others, *cnn]))


def cells() -> list[Cell]:
    """Return all cells, in the order in which they are measured.

    The first comparison whole; then those of rank 0, and of rank 1, in the most telling ones; then
    in all others; last those of rank 2. Of 10,000 clients, which take longest, rank 0 alone is
    among the early ones.
    """
    found: dict[Cell, int] = {}
    for number, (task, clients, epsilon) in enumerate(panels()):
        for contestant in (*CONTESTANTS, *UNPROTECTED):
            if task == "mnist-cnn" and contestant.name not in _CNN:
                continue
            if contestant.tasks is not None and task not in contestant.tasks:
                continue
            if contestant in UNPROTECTED and number > 0:
                continue  # no number of clients, nor a task, changes their statement's answer
            stage = 0
            if number > 0:
                early = number < len(FIRST) and (clients < 10_000 or contestant.rank == 0)
                stage = 5 if contestant.rank == 2 else 1 + contestant.rank + (0 if early else 2)
            cell = Cell(task, clients, contestant.name, epsilon if contestant.noisy else 0.0)
            found.setdefault(cell, stage)
    return sorted(found, key=lambda cell: found[cell])  # which keeps the order within a stage


class Results:
    """The lines of a file, to which a line is added for each run.

    Attributes:
        path: of the file.
        rows: its lines.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there; a last line that was cut short is left out of account."""
        self.path = path
        self.rows: list[Row] = []
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole, _, cut = text.rpartition("\n")
        if cut:  # a run that died while it wrote: that one is run again
            path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        self.rows = [json.loads(line) for line in whole.splitlines() if line]

    def find(self, key: str) -> Row | None:
        """Return the line of a digest."""
        return next((row for row in self.rows if row["digest"] == key), None)

    def add(self, row: Row) -> Row:
        """Add a line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        return row


def choose(tried: Sequence[Row]) -> Row | None:
    """Return the try that is measured: the highest accuracy on held-out examples.

    Of equal ones the first in the grid, which has the fewest rounds. Tries that were refused have
    no accuracy; None where all were.
    """
    done = [row for row in tried if row["accuracy"] is not None]
    return max(done, key=lambda row: row["accuracy"]) if done else None


def cell_of(row: Row) -> Cell:
    """Return the cell of a line."""
    return Cell(**row["cell"])


def _data_task(cell: Cell) -> str:
    return "mnist" if cell.system.own_features else cell.task


def run_one(results: Results, cell: Cell, attempt: Try, purpose: Purpose, seed: int) -> Row:
    """Return the line of one run, which is made if it is not there.

    Raises:
        StudyError: the run's statement proves less than the cell's label says.
    """
    data = examples_for(TASKS[_data_task(cell)], purpose, seed)
    row: Row = {"cell": asdict(cell), "purpose": purpose, "seed": seed, "try": asdict(attempt)}
    row |= {"accuracy": None, "refused": None}
    start, worked = time.perf_counter(), time.process_time()
    row["data"] = f"{purpose}: {data.name}"
    row["digest"] = digest(cell, attempt, seed, row["data"])
    known = results.find(row["digest"])
    if known is not None:
        return known
    try:
        config = solved(cell, configuration(cell, attempt, seed), data)
        if cell.system.noisy:
            # Before it is trained: a cell whose figure is wrong costs no time.
            checked(cell, plan(config, problem_with(config, data, None)).privacy)
        result = fedldp.run(config, dataset=data)
        if cell.system.noisy:
            row["proven"] = asdict(checked(cell, result.privacy))
    except (ConfigError, Diverged, PrivacyError) as error:  # the last: an update is not finite
        row["refused"] = str(error)
    else:
        row["accuracy"] = result.accuracy
        row["settings"] = _budget_of(config)
    row["seconds"] = round(time.perf_counter() - start, 2)
    row["cpu_seconds"] = round(time.process_time() - worked, 2)
    return results.add(row | _where())


def _budget_of(config: Any) -> dict[str, Any]:
    names = ("epsilon", "alpha", "noise_multiplier", "clip", "range_radius", "learning_rate")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _where() -> Row:
    """Return versions and hardware."""
    found = environment()
    return {
        "date": found["date"],
        "python": found["python"],
        "versions": found["packages"],
        "hardware": f"{_processor()}, {found['cores']} cores, {found['gpu'] or 'no GPU'}",
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def is_current(row: Row) -> bool:
    """Return whether a line is of the systems, the grid and the settings that are here now."""
    if row["cell"]["contestant"] not in BY_NAME:
        return False
    cell, attempt = cell_of(row), Try(**row["try"])
    if attempt not in cell.system.grid and row["purpose"] != "stated":
        return False
    return bool(row["digest"] == digest(cell, attempt, row["seed"], row["data"]))


def without_guarantee(results: Results, cell: Cell) -> Row:
    """Return the line of a system of which no client-run guarantee is proven, and why.

    Raises:
        ConfigError: there is one after all.
    """
    data = examples_for(TASKS[_data_task(cell)], "measured", SEEDS[0])
    attempt = Try(1, 1.0, 1.0)
    row: Row = {"cell": asdict(cell), "purpose": "stated", "seed": SEEDS[0], "try": asdict(attempt)}
    row |= {"data": f"stated: {data.name}", "accuracy": None}
    row["digest"] = digest(cell, attempt, SEEDS[0], row["data"])
    known = results.find(row["digest"])
    if known is not None:
        return known
    config = configuration(cell, attempt, SEEDS[0])
    privacy = plan(config, problem_with(config, data, None)).privacy
    try:
        found = proven(privacy, cell.system.against)
    except ConfigError as error:
        return results.add(row | {"refused": str(error)} | _where())
    raise ConfigError(
        f"{cell.contestant}: its statement proves epsilon {found.epsilon:g} for a client's run; "
        "make it a contestant"
    )


def chosen(results: Results, cell: Cell, go_on: Callable[[], bool]) -> Try | None:
    """Return the hyperparameters of a cell; None where there are none, or no time is left."""
    tried = []
    for attempt in cell.system.grid:
        if not go_on():
            return None
        tried.append(run_one(results, cell, attempt, "tried", CHOSEN_ON))
    best = choose(tried)
    return None if best is None else Try(**best["try"])


def measure(
    results: Results, order: Sequence[Cell], go_on: Callable[[], bool], say: Callable[[str], None]
) -> None:
    """Measure cells as long as ``go_on``."""
    unprotected: set[Contestant] = set(UNPROTECTED)
    for cell in order:
        if not go_on():
            return
        if cell.system in unprotected:
            say(f"{cell}: {without_guarantee(results, cell)['refused']}")
            continue
        attempt = chosen(results, cell, go_on)
        for seed in SEEDS if attempt is not None else ():
            if not go_on():
                return
            assert attempt is not None
            row = run_one(results, cell, attempt, "measured", seed)
            say(f"{cell} {attempt} seed {seed}: {row['accuracy']} in {row.get('seconds')} s")
