"""The tables of the pages in docs/papers: a paper's claims beside our results, and guarantees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import IDEALISED
from fedldp.algorithms.recipes import Recipe, find_recipe
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.reproduction import statements
from fedldp.reproduction.claims import PaperClaim
from fedldp.reproduction.comparison import Measurement, ours_of
from fedldp.reproduction.results import MeasurementStore
from fedldp.reproduction.runner import jobs

PAPERS = ("ldp_fl", "ldpfl", "priority", "personalised")
"""The pages; each has a module with its claims."""

NO_CAUSE = "no cause is noted"
"""The string shown for a claim that does not hold and has no explanation."""

_NOWHERE = Path("/nonexistent")
_CORES = 2
"""How many cores the estimated time of a run assumes."""
_HOUR = 60
_WHOLE = 10
"""An estimate of this many hours or more has no decimals."""


def claims_of(paper: str) -> tuple[PaperClaim, ...]:
    """Return a paper's claims in the order of its text.

    Raises:
        ConfigError: there is no such page.
    """
    if paper not in PAPERS:
        raise ConfigError(
            f"paper {paper}: there is no paper of that name; choose {', '.join(PAPERS)}"
        )
    found: tuple[PaperClaim, ...] = import_module(f"fedldp.reproduction.claims.{paper}").CLAIMS
    return found


def claims_table(paper: str) -> str:
    """Return a paper's claims beside our results, with a verdict on each, as a table."""
    lines = ["| place | the paper | ours | verdict |", "|---|---|---|---|"]
    for claim in claims_of(paper):
        ours, verdict = judged(claim)
        lines.append(f"| {claim.place} | {claim.says} | {ours} | {verdict} |")
    return "\n".join(lines) + "\n"


def judged(claim: PaperClaim) -> tuple[str, str]:
    """Return our numbers, and "agrees", "does not: CAUSE", or "not measured: COST"."""
    if claim.cost is not None:
        return "-", f"not measured: {claim.cost}"
    cells = [find_recipe(name.partition("@")[0]) for name in claim.cells]
    known = [_known(name) for name in claim.cells]
    missing = [cell for cell, ours in zip(cells, known, strict=True) if ours is None]
    if missing:
        return "-", f"not measured: {_cost(missing)}"
    measured = [ours for ours in known if ours is not None]
    numbers = claim.derive([100 * ours.mean for ours in measured])
    shown = claim.ours.format(*numbers)
    ordered = all(_is_above(measured, *groups) for groups in claim.above)
    level = not any(_is_above(measured, *groups) for groups in claim.not_above)
    if claim.holds(numbers) and ordered and level:
        return shown, "agrees"
    return shown, f"does not: {claim.cause or NO_CAUSE}"


def proven_table(names: str) -> str:
    """Return the claims of some recipes, and the guarantees of their statements, as a table.

    Args:
        names: the names of recipes, separated by spaces.
    """
    lines = [
        "| recipe | protected | against | epsilon | delta | true epsilon is at least |",
        "|---|---|---|---|---|---|",
    ]
    for name in names.split():
        config = find_recipe(name).config
        lines += [f"| `{name}` | {line}" for line in _lines(statements.statement_of(config))]
    return "\n".join(lines) + "\n"


def _lines(statement: dict[str, Any]) -> list[str]:
    claim, found = statement["claim"], []
    if claim is not None:
        delta = f"{claim['delta']:g}"
        found.append(
            f"{claim['unit']}, **claimed** | | **{number(claim['epsilon'])}** | {delta} | |"
        )
    for line in statement["guarantees"]:
        idealised = ", idealised" if IDEALISED in line["assumptions"] else ""
        start = f"{line['unit']}{idealised} | {line['adversary']}"
        if line["epsilon"] is None:
            found.append(f"{start} | none | | |")
            continue
        lower = "" if line["lower"] is None else number(line["lower"], up=False)
        found.append(f"{start} | {number(line['epsilon'])} | {line['delta']:g} | {lower} |")
    return found


def _known(name: str) -> Measurement | None:
    """Return a recipe's committed result after its last round, or after round 5 for ``name@5``."""
    recipe, _, after = name.partition("@")
    ours = ours_of(find_recipe(recipe), MeasurementStore(_NOWHERE), _NOWHERE, None)
    if ours is None or not after:
        return ours
    mean, deviation = ours.after[int(after)]
    return replace(ours, mean=mean, deviation=deviation)


def _is_above(measured: Sequence[Measurement], upper: Sequence[int], lower: Sequence[int]) -> bool:
    """Return whether a group's mean exceeds another's by more than the seeds' standard error."""
    gap = variance = 0.0
    for group, sign in ((upper, 1), (lower, -1)):
        for place, times in Counter(group).items():
            ours, share = measured[place], times / len(group)
            gap += sign * ours.mean * share
            variance += (ours.deviation or 0.0) ** 2 / len(ours.seeds) * share**2
    return gap > math.sqrt(variance)


def _cost(cells: Sequence[Recipe]) -> str:
    """Return the estimated time on one core to run some recipes with one seed each."""
    todo = jobs(cells, range(1), MeasurementStore(_NOWHERE), _NOWHERE, "cpu")
    minutes = _CORES * sum(job.seconds for job in todo) / 60
    hours = minutes / 60
    if minutes < _HOUR:
        return f"{math.ceil(minutes)} CPU minutes"
    return f"{hours:.1f} CPU hours" if hours < _WHOLE else f"{hours:.0f} CPU hours"
