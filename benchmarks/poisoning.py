"""Measures the accuracy that lying clients cost every system on digits, and one liar's influence.

    python -m benchmarks.poisoning OUT.jsonl    measure what it lacks

Each system runs its recipe on scikit-learn's digits, for at most five rounds, with 100 clients if
it still learns with so many; ``CHANGED`` lists what differs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

import fedldp
from benchmarks.blocks import from_template, table
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import systems
from fedldp.audit.efforts import FULL
from fedldp.audit.poisoning import poisoning
from fedldp.audit.results import AttackResult, Audit

RESULTS = Path(__file__).parent / "results" / "2026-11-22-poisoning.jsonl"
SHARES = (0.01, 0.05, 0.1, 0.2)
ATTACKS = ("report", "random", "update", "labels")
RECIPES = {"ldpfl": "ldpfl-digits-public"}
CHANGED: dict[str, dict[str, Any]] = {
    "dp_sgd": {"num_clients": 20},
    "ldpfl": {
        "num_clients": 20, "evaluation": "common", "label_epsilon": 8.0,
        "randomisation": "theorem_2", "rounds": 5,
    },
    "ldpfl_sound": {"num_clients": 20},
    "personalized": {"num_clients": 30, "epsilon": [1.0, 5.0, 10.0] * 10},
    "personalized_sound": {"epsilon": 300.0, "rounds": 5},
    "secure_aggregation": {"num_clients": 20},
}  # fmt: skip


def configuration(system: str) -> RunConfig:
    """Return the configuration with which a system is measured."""
    recipe = RECIPES.get(system, f"{system.replace('_', '-')}-digits")
    return fedldp.recipe(recipe, **CHANGED.get(system, {}))


def measure(path: Path) -> None:
    """Add a line for each system that the file lacks."""
    known = {line["system"] for line in read(path)}
    for system in systems():
        if system in known:
            continue
        started = time.process_time()
        found = poisoning(configuration(system), effort=FULL, beside=False)
        seconds = round(time.process_time() - started, 2)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line_of(found), "cpu_seconds": seconds}) + "\n")
        print(system, f"{seconds} s", flush=True)


def line_of(found: Audit[AttackResult]) -> dict[str, Any]:
    """Return what the file keeps about a system."""
    rows = [row for row in found.rows if row.kind == "poisoning"]
    return {
        "system": found.subject,
        "rounds": rows[0].figures["rounds"],
        "influences": [row.as_json() for row in found.rows if row.kind == "influence"],
        "rows": [row.as_json() for row in rows],
    }


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def accuracies(line: dict[str, Any], attack: str | None, share: float) -> str:
    """Return the mean accuracy in percent, with a star if a run stopped early."""
    of = [row for row in line["rows"] if (row["attack"], row["share"]) == (attack, share)]
    star = "*" if any(row["stopped"] for row in of) else ""
    return f"{100 * mean(row['accuracy'] for row in of):.1f}{star}"


def attack_table(lines: list[dict[str, Any]], attack: str) -> str:
    """Return a table of accuracy by system and share, for one attack."""
    head = ["system", "clients", "nobody", *(f"{100 * share:g} %" for share in SHARES)]
    return table(
        head,
        [
            [
                f"`{line['system']}`",
                str(line["rows"][0]["clients"]),
                accuracies(line, None, 0.0),
                *(accuracies(line, attack, share) for share in SHARES),
            ]
            for line in lines
        ],
    )


def influence_table(lines: list[dict[str, Any]]) -> str:
    """Return a table of what one client can do, by system."""
    out = []
    for line in lines:
        (one,) = line["influences"]
        more = "-" if one["amplification"] is None else f"{one['amplification']:,.2f}"
        out.append(
            [
                f"`{one['system']}`",
                str(one["clients"]),
                f"{one['most']:,.4g}",
                f"{one['norm']:,.4g}",
                more,
            ]
        )
    head = ["system", "clients of a round", "one weight", "all weights, L2", "forged over honest"]
    return table(head, out)


def chart(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw accuracy by the share of liars, for forged reports and for false labels."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style = {"svg.fonttype": "none", "svg.hashsalt": "fedldp", "axes.unicode_minus": False}
    with rc_context(style):
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        titles = (("report", "forged reports"), ("labels", "false labels"))
        for axes, (attack, title) in zip(panels, titles, strict=True):
            for number, line in enumerate(lines):
                axes.plot(
                    [0.0, *(100 * share for share in SHARES)],
                    [float(accuracies(line, None, 0.0).rstrip("*"))]
                    + [float(accuracies(line, attack, share).rstrip("*")) for share in SHARES],
                    color=f"C{number % 10}",
                    marker="os^Dv<>ph*"[number % 10],
                    linestyle="-" if number < 10 else (0, (5, 2)),
                    linewidth=1.2,
                    markersize=4,
                    label=line["system"],
                )
            axes.set_title(title)
            axes.set_xlabel("share of clients that lie, in %")
            axes.set_ylim(0, 100)
            axes.grid(visible=True, linewidth=0.4)
        panels[0].set_ylabel("accuracy on the test set, in %")
        known = panels[0].get_legend_handles_labels()
        figure.legend(*known, loc="outside lower center", ncols=5, fontsize=8)
        figure.savefig(path, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))


def write_page(folder: Path) -> None:
    """Write the page of the committed results, and its chart, into a folder."""
    lines = sorted(read(RESULTS), key=lambda line: str(line["system"]))
    made = {attack: attack_table(lines, attack) for attack in ATTACKS}
    text = from_template("poisoning", {**made, "influence": influence_table(lines)})
    (folder / "poisoning.md").write_text(text, encoding="utf-8")
    chart(lines, folder / "poisoning.svg")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
