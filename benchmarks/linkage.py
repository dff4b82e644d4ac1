"""Links between LDP-FL's shuffled messages, by T, the number of clients and the chunk.

    python -m benchmarks.linkage OUT.jsonl    measure what it lacks

Attacks by time need no data. Messages have content from scikit-learn's digits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fedldp
from benchmarks.blocks import from_template, table
from fedldp.algorithms.config import RunConfig
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import AttackResult
from fedldp.papers.ldp_fl.attacks import (
    CLOCKS,
    by_content,
    how_bits_are_made,
    judged,
    linkage,
    timing,
    train_values,
    what,
)
from fedldp.simulation.inputs import Inputs

RESULTS = Path(__file__).parent / "results" / "2026-11-25-linkage.jsonl"
RECIPE = "ldp-fl-digits"
DELAYS = (0.1, 1.0, 10.0, 100.0, 1000.0)
TRIALS = {100: 3_000, 10_000: 300}
CHUNKS = (1, 10, 65, 325, 650)
CONTENTS = ((1.0, 100, 500), (4.0, 100, 500), (8.0, 100, 500), (8.0, 10_000, 40))
"""Epsilon, clients, trials."""
EFFORT = replace(
    QUICK, timing_trials=5_000, content_trials=1_000, content_clients=100
)  # fmt: skip

KEYS = AuditKeys(0)

Row = dict[str, Any]
"""The JSON of a result."""
Found = tuple[dict[str, Any], Callable[[], tuple[AttackResult, ...]]]


def configuration(epsilon: float, clients: int) -> RunConfig:
    """Return LDP-FL on digits; with many clients, each draws ten examples."""
    changed: dict[str, Any] = {} if clients == 100 else {"partition": "drawn:10"}
    return fedldp.recipe(RECIPE, epsilon=epsilon, num_clients=clients, **changed)


def parts() -> Iterator[Found]:
    """Yield the measurements, by name."""
    config = configuration(1.0, 100)
    delays = config.composition.channel.delays
    assert delays is not None
    yield {"part": "audit"}, lambda: linkage(config, effort=EFFORT)
    for clients, trials in TRIALS.items():
        for clocks in CLOCKS:
            for delay in DELAYS:
                for target in ("any", "slowest"):
                    name = {"part": "delay", "clients": clients, "clocks": clocks.name,
                            "delay": delay, "target": target}  # fmt: skip
                    yield (
                        name,
                        lambda t=target, d=delay, c=clocks, n=clients, m=trials: judged(
                            "a shuffler",
                            timing(replace(delays, delay_seconds=d), n, c, "within", t, m, KEYS),
                        ),
                    )
    for epsilon, clients, trials in CONTENTS:
        name = {"part": "chunk", "clients": clients, "epsilon": epsilon}

        def play(e: float = epsilon, n: int = clients, m: int = trials) -> tuple[AttackResult, ...]:
            of = configuration(e, n)
            inputs = Inputs.of(of, None, None)
            _, mechanism = how_bits_are_made(of, inputs.problem)
            trained = train_values(of, inputs)
            return judged(of.name(), by_content(delays, mechanism, trained, CHUNKS, m, KEYS))

        yield name, play


def measure(path: Path) -> None:
    """Add a line for each part that the file lacks."""
    known = {json.dumps(line["name"]) for line in read(path)}
    for name, play in parts():
        if json.dumps(name) in known:
            continue
        started = time.process_time()
        rows = [row.as_json() for row in play()]
        seconds = round(time.process_time() - started, 2)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "cpu_seconds": seconds, "rows": rows}) + "\n")
        print(name, f"{seconds} s", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rows_of(lines: list[dict[str, Any]], part: str) -> list[tuple[dict[str, Any], list[Row]]]:
    """Return the rows of one part, each with the names of its settings."""
    return [(line["name"], line["rows"]) for line in lines if line["name"]["part"] == part]


def best(rows: list[Row]) -> Row:
    """Return the row of the attack that was right most often."""
    return max(rows, key=lambda row: row["hits"])


def percent(row: Row) -> str:
    """Return the share of correct links with its interval, in percent; bold if "linked"."""
    share = f"{100 * row['hits'] / row['trials']:.1f}"
    shown = f"**{share}**" if row["verdict"] == "linked" else share
    return f"{shown} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


def delay_table(lines: list[dict[str, Any]], clients: int, target: str) -> str:
    """Return the table of T against clocks."""
    found = {
        (name["clocks"], name["delay"]): best(rows)
        for name, rows in rows_of(lines, "delay")
        if (name["clients"], name["target"]) == (clients, target)
    }
    head = ["clocks", *(f"T = {delay:g} s" for delay in DELAYS)]
    return table(head, [[c.name, *(percent(found[c.name, d]) for d in DELAYS)] for c in CLOCKS])


def chunk_table(lines: list[dict[str, Any]]) -> str:
    """Return the table of chunks against epsilon."""
    out = []
    for name, rows in rows_of(lines, "chunk"):
        for span, words in (("within", "within a round"), ("across", "from round to round")):
            of = {row["chunk"]: percent(row) for row in rows if row["span"] == span}
            label = [f"{name['epsilon']:g}", f"{name['clients']:,}", words]
            out.append(label + [of.get(chunk, "one message") for chunk in CHUNKS])
    return table(["ε", "n", "links", *(f"chunk {chunk}" for chunk in CHUNKS)], out)


def audit_table(lines: list[dict[str, Any]]) -> str:
    """Return the table of the recipe's audit, without the lines of the slowest client."""
    ((_, rows),) = rows_of(lines, "audit")
    shown = [row for row in rows if row["target"] == "any"]
    return table(
        ["what", "chunk", "guessing", "right", "trials", "verdict"],
        [
            [what(row), f"{row['chunk']:,}", f"{100 * row['guessing']:.1f}", percent(row),
             f"{row['trials']:,}", row["verdict"]]
            for row in shown
        ],
    )  # fmt: skip


