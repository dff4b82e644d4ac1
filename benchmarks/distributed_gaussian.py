"""The distributed discrete Gaussian on MNIST, beside no noise, central DP and purely local noise.

    FEDLDP_DATA=... python benchmarks/distributed_gaussian.py OUT.jsonl [SEED...]   measure
    python benchmarks/distributed_gaussian.py OUT.jsonl --table                     what it holds

Every client's run costs the same epsilon at delta 1e-5: for the distributed Gaussian, against a
server that sees only sums; for central DP, against those who see only broadcasts; for local noise,
against a server that sees every report. Clients share no example, and all take part in every round.

Rounds, clip, learning rate and local epochs were chosen on seed 100: of all choices tried, the ones
that gave the distributed Gaussian the highest accuracy, with at most 20 passes over the data for
more than 100 clients. All epsilons, no noise and central DP use the same choice. OUT.jsonl has the
tries, too. A measurement can be stopped and started again: what OUT.jsonl has is not run twice.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.central_dp import central_dp
from fedldp.algorithms.presets.distributed_gaussian import distributed_gaussian
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.core.errors import PrivacyError
from fedldp.papers.ldp_fl.preset import ldp_fl

Settings = dict[str, Any]
Cell = tuple[str, str, int, float]
"""The kind, model, number of clients and epsilon."""

DELTA = 1e-5
CHOSEN_ON = 100
AGAINST = {"central": "downlink", "local": "server"}
SAME: Settings = {"dataset": "mnist", "batch_size": 10, "delta": DELTA}


def tried(rounds: int, clip: float, rate: float, epochs: int, *, shifted: bool = False) -> Settings:
    """Return one choice of the settings for training and clipping."""
    return {"rounds": rounds, "clip": clip, "learning_rate": rate, "local_epochs": epochs,
            "standardise": shifted}  # fmt: skip


CHOSEN: dict[tuple[str, int], Settings] = {
    ("logistic", 100): tried(10, 1.0, 0.2, 1),
    ("logistic", 1_000): tried(20, 1.0, 0.4, 1),
    ("logistic", 10_000): {**tried(20, 4.0, 1.0, 5), "server_rate": 2.0},
    ("cnn", 100): tried(20, 0.5, 0.2, 1, shifted=True),
    ("cnn", 1_000): tried(20, 2.0, 0.2, 1, shifted=True),
}
LOCAL: dict[tuple[str, int], Settings] = {
    ("logistic", 100): {**tried(1, 1.0, 0.2, 1), "mechanism": "privunit"},
    ("logistic", 1_000): {**tried(1, 1.0, 0.4, 5), "mechanism": "privunit"},
    ("logistic", 10_000): {**tried(3, 4.0, 1.0, 5), "mechanism": "privunit"},
    ("cnn", 1_000): {**tried(1, 2.0, 0.2, 1, shifted=True), "mechanism": "privunit"},
}
"""The best mechanism of purely local noise, and the number of rounds that suits it."""


def group(model: str, clients: int, *kinds: str) -> list[Cell]:
    """Return the cells of kinds such as "distributed 8"."""
    parts = [kind.rpartition(" ") for kind in kinds]
    return [(kind, model, clients, float(epsilon)) for kind, _, epsilon in parts]


CELLS: list[Cell] = [
    *group("logistic", 100, "clip only 0", "distributed 8", "central 8", "local 8", "fedavg 0"),
    *group("logistic", 1_000, "clip only 0", "distributed 2", "local 8", "fedavg 0"),
    *group("cnn", 1_000, "distributed 8", "clip only 0"),
    *group("logistic", 100, "distributed 2", "distributed 4", "local 2", "local 4"),
    *group("logistic", 1_000, "local 2", "local 4", "central 2", "distributed 8"),
    *group("logistic", 10_000, "local 8", "local 2", "distributed 2", "clip only 0"),
    *group("cnn", 1_000, "local 8", "distributed 2"),
    *group("logistic", 100, "central 2", "central 4"),
    *group("logistic", 1_000, "distributed 4", "central 8", "central 4"),
    *group("cnn", 100, "distributed 8", "clip only 0"),
    *group("cnn", 1_000, "distributed 4", "fedavg 0", "central 8"),
    *group("logistic", 10_000, "distributed 8", "distributed 4", "local 4", "fedavg 0"),
]
"""The most informative cells first."""


def settings_of(cell: Cell) -> Settings:
    """Return the training settings of a cell."""
    return (LOCAL if cell[0] == "local" else CHOSEN)[cell[1:3]]


def configuration(cell: Cell, settings: Settings, seed: int) -> RunConfig:
    """Return the configuration of one cell."""
    kind, model, clients, epsilon = cell
    shared = {**SAME, "model": model, "num_clients": clients, "seed": seed, **settings}
    clip = shared.pop("clip")
    if kind in ("fedavg", "central"):
        shared.pop("server_rate", None)  # these systems lack the setting
    if kind in AGAINST:
        shared["target"] = {
            "unit": "client-run", "epsilon": epsilon, "delta": DELTA, "adversary": AGAINST[kind]
        }  # fmt: skip
    match kind:
        case "fedavg":
            return fedavg(**shared)
        case "distributed":
            return distributed_gaussian(**shared, clip=clip, epsilon=epsilon)
        case "clip only":  # noise at epsilon 10,000 is less than a fiftieth of that at epsilon 8
            return distributed_gaussian(**shared, clip=clip, epsilon=1e4)
        case "central":
            return central_dp(**shared, clip=clip, noise_multiplier=1.0)
    return ldp_fl(**shared, epsilon=1.0, send="update", range_radius=clip, channel="named")


def measure(path: Path, seed: int) -> None:
    """Run what ``path`` lacks, and add a line for each finished cell."""
    for cell in CELLS:
        settings = settings_of(cell)
        if any(row["cell"] == [*cell, seed] and row["settings"] == settings for row in rows(path)):
            continue
        start, worked = time.perf_counter(), time.process_time()
        accuracies: list[float] = []
        failed = None
        try:
            fedldp.run(
                configuration(cell, settings, seed),
                after_round=lambda record, found=accuracies: found.append(record.accuracy),
            )
        except PrivacyError as error:  # too much noise makes a model diverge: a result, too
            failed = str(error)
        row = {
            "cell": [*cell, seed],
            "settings": settings,
            "accuracy": None if failed else accuracies[-1],
            "by_round": [round(accuracy, 4) for accuracy in accuracies],
            "failed": failed,
            "seconds": round(time.perf_counter() - start, 1),
            "cpu_seconds": round(time.process_time() - worked, 1),
        }
        print(*row["cell"], row["accuracy"] or failed, row["seconds"], flush=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the existing lines."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def table(path: Path) -> None:
    """Print the mean accuracies in percent, with the number of seeds."""
    found: dict[Cell, list[float]] = {}
    for row in rows(path):
        kind, model, clients, epsilon, seed = row["cell"]
        if seed != CHOSEN_ON and row["settings"] == settings_of((kind, model, clients, epsilon)):
            found.setdefault((model, clients, kind, epsilon), []).append(row["accuracy"])
    for key, accuracies in sorted(found.items()):
        failed = None in accuracies
        print(
            *key,
            "failed" if failed else f"{100 * mean(accuracies):.2f}",
            len(accuracies),
            sep=" | ",
        )


def main() -> None:
    """Measure, or print what was measured."""
    path, options = Path(sys.argv[1]), sys.argv[2:]
    if "--table" in options:
        table(path)
        return
    for seed in options or ["0"]:
        measure(path, int(seed))


if __name__ == "__main__":
    main()
