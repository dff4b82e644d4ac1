"""Flower's simulation (https://flower.ai): its Ray backend, one virtual node for each client.

``run_simulation`` is the Python way into the engine that ``flwr run`` starts as processes of its
own. Each client is given one CPU (``client_resources``), so there are as many workers as CPUs.

``--cores`` is the number of Ray's CPUs.
"""

from __future__ import annotations

import os
from importlib.metadata import version

os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")

import torch
from common import arguments, say
from flower_app import client_app, server_app
from flwr.simulation import run_simulation
from workloads import WORKLOADS


def main() -> None:
    """Run the workload's rounds."""
    given = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    run_simulation(
        server_app=server_app(given.inputs, given.workload, given.rounds),
        client_app=client_app,
        num_supernodes=WORKLOADS[given.workload].clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": given.cores, "include_dashboard": False},
        },
    )
    say("done", version=version("flwr"))


if __name__ == "__main__":
    main()
