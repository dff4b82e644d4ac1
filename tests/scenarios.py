"""Scenarios of attacks on scikit-learn's digits."""

from __future__ import annotations

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.data import Dataset


def scenario_of(
    config: RunConfig, dataset: Dataset | None = None, **more: object
) -> AttackScenario:
    """Return a short scenario, with few examples of each client."""
    given: dict[str, object] = {"seed": 0, "most_examples": 14, "rounds": 1}
    return AttackScenario.of(config, dataset, **(given | more))  # type: ignore[arg-type]


def digits(name: str, **changes: object) -> RunConfig:
    return find_recipe(name).config.changed(**changes)
