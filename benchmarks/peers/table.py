"""Makes a table, and a chart of cost against clients, from the results of ``run.py``.

    python benchmarks/peers/table.py FILE.jsonl [--chart FILE.svg]

The table is Markdown, on the standard output: medians over the repetitions; of the accuracy the
lowest and the highest. The chart needs matplotlib (``pip install "fedldp[report]"``, or an
environment of its own: this script needs nothing else). It shows, of the workloads "many-CLIENTS",
the CPU time of all processes per client and round, with the number of cores that costs the least.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES = {
    "fedldp": "fedldp",
    "plain": "plain PyTorch loop",
    "pfl": "pfl-research",
    "flower": "Flower simulation",
}
COLOURS = {"fedldp": "#1b5e9b", "plain": "#6b6b6b", "pfl": "#c05a00", "flower": "#7a3d8f"}
MARKERS = {"fedldp": "o", "plain": "s", "pfl": "^", "flower": "D"}

Group = tuple[str, str, int]
"""A workload, a framework, a number of cores."""


def read(file: Path) -> dict[Group, list[dict[str, Any]]]:
    """Return the repetitions of every cell."""
    groups: dict[Group, list[dict[str, Any]]] = {}
    for text in file.read_text().splitlines():
        line = json.loads(text)
        groups.setdefault((line["workload"], line["framework"], line["cores"]), []).append(line)
    return groups


def median(lines: list[dict[str, Any]], name: str) -> float:
    """Return the median of one figure over the repetitions."""
    return statistics.median(line[name] for line in lines)


def cpu_ms(lines: list[dict[str, Any]]) -> float:
    """Return the milliseconds of CPU time for one client in one round."""
    return 1e3 * median(lines, "cpu_seconds_per_round") / lines[0]["clients"]


def table(groups: Mapping[Group, list[dict[str, Any]]]) -> str:
    """Return the tables of all workloads as Markdown."""
    text: list[str] = []
    workloads = {lines[0]["workload"]: lines[0]["clients"] for lines in groups.values()}
    for workload in sorted(workloads, key=lambda name: (name.split("-")[0], workloads[name])):
        text += [
            f"**{workload}** ({workloads[workload]:,} clients)",
            "",
            "| framework | cores | s a round | CPU s a round | CPU ms a client | CPU, fedldp = 1 "
            "| start-up s | peak MiB | accuracy | rounds | runs |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        rows = {group[1:]: lines for group, lines in groups.items() if group[0] == workload}
        ours = [cpu_ms(lines) for (name, _), lines in rows.items() if name == "fedldp"]
        for framework in NAMES:
            for cores in sorted(number for name, number in rows if name == framework):
                lines = rows[framework, cores]
                ratio = f"{cpu_ms(lines) / min(ours):.2f}" if ours else ""
                accuracies = [line["accuracy"] for line in lines]
                span = " to ".join(f"{a:.3f}" for a in sorted({min(accuracies), max(accuracies)}))
                text.append(
                    f"| {NAMES[framework]} {lines[-1]['version']} | {cores} "
                    f"| {median(lines, 'seconds_per_round'):.2f} "
                    f"| {median(lines, 'cpu_seconds_per_round'):.2f} | {cpu_ms(lines):.3g} "
                    f"| {ratio} | {median(lines, 'startup_seconds'):.1f} "
                    f"| {median(lines, 'peak_mib'):.0f} | {span} "
                    f"| {lines[0]['rounds']} | {len(lines)} |"
                )
        text.append("")
    return "\n".join(text)


def points(groups: Mapping[Group, list[dict[str, Any]]], framework: str) -> list[tuple[int, float]]:
    """Return (clients, CPU ms a client) of a framework, for the workloads "many-CLIENTS"."""
    cheapest: dict[int, float] = {}
    for (workload, name, _), lines in groups.items():
        if name == framework and workload.startswith("many-"):
            clients = lines[0]["clients"]
            cheapest[clients] = min(cheapest.get(clients, float("inf")), cpu_ms(lines))
    return sorted(cheapest.items())


def chart(groups: Mapping[Group, list[dict[str, Any]]], file: Path) -> None:
    """Draw cost against clients, both logarithmic, into an SVG file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "fedldp"  # the same results give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    for framework, name in NAMES.items():
        found = points(groups, framework)
        if found:
            axes.plot(*zip(*found, strict=True), label=name, color=COLOURS[framework],
                      marker=MARKERS[framework], markersize=6, linewidth=1.8)  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(70, 1.4e6),
        xlabel="clients in a round",
        ylabel="CPU time of a client in one round, ms",
        title="MNIST, logistic regression (7,850 weights), one step of 6 examples",
    )
    axes.title.set_size(10)
    axes.grid(which="major", color="#d9d9d9", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Print the tables, and draw the chart if a file is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--chart", type=Path)
    given = parser.parse_args()
    groups = read(given.file)
    print(table(groups))
    if given.chart is not None:
        chart(groups, given.chart)


if __name__ == "__main__":
    main()
