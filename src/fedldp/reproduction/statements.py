"""The lines of a recipe's statement, for pages and claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe
from fedldp.simulation.plan import plan, problem_of

_NOWHERE = Path("/nonexistent")


def statement_of(config: RunConfig) -> dict[str, Any]:
    """Return the statement of a configuration, before any training and without data."""
    return plan(config, problem_of(config, _NOWHERE)).privacy


def lines_of(recipe: str, unit: str, adversary: str) -> list[dict[str, Any]]:
    """Return the lines of a recipe's statement for a unit and an adversary."""
    lines = statement_of(find_recipe(recipe).config)["guarantees"]
    return [line for line in lines if (line["unit"], line["adversary"]) == (unit, adversary)]


def least_epsilon(recipe: str, unit: str, adversary: str = "server") -> float:
    """Return the least epsilon that is proven for a recipe; infinity if none is."""
    found = [line["epsilon"] for line in lines_of(recipe, unit, adversary)]
    return min((each for each in found if each is not None), default=math.inf)
