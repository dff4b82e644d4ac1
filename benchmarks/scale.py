"""Measures memory and time of a run with 100, 10,000 and 1,000,000 clients, part by part.

    FEDLDP_DATA=... python -m benchmarks.scale [--once] [CLIENTS]...

Each number of clients runs in a separate process: ldp-fl-mnist with logistic regression (d =
7,850), one step on 6 examples that each client draws from MNIST, all clients in one round, with a
run folder. The columns are peak resident memory, and CPU seconds: of the plan with its statement,
of the rounds, also per client, and of writing the last checkpoint.

With --once: k_closest on pose features (d = 2,010), each client in one of two rounds. The time of
the rounds then includes some seconds, for any number of clients, in which the features of all
70,000 images are computed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping

CLIENTS = (100, 10_000, 1_000_000)
ONCE = (100, 10_000, 100_000)


def configured(clients: int, once: bool) -> RunConfig:
    """Return the run's configuration."""
    step = {"num_clients": clients, "partition": "drawn:6", "local_epochs": 1, "batch_size": 6}
    if not once:
        return fedldp.recipe("ldp-fl-mnist", model="logistic", rounds=1, **step)
    return from_mapping(
        {"system": "composed", "dataset": "mnist", "features": "pose", "model": "logistic",
         "learning_rate": 0.1, "bound": "direction", "mechanism": "k_closest", "epsilon": 4.0,
         "participation": "once", "rounds": 2, **step}
    )  # fmt: skip


def one(clients: int, once: bool) -> dict[str, float]:
    """Run all rounds, and return their time."""
    config = configured(clients, once)
    found: dict[str, float] = {"clients": clients}
    started = time.process_time()
    planned = plan(config, problem_of(config, None))
    found["plan"] = time.process_time() - started
    write = RunFolder.write_round

    def timed(*given: object) -> None:
        before = time.process_time()
        write(*given)  # type: ignore[arg-type]
        found["checkpoint"] = time.process_time() - before
        found["round"] = before - begun

    RunFolder.write_round = timed  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        simulate(config, planned=planned, out=Path(folder) / "run")
    found["mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def main() -> None:
    """Print a line for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", type=int, nargs="*")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.clients[0], given.once)))
        return
    print("| clients | peak MiB | plan s | rounds s | rounds, ms a client | checkpoint s |")
    print("|---|---|---|---|---|---|")
    for clients in given.clients or (ONCE if given.once else CLIENTS):
        command = [sys.executable, __file__, "--one", str(clients), *["--once"] * given.once]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        print(
            f"| {clients:,} | {found['mib']:.0f} | {found['plan']:.2f} | {found['round']:.2f} "
            f"| {1e3 * found['round'] / clients:.4f} | {found['checkpoint']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
