"""Seconds of a round over HTTPS on this machine: server and sites as processes, with TLS.

    python -m benchmarks.https_rounds [--sites 3] [--rounds 20] [--recipe quickstart] [KEY=VALUE]...

Ledgers and the server's folder are synced as in any deployment. The first round, which begins
before the sites are there, stands apart: it is the cold start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fedldp.deployment.agreement import Channel, Link
from fedldp.deployment.parties import DemoEnvironment, running_parties
from fedldp.simulation.settings import resolve


def measured(recipe: str, settings: list[str], channel: Channel, link: Link) -> dict[str, Any]:
    config = resolve(recipe, settings)
    with tempfile.TemporaryDirectory(prefix="fedldp-") as place:
        world = DemoEnvironment.made(Path(place), config, channel, link, None)
        with running_parties(world, lambda what: None) as running:
            began = time.monotonic()
            running.start_own()
            if link == "flower":
                running.start_flower()
            running.await_round(1)
            cold = time.monotonic() - began
            running.await_end()
        lines = (world.run / "metrics.jsonl").read_text().splitlines()
        seconds = [json.loads(line)["seconds"] for line in lines]
    later = sorted(seconds[1:])
    return {
        "recipe": recipe,
        "sites": config.num_clients,
        "channel": channel,
        "link": link,
        "parameters": config.layout(world.agreement.problem).size,
        "rounds": len(seconds),
        "cold_start": round(cold, 2),
        "median": round(statistics.median(later), 3),
        "fastest": round(later[0], 3),
        "slowest": round(later[-1], 3),
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--link", choices=["https", "flower"], default="https")
    parser.add_argument("--channel", choices=["named", "sum"], action="append")
    given = parser.parse_args()
    settings = [*given.settings, f"num_clients={given.sites}", f"rounds={given.rounds}"]
    for channel in given.channel or ["named", "sum"]:
        print(json.dumps(measured(given.recipe, settings, channel, given.link)), flush=True)


if __name__ == "__main__":
    main()
