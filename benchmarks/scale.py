"""Memory and time of a run with 100, 10,000 and 1,000,000 clients, each part of it.

    FEDLDP_DATA=... python benchmarks/scale.py [CLIENTS]...

Each number of clients is a process of its own: ldp-fl-mnist with logistic regression (d = 7,850),
one step on 6 examples that each client draws from MNIST, all clients in one round, one process,
with a run folder. Shown are the highest resident memory, and seconds of CPU time: of the plan with
its statement, of the round for each client, and of writing the checkpoint.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fedldp
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of

CLIENTS = (100, 10_000, 1_000_000)


def one(clients: int) -> dict[str, float]:
    """Run one round, and return what it took."""
    config = fedldp.recipe(
        "ldp-fl-mnist", model="logistic", num_clients=clients, partition="drawn:6", rounds=1,
        local_epochs=1, batch_size=6,
    )  # fmt: skip
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
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[2]))))
        return
    print("| clients | peak MiB | plan s | round s | round, ms a client | checkpoint s |")
    print("|---|---|---|---|---|---|")
    for clients in map(int, sys.argv[1:] or CLIENTS):
        command = [sys.executable, __file__, "--one", str(clients)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        print(
            f"| {clients:,} | {found['mib']:.0f} | {found['plan']:.2f} | {found['round']:.2f} "
            f"| {1e3 * found['round'] / clients:.4f} | {found['checkpoint']:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
