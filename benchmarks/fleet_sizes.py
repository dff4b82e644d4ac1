"""Measures what the fleet's advice is worth with more clients than the study has.

    FEDLDP_DATA=... python benchmarks/fleet_sizes.py FILE CLIENTS EPSILON [SEED]...

Each client draws six examples of MNIST's 60,000, so clients share examples. The settings are those
that `fedldp advise --fleet n=CLIENTS,per=6` shows against any server with public features, of the
largest epsilon that is not above. Each run adds a line to FILE: its accuracy, the statement's
epsilon and delta for all that a client sends, and CPU seconds with one process.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import fedldp
from fedldp.accounting.proven import Proven
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.fleet import nearest
from fedldp.reporting.record import environment
from fedldp.simulation.settings import from_mapping

EXAMPLES = 6


def configured(clients: int, epsilon: float, seed: int) -> RunConfig:
    """Return the advised configuration at an epsilon."""
    advised = [
        cell
        for cell in nearest(clients, EXAMPLES)
        if (cell.adversary, cell.data) == ("server", "mnist") and cell.features is not None
    ]
    best = max((cell for cell in advised if cell.epsilon <= epsilon), key=lambda cell: cell.epsilon)
    target = {"unit": "client-run", "adversary": "server", "epsilon": epsilon, "delta": 1e-5}
    return from_mapping(
        {**best.settings, "dataset": "mnist", "num_clients": clients, "target": target,
         "partition": f"drawn:{EXAMPLES}", "seed": seed}
    )  # fmt: skip


def main() -> None:
    """Make the runs, and add a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("clients", type=int)
    parser.add_argument("epsilon", type=float)
    parser.add_argument("seeds", type=int, nargs="*", default=[0])
    given = parser.parse_args()
    for seed in given.seeds:
        config = configured(given.clients, given.epsilon, seed)
        began = time.process_time()
        result = fedldp.run(config, workers=1, evaluate_every=config.rounds)
        proven = Proven.of(result.privacy, "client-run", "server")
        row = {
            "date": environment()["date"], "clients": given.clients, "epsilon": given.epsilon,
            "seed": seed, "accuracy": result.accuracy,
            "proven": {"epsilon": proven.epsilon, "delta": proven.delta},
            "cpu_seconds": round(time.process_time() - began, 1),
            "settings": config.identity(),
        }  # fmt: skip
        with given.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
