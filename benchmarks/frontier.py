"""Accuracy against client-run epsilon: where local privacy works, and where it does not.

    FEDLDP_DATA=... python benchmarks/frontier.py OUT.jsonl        measure (about half an hour)
    python benchmarks/frontier.py OUT.jsonl --plot docs/frontier.png

Logistic regression, one to three rounds, every mechanism calibrated to the same guarantee: epsilon
for all that one client sends in the run, at delta 1e-5, against a server that knows who sent what.
No example is given to two clients: digits for 100 clients, Covertype for 1,000 and 10,000. The norm
bound of each mechanism was chosen by hand on other seeds and is part of the configuration.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fedldp
from fedldp.errors import ConfigError

EPSILONS = (1.0, 4.0, 16.0, 64.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "two_point": {"range_radius": 0.1},
    "two_point_l1": {"range_radius": 0.3, "clip": 4.0},
    "laplace": {"range_radius": 1.0, "clip": 2.0},
    "piecewise": {"range_radius": 0.1},
    "gaussian": {"range_radius": 1.0, "clip": 1.0},
    "privunit": {"range_radius": 1.0, "clip": 1.0},
}
DATA: dict[int, dict[str, Any]] = {
    100: {"dataset": "digits", "standardise": True, "rounds": 3, "learning_rate": 0.1},
    1_000: {"dataset": "covertype", "standardise": False, "rounds": 2, "learning_rate": 2.0},
    10_000: {"dataset": "covertype", "standardise": False, "rounds": 3, "learning_rate": 2.0},
}


def configuration(clients: int, mechanism: str, epsilon: float, seed: int) -> Any:
    """Return one point's configuration."""
    own = SETTINGS[mechanism]
    if clients > 100 and mechanism in ("gaussian", "privunit"):
        own = {**own, "clip": 4.0}
    return fedldp.recipe(
        "quickstart",
        num_clients=clients,
        mechanism=mechanism,
        send="update",
        shuffle=False,
        target={"unit": "client-run", "epsilon": epsilon, "delta": 1e-5},
        seed=seed,
        **{**DATA[clients], **own},
    )


def measure(path: Path, seeds: range) -> None:
    """Run every point that ``path`` does not hold yet, and add a line for each."""
    done = {tuple(row[:4]) for row in map(json.loads, path.open())} if path.exists() else set()
    for clients in DATA:
        for seed in seeds if clients == 100 else seeds[:1]:
            points = [("none", 0.0)] + [(m, e) for m in SETTINGS for e in EPSILONS]
            for mechanism, epsilon in points:
                if (clients, mechanism, epsilon, seed) in done:
                    continue
                accuracy = point(clients, mechanism, epsilon, seed)
                print(clients, mechanism, epsilon, seed, accuracy, flush=True)
                with path.open("a") as file:
                    file.write(json.dumps([clients, mechanism, epsilon, seed, accuracy]) + "\n")


def point(clients: int, mechanism: str, epsilon: float, seed: int) -> float | None:
    """Return the final accuracy, or None where no budget of the mechanism meets the target."""
    if mechanism == "none":
        noisy = configuration(clients, "gaussian", 1.0, seed)
        shared = {key: getattr(noisy, key) for key in DATA[clients]}
        config = fedldp.recipe("fedavg-quickstart", num_clients=clients, seed=seed, **shared)
    else:
        config = configuration(clients, mechanism, epsilon, seed)
    try:
        return fedldp.run(config, workers=2).accuracy
    except ConfigError as error:
        print("not possible:", error, flush=True)
        return None


def plot(path: Path, image: Path) -> None:
    """Draw accuracy against epsilon, a panel for each number of clients, and print the table."""
    from matplotlib import pyplot

    rows = [json.loads(line) for line in path.open()]
    figure, panels = pyplot.subplots(1, len(DATA), figsize=(12, 3.6), sharey=True)
    for panel, clients in zip(panels, DATA, strict=True):
        print(f"| {clients:,} clients | " + " | ".join(f"{e:g}" for e in EPSILONS) + " |")
        for mechanism in SETTINGS:
            means = [mean(rows, clients, mechanism, epsilon) for epsilon in EPSILONS]
            panel.plot(EPSILONS, means, marker="o", label=mechanism)
            cells = ("-" if m is None else f"{100 * m:.1f} %" for m in means)
            print(f"| {mechanism} | " + " | ".join(cells) + " |")
        free = mean(rows, clients, "none", 0.0)
        print(f"| no noise | {'' if free is None else f'{100 * free:.1f} %'} |")
        panel.axhline(free or 0.0, color="black", linestyle=":", label="no noise")
        panel.set(xscale="log", xlabel="epsilon for a client's whole run", title=f"n = {clients:,}")
    panels[0].set(ylabel="accuracy", ylim=(0, 1))
    panels[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(image, dpi=110)


def mean(rows: list[Any], clients: int, mechanism: str, epsilon: float) -> float | None:
    """Return the mean accuracy of a point over its seeds."""
    found = [
        row[4] for row in rows if row[:3] == [clients, mechanism, epsilon] and row[4] is not None
    ]
    return sum(found) / len(found) if found else None


if __name__ == "__main__":
    if "--plot" in sys.argv:
        plot(Path(sys.argv[1]), Path(sys.argv[3]))
    else:
        measure(Path(sys.argv[1]), range(3))
