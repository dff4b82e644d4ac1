"""The best deployable systems for many clients, with one guarantee for everything that each sends.

    FEDLDP_DATA=... python -m benchmarks.many_clients RESULTS.jsonl --budget 60

The rule is ``fedldp.experiments.comparing``'s: each contestant has eight tries, scored with a
separate seed on training examples that no client has. The chosen try then runs on the test set
with other seeds: ten at epsilon 1, else three. RESULTS.jsonl has a line for each run; lines are
only added.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.blocks import from_template
from fedldp.algorithms.config import RunConfig
from fedldp.data import Dataset, load_dataset
from fedldp.experiments.comparing import Comparison, Contestant, Try
from fedldp.experiments.comparing.comparison import Cells
from fedldp.experiments.engine import Means, Processes, carry_out, end_of
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.runs import Row, Task
from fedldp.experiments.store import RunStore
from fedldp.simulation.settings import from_mapping

DELTA = 1e-5
RESULTS = Path(__file__).parent / "results" / "2026-11-25-many-clients.jsonl"

SGD: Mapping[str, Any] = {"system": "composed", "model": "logistic", "local_epochs": 1}
CLOSED: Mapping[str, Any] = {"system": "composed", "model": "linear", "rounds": 1}
ONCE: Mapping[str, Any] = {"mechanism": "k_closest", "bound": "direction", "epsilon": 1.0}
SUMMED: Mapping[str, Any] = {
    "mechanism": "gaussian_share", "bound": "norm", "channel": "sum", "epsilon": 1.0,
}  # fmt: skip

UNIT = {"pixels": 1.0, "pose": 10.0}
"""The unit of the lengths of weights: about 10 over the norm of an example. Learning rates scale
with its square."""

ROUNDS_ONCE: Sequence[Try] = [
    {"rounds": rounds, "reach": reach, "rate": rate}
    for rounds, reach, rate in (
        (1, 1.0, 0.4), (1, 1.0, 0.1), (4, 0.5, 0.4), (4, 0.5, 0.1),
        (16, 0.25, 0.4), (16, 0.25, 0.1), (16, 0.5, 0.1), (64, 0.1, 0.1),
    )
]  # fmt: skip
ROUNDS_SUMMED: Sequence[Try] = [
    {"rounds": rounds, "reach": reach, "rate": rate}
    for rounds, reach, rate in (
        (4, 0.5, 0.4), (16, 0.25, 0.4), (16, 0.5, 0.4), (16, 1.0, 0.4),
        (32, 0.25, 0.4), (32, 0.5, 0.4), (64, 0.25, 0.4), (64, 0.5, 0.4),
    )
]  # fmt: skip
RIDGES: Sequence[Try] = [
    {"ridge": ridge} for ridge in (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
]
CLIPS: Sequence[Try] = [
    {"clip": clip, "ridge": ridge} for clip, ridge in product((0.3, 0.6), (0.003, 0.01, 0.03, 0.1))
]


def stepping(unit: float, parts: Mapping[str, Any]) -> Any:
    """Return a function that makes an SGD configuration, with lengths in ``unit``."""

    def configure(shared: Mapping[str, Any], attempt: Try) -> RunConfig:
        own = {
            "rounds": attempt["rounds"],
            "clip": unit * attempt["reach"],
            "learning_rate": unit**2 * attempt["rate"],
        }
        return from_mapping({**SGD, **parts, **shared, **own})

    return configure


def closed(parts: Mapping[str, Any]) -> Any:
    """Return a function that makes a configuration of a closed form."""
    return lambda shared, attempt: from_mapping({**CLOSED, **parts, **shared, **attempt})


SERVER = GuaranteeKind("client-run", "server", DELTA)
SUMMING = GuaranteeKind("client-run", "summing-server", DELTA)


def contestants(features: str) -> list[Contestant]:
    """Return the contestants on pixels or with features."""
    unit = UNIT[features]
    return [
        Contestant(
            name="SGD, k_closest, once",
            configure=stepping(unit, ONCE),
            tries=ROUNDS_ONCE,
            guarantee=SERVER,
        ),
        Contestant(
            name="solution, k_closest, once",
            configure=closed({**ONCE, "local_update": "solution"}),
            tries=RIDGES,
            guarantee=SERVER,
        ),
        Contestant(
            name="SGD behind a sum",
            configure=stepping(unit, SUMMED),
            tries=ROUNDS_SUMMED,
            guarantee=SUMMING,
        ),
        Contestant(
            name="statistics behind a sum",
            configure=closed({**SUMMED, "local_update": "statistics"}),
            tries=CLIPS,
            guarantee=SUMMING,
        ),
    ]


ANY, SUM = ("SGD, k_closest, once", "solution, k_closest, once"), (
    "SGD behind a sum", "statistics behind a sum",
)  # fmt: skip

CELLS: Sequence[tuple[str, str, int, float, tuple[str, ...]]] = [
    ("mnist", "pose", 1_000, 4.0, ANY),
    ("mnist", "pixels", 1_000, 4.0, ANY),
    ("mnist", "pose", 100, 4.0, ANY),
    ("mnist", "pose", 1_000, 1.0, ANY),
    ("mnist", "pose", 1_000, 1.0, SUM),
    ("mnist", "pose", 100, 4.0, SUM),
    ("mnist", "pose", 10_000, 4.0, ANY),
    ("mnist", "pixels", 10_000, 4.0, ANY),
    ("fashion-mnist", "pose", 1_000, 4.0, ANY),
    ("fashion-mnist", "pixels", 1_000, 4.0, ANY),
]
"""Data set, features, clients, epsilon, contestants: in the order of measurement."""


@cache
def data(dataset: str) -> Dataset:
    """Return a data set unchanged."""
    return load_dataset(dataset, standardise=False)


def comparison(dataset: str, features: str, epsilon: float) -> Comparison:
    """Return the comparison that a cell belongs to."""
    settings = {"dataset": dataset} | ({} if features == "pixels" else {"features": features})
    task = Task(f"{dataset}, {features}", lambda: data(dataset), settings)
    seeds = range(10) if epsilon <= 1 else range(3)
    return Comparison(contestants(features), [task], seeds=list(seeds))


def _say(line: str) -> None:
    print(line, flush=True)


def measure(store: RunStore, only: str, budget: float) -> None:
    """Measure cell by cell until the time is used up."""
    means = Means(end=end_of(60 * budget), say=_say)
    for dataset, features, clients, epsilon, names in CELLS:
        found = comparison(dataset, features, epsilon)
        cells = [
            cell
            for cell in found.cells([clients], [epsilon])
            if cell.contestant in names and only in str(cell)
        ]
        carry_out(
            Cells(found, cells),
            store,
            Processes(found.maker, 1, 1),
            means,
        )


def figures(rows: Mapping[str, Row]) -> dict[tuple[str, str, int, float, str], list[Row]]:
    """Return each cell's measured runs by contestant, with the chosen settings, by seed.

    It needs no data: what was measured with the chosen settings is marked in the rows.
    """
    measured: dict[tuple[str, int, str, float], list[Row]] = {}
    for row in rows.values():
        if row["purpose"] == "measured":
            cell = row["cell"]
            name = cell["task"], cell["clients"], cell["contestant"], cell["epsilon"]
            measured.setdefault(name, []).append(row)
    return {
        (dataset, features, clients, epsilon, name): sorted(
            measured.get((f"{dataset}, {features}", clients, name, epsilon), []),
            key=lambda run: run["seed"],
        )
        for dataset, features, clients, epsilon, names in CELLS
        for name in names
    }


def shown(runs: Sequence[Row]) -> str:
    """Return the mean in percent with its standard error, or a dash."""
    if not runs:
        return "-"
    scores = [100 * run["accuracy"] for run in runs]
    return (
        f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores) / math.sqrt(len(scores)):.1f}"
    )


def lines(rows: Mapping[str, Row]) -> list[str]:
    """Return the lines of the table."""
    found = [
        "| data | clients | epsilon | server sees | by | accuracy | seeds | chosen |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (dataset, features, clients, epsilon, name), runs in figures(rows).items():
        chosen = (
            ", ".join(f"{key} {value:g}" for key, value in runs[0]["try"].items()) if runs else "-"
        )
        found.append(
            f"| {dataset}, {features} | {clients:,} | {epsilon:g} | {_sees(name)} | {name} "
            f"| {shown(runs)} | {len(runs)} | {chosen} |"
        )
    return found


def _sees(name: str) -> str:
    return "sums" if name in SUM else "every report"


def page() -> str:
    """Return the page of the committed results."""
    rows = RunStore(RESULTS).rows
    return from_template("many_clients", {"many-clients": "\n".join(lines(rows)) + "\n"})


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_clients", description=__doc__)
    parser.add_argument("results", type=Path, help="the file of lines")
    parser.add_argument("--budget", type=float, default=60.0, help="minutes to measure")
    parser.add_argument("--only", default="", help="cells whose description has these words")
    options = parser.parse_args()
    measure(RunStore(options.results), options.only, options.budget)


if __name__ == "__main__":
    main()
