"""Which composition did best among many clients: measured cells of the study, by whom is trusted.

``benchmarks/fleet_advice.py`` makes the file from the study's tables. Every cell was measured at an
equal guarantee for all that a client sends, with the same number of tries for each contestant.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from fedldp.accounting.guarantees import Adversary
from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Doubt, Fact
from fedldp.core.kinds import BETTER_KNOWN

FILE = "fleet.json"

_ALMOST = 1.001
"""A run that was calibrated to an epsilon may state a little less."""

_DELTA = 1e-5
"""The delta of every cell's epsilon."""

_FEWEST = 50
"""With fewer clients, sites with many rows each, the study's cells say nothing."""


@dataclass(frozen=True)
class FleetCell:
    """The best measured composition of one cell.

    Attributes:
        data: the data set.
        clients: the number of clients.
        examples: the number of examples of each, rounded down.
        adversary: against whom epsilon holds.
        epsilon: epsilon for all that a client sends in the run, at delta 1e-5.
        accuracy: the mean accuracy on the test set.
        seeds: the number of seeds.
        settings: the settings of the composition, with hyperparameters that were chosen on other
            clients.
        conditions: what epsilon rests on, and the warnings of the run's statement.
    """

    data: str
    clients: int
    examples: int
    adversary: Adversary
    epsilon: float
    accuracy: float
    seeds: int
    settings: Mapping[str, Any] = field(hash=False)
    conditions: tuple[Fact, ...]

    @property
    def proven(self) -> Proven:
        """The epsilon with all that it depends on."""
        return Proven(
            epsilon=self.epsilon,
            delta=_DELTA,
            unit="client-run",
            adversary=self.adversary,
            conditions=self.conditions,
        )

    @property
    def features(self) -> str | None:
        """The public features that it needs; None if it takes the data as they are."""
        found: str | None = self.settings.get("features")
        return found

    @property
    def where(self) -> str:
        """The cell in words."""
        return f"{self.data} among {self.clients:,} clients of {self.examples:,} examples"

    def distance(self, clients: int, examples: int | None) -> float:
        """Return how far a fleet's shape is from this cell's, on a logarithmic scale."""
        found = abs(math.log(clients / self.clients))
        return found + (0 if examples is None else abs(math.log(examples / self.examples)) / 2)


@cache
def cells() -> Sequence[FleetCell]:
    """Return all measured cells."""
    text = files("fedldp.algorithms").joinpath(FILE).read_text(encoding="utf-8")
    return tuple(
        FleetCell(**{**each, "conditions": tuple(map(Fact.from_json, each["conditions"]))})
        for each in json.loads(text)
    )


def nearest(clients: int, examples: int | None) -> list[FleetCell]:
    """Return the cells of the nearest shape, by adversary and epsilon.

    Args:
        clients: the number of clients n.
        examples: the number of examples that each has; None if it is not public.

    Raises:
        ConfigError: there are too few clients for these cells to say anything.
    """
    if clients < _FEWEST or (examples is not None and examples < 1):
        raise ConfigError(
            f"fleet: n = {clients} and per = {examples}: give at least {_FEWEST} clients with at "
            "least 1 example each; for fewer sites, fedldp advise takes a table"
        )
    least = min(each.distance(clients, examples) for each in cells())
    return [each for each in cells() if each.distance(clients, examples) < least + 1e-9]


def better(
    config: RunConfig, privacy: Statement, examples: int | None, has_learned: bool
) -> Doubt | None:
    """Return what did better at no weaker a guarantee, for a run that has learned nothing.

    Args:
        config: the run's configuration.
        privacy: its statement.
        examples: the number of examples of each client; None if it is not public.
        has_learned: whether the model is better than guessing.
    """
    if has_learned or config.num_clients < _FEWEST:
        return None
    mine = getattr(config, "mechanism", None)
    sizes: dict[str, float] = {}
    for line in privacy.guarantees:
        covers = line.unit == "client-run" and line.delta >= _DELTA  # else a cell promises less
        if covers and line.epsilon is not None:
            before = sizes.get(line.adversary, math.inf)
            sizes[line.adversary] = min(line.epsilon, before)
    found = [
        each
        for each in nearest(config.num_clients, examples)
        if each.features is None
        and each.settings["mechanism"] != mine
        and each.epsilon <= sizes.get(each.adversary, 0) * _ALMOST
    ]
    if not found:
        return None
    best = max(found, key=lambda each: each.accuracy)
    return BETTER_KNOWN(
        mechanism=best.settings["mechanism"],
        accuracy=best.accuracy,
        data=best.data,
        clients=best.clients,
        epsilon=best.epsilon,
        delta=_DELTA,
        adversary=best.adversary,
    )