def chart(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the advantage by T, and by the chunk."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style = {"svg.fonttype": "none", "svg.hashsalt": "fedldp", "axes.unicode_minus": False}
    with rc_context(style):
        figure = Figure(figsize=(11, 4.8), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        delays = rows_of(lines, "delay")
        for number, clocks in enumerate(CLOCKS):
            for clients, dashes in ((100, "-"), (10_000, (0, (4, 2)))):
                rows = [
                    best(rows)
                    for name, rows in delays
                    if (name["clocks"], name["clients"], name["target"])
                    == (clocks.name, clients, "any")
                ]
                label = clocks.name if clients == 100 else None
                _line(left, [row["delay_seconds"] for row in rows], rows, number, dashes, label)
        left.set_xlabel("T in seconds; dashed: 10,000 clients, else 100")
        left.set_title("within a round, by time")
        left.set_ylabel("probability of a correct link, less guessing")
        for number, (name, rows) in enumerate(rows_of(lines, "chunk")):
            across = [row for row in rows if row["span"] == "across"]
            label = f"ε {name['epsilon']:g}, {name['clients']:,} clients"
            _line(right, [row["chunk"] for row in across], across, number, "-", label)
        right.set_xlabel("chunk: weights in one message, of 650")
        right.set_title("from round to round, by content")
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_ylim(-0.03, 1.0)
            axes.grid(visible=True, linewidth=0.4)
            axes.legend(fontsize=8)
        figure.savefig(path, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))


def _line(
    axes: Any, at: list[float], rows: list[Row], number: int, dashes: Any, label: str | None
) -> None:
    axes.errorbar(
        at,
        [row["hits"] / row["trials"] - row["guessing"] for row in rows],
        yerr=[
            [max(0.0, row["hits"] / row["trials"] - row["low"]) for row in rows],
            [row["high"] - row["hits"] / row["trials"] for row in rows],
        ],
        color=f"C{number}", marker="os^Dv<"[number], linestyle=dashes, linewidth=1.3,
        markersize=4, capsize=2, elinewidth=0.8, label=label,
    )  # fmt: skip


def write_page(folder: Path) -> None:
    """Write the page of the committed results, and its chart, into a folder."""
    lines = read(RESULTS)
    made = {
        "audit": audit_table(lines),
        "chunk": chunk_table(lines),
        **{
            f"delay-{target}-{clients}": delay_table(lines, clients, target)
            for target in ("any", "slowest")
            for clients in TRIALS
        },
    }
    (folder / "linkage.md").write_text(from_template("linkage", made), encoding="utf-8")
    chart(lines, folder / "linkage.svg")


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
