"""The tables of docs/results/reproduction_*.md and docs/papers, made from the committed results.

The text between the tables is not changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.experiments.reproduction.claims import claims_table
from fedldp.experiments.reproduction.comparison import Row, Verdict, compare
from fedldp.experiments.reproduction.figure import has_rounds
from fedldp.experiments.reproduction.results import MeasurementStore
from fedldp.experiments.reproduction.runner import jobs
from fedldp.experiments.reproduction.statements import proven_table
from fedldp.experiments.reproduction.targets import PaperTarget, find_target, targets

_BLOCK = re.compile(r"(<!-- target (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CLAIMS = re.compile(r"(<!-- claims (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PROVEN = re.compile(r"(<!-- proven ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_OVERVIEW = re.compile(r"(<!-- (overview) -->\n).*?(<!-- end -->)", re.DOTALL)
_REST = re.compile(r"(<!-- (unmeasured) -->\n).*?(<!-- end -->)", re.DOTALL)
_SEEDS = 3
_CORES = 2
"""How many cores the estimated time of a run assumes."""
_WHOLE = 10
"""An estimate of this many hours or more has no decimals."""
_NOWHERE = Path("/nonexistent")
"""An empty data folder and an empty store, so that the page is the same on every machine."""


def updated(page: str) -> str:
    """Return the page with every table between markers regenerated.

    A marker begins a block that ends at ``<!-- end -->``: ``<!-- target NAME -->`` is for a table
    or figure, with its chart if rounds are known; ``<!-- claims PAPER -->`` for the claims of a
    paper's text; ``<!-- proven RECIPE... -->`` for the lines of recipes' statements; ``<!--
    overview -->`` for all targets; ``<!-- unmeasured -->`` for what has not been measured.

    Raises:
        ConfigError: a marker has an unknown name.
    """
    known = targets()
    makers: dict[re.Pattern[str], Callable[[str], str]] = {
        _BLOCK: lambda name: target_text(find_target(name, known)),
        _CLAIMS: claims_table,
        _PROVEN: proven_table,
        _OVERVIEW: lambda _: overview(known.values()),
        _REST: lambda _: remaining(known.values()),
    }
    found = 0
    for pattern, made in makers.items():

        def anew(match: re.Match[str], made: Callable[[str], str] = made) -> str:
            return f"{match[1]}{made(match[2])}{match[3]}"

        page, count = pattern.subn(anew, page)
        found += count
    if not found:
        raise ConfigError("page: it has no table between `<!-- target NAME -->` and `<!-- end -->`")
    return page


def name_of_chart(target: str) -> str:
    """Return the file name of a target's chart, which is in the folder of the target's page."""
    return f"reproduction_{target}.svg"


def committed(target: PaperTarget, *, prove: bool = True) -> list[Row]:
    """Return a target's rows from the committed results only."""
    return compare(target, MeasurementStore(_NOWHERE), _NOWHERE, prove=prove)


def target_text(target: PaperTarget) -> str:
    """Return a target's table, and its chart if more rounds than the last one are known."""
    rows = committed(target)
    text = markdown(rows)
    if any(map(has_rounds, rows)):
        text += f"\n![Accuracy after each round]({name_of_chart(target.name)})\n"
    return text


def overview(found: Iterable[PaperTarget]) -> str:
    """Return a table of all targets, with their pages and the number of cells with each verdict."""
    verdicts: tuple[Verdict, ...] = (
        "agrees",
        "explained",
        "unexplained",
        "no number",
        "not measured",
    )
    lines = [
        f"| target | of | cells | {' | '.join(verdicts)} |",
        "|---|---|---|" + "---|" * len(verdicts),
    ]
    for target in found:
        counts = Counter(row.verdict for row in committed(target, prove=False))
        numbers = " | ".join(str(counts[verdict]) for verdict in verdicts)
        page = f"[`{target.name}`](results/reproduction_{target.name}.md)"
        place = f"{target.paper}: {target.place}"
        lines.append(f"| {page} | {place} | {counts.total()} | {numbers} |")
    return "\n".join(lines) + "\n"


def remaining(found: Iterable[PaperTarget]) -> str:
    """Return a table of the targets with fewer than three seeds in a cell, with estimated costs."""
    lines = [
        "| target | cells | measured | with three seeds | CPU hours for one seed of the unmeasured "
        "cells | CPU hours for three seeds of all cells |",
        "|---|---|---|---|---|---|",
    ]
    for target in found:
        rows = committed(replace(target, gains=()), prove=False)
        seeds = [len(row.ours.seeds) if row.ours else 0 for row in rows]
        if min(seeds) >= _SEEDS:
            continue
        one, all_three = (_hours(target, seeds, most) for most in (1, _SEEDS))
        measured, whole = (sum(count >= most for count in seeds) for most in (1, _SEEDS))
        lines.append(
            f"| `{target.name}` | {len(seeds)} | {measured} | {whole} | {one} | {all_three} |"
        )
    return "\n".join(lines) + "\n"


def _hours(target: PaperTarget, seeds: Sequence[int], most: int) -> str:
    """Return the estimated core hours of the runs that ``most`` seeds of each cell still need."""
    seconds = 0.0
    for count in range(most):
        cells = [cell for cell, known in zip(target.cells, seeds, strict=True) if known == count]
        todo = jobs(cells, range(count, most), MeasurementStore(_NOWHERE), _NOWHERE, "cpu")
        seconds += sum(job.seconds for job in todo)
    hours = _CORES * seconds / 3600
    return f"{hours:.1f}" if hours < _WHOLE else f"{hours:.0f}"


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table."""
    columns: dict[str, Callable[[Row], str]] = {
        "row": lambda row: row.row if row.column == "accuracy" else f"{row.row}; {row.column}",
        "paper": paper_text,
        "ours": ours_text,
        "seeds": _seeds_text,
        "verdict": lambda row: row.verdict,
        "proven ε, client's run": epsilon_text,
        "recipe": lambda row: "-" if row.column == "points" else f"`{row.recipe}`",
    }
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row) for show in columns.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _seeds_text(row: Row) -> str:
    seeds = row.ours.seeds if row.ours else []
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds)) or "-"


def percent(value: float | None, *, sign: bool = False) -> str:
    """Return a fraction in percent; a dash for None."""
    if value is None:
        return "-"
    text = f"{100 * value:{'+' if sign else ''}.2f}"
    return (
        text[:-1] if text.endswith("0") else text
    )  # drop a final zero: some numbers are known only to a tenth


def paper_text(row: Row) -> str:
    """Return the paper's number, or its range, in percent."""
    if row.paper_lowest is None:
        return percent(row.paper)
    return f"{percent(row.paper_lowest)} to {percent(row.paper)}"


def ours_text(row: Row) -> str:
    """Return our mean and deviation in percent."""
    if row.ours is None:
        return "-"
    text = percent(row.ours.mean, sign=row.column == "points")
    if row.ours.deviation is not None:
        text += f" ± {percent(row.ours.deviation)}"
    marks = ["GPU"] if row.ours.device == "cuda" else []
    marks += ["subset"] if row.ours.stand_in else []
    return f"{text} ({', '.join(marks)})" if marks else text


def epsilon_text(row: Row) -> str:
    """Return the proven epsilon, rounded up, with its conditions."""
    if row.column == "points":
        return "-"
    if row.epsilon is None:
        return "none"
    text = number(row.epsilon)
    if row.delta:
        text += f" at {row.delta:g}"
    return f"{text}, idealised" if row.idealised else text
