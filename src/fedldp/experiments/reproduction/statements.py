"""The statements of recipes, for pages and for what claims compute."""

from __future__ import annotations

import math
from pathlib import Path

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.formatting import number
from fedldp.simulation.plan import plan, problem_of

_NOWHERE = Path("/nonexistent")


def statement_of(config: RunConfig) -> Statement:
    """Return the statement of a configuration, before any training and without data."""
    return plan(config, problem_of(config, _NOWHERE)).privacy


class StatementEngine:
    """What a function in a paper's ``claims.py`` is handed, so that it imports nothing above it."""

    def problem(self, config: RunConfig) -> Problem:
        """Return a configuration's problem, without data."""
        return problem_of(config, _NOWHERE)

    def lines(self, config: RunConfig, unit: str, adversary: str) -> list[Guarantee]:
        """Return the lines of a configuration's statement for a unit and an adversary."""
        lines = statement_of(config).guarantees
        return [line for line in lines if (line.unit, line.adversary) == (unit, adversary)]

    def epsilon(self, recipe: str, unit: str, adversary: str = "server") -> float:
        """Return the least epsilon that is proven for a recipe; infinity if none is."""
        lines = self.lines(find_recipe(recipe).config, unit, adversary)
        found = (line.epsilon for line in lines)
        return min((each for each in found if each is not None), default=math.inf)


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
        lines += [f"| `{name}` | {line}" for line in _lines(statement_of(config))]
    return "\n".join(lines) + "\n"


def _lines(statement: Statement) -> list[str]:
    claim, found = statement.claim, []
    if claim is not None:
        delta = f"{claim.delta:g}"
        found.append(f"{claim.unit}, **claimed** | | **{number(claim.epsilon)}** | {delta} | |")
    for line in statement.guarantees:
        idealised = ", idealised" if line.is_idealised else ""
        start = f"{line.unit}{idealised} | {line.adversary}"
        if line.epsilon is None:
            found.append(f"{start} | none | | |")
            continue
        lower = "" if line.lower is None else number(line.lower, up=False)
        found.append(f"{start} | {number(line.epsilon)} | {line.delta:g} | {lower} |")
    return found
