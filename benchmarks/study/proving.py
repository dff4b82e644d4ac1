"""Configurations at a given epsilon, and what the statement really proves of them."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.study.contestants import BY_NAME, RATE, Contestant, Try
from benchmarks.study.tasks import TASKS
from fedldp.accounting.guarantees import IDEALISED, Adversary
from fedldp.accounting.solve import solve
from fedldp.data import Dataset
from fedldp.errors import ConfigError, FedldpError
from fedldp.simulation.plan import plan, problem_with
from fedldp.systems import Problem, SystemConfig

DELTA = 1e-5
_BUDGETS = ("epsilon", "alpha", "noise_multiplier")
"""Settings that a target is solved by; a system has one of them."""

_budgets: dict[tuple[str, Problem], dict[str, float]] = {}
_COARSE = 1e-3
"""Relative precision of a budget whose statement takes a second."""


class StudyError(FedldpError):
    """What may not stand in the study's results."""


@dataclass(frozen=True)
class Cell:
    """What is compared: one system, at one epsilon.

    Attributes:
        task: a name of ``TASKS``.
        clients: how many.
        contestant: a name of ``BY_NAME``.
        epsilon: for all that one client sends in its run, at delta 1e-5; 0 where nothing is proven.
    """

    task: str
    clients: int
    contestant: str
    epsilon: float

    @property
    def system(self) -> Contestant:
        """The system."""
        return BY_NAME[self.contestant]


@dataclass(frozen=True)
class Proven:
    """The client-run line of a statement that says most at delta 1e-5.

    Attributes:
        epsilon: of it.
        delta: of it.
        idealised: whether it is for real numbers, and so for simulation only.
        method: how it is proven.
    """

    epsilon: float
    delta: float
    idealised: bool
    method: str


def configuration(cell: Cell, attempt: Try, seed: int) -> SystemConfig:
    """Return a cell's configuration, with a target in place of a budget.

    Raises:
        ConfigError: the settings do not go together.
    """
    task, system = TASKS[cell.task], cell.system
    config = system.make(
        {
            "dataset": task.dataset,
            "model": task.model,
            "num_clients": cell.clients,
            "rounds": attempt.rounds,
            "learning_rate": system.rate * attempt.rate,
            "delta": DELTA,
            "seed": seed,
        },
        attempt.reach,
    )
    if not system.noisy:
        return config
    return config.changed(
        target={
            "unit": "client-run",
            "epsilon": cell.epsilon,
            "delta": DELTA,
            "adversary": system.against,
        }
    )


@functools.cache
def digest(cell: Cell, attempt: Try, seed: int, data: str) -> str:
    """Return a digest of all that decides a run: its full configuration, and which data it has.

    A setting with its default is left out, so that a new setting makes no run worthless;
    ``SystemConfig.semantics`` rises where a default or its meaning changes.
    """
    settings: dict[str, Any] = {"cell": asdict(cell), "data": data}
    try:
        config = configuration(cell, attempt, seed)
    except ConfigError:  # that is then what the run's line says
        settings |= {"try": asdict(attempt), "seed": seed}
    else:
        settings |= {"semantics": config.semantics, "seed": seed}
        settings["config"] = config.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def solved(cell: Cell, config: SystemConfig, data: Dataset) -> SystemConfig:
    """Return a configuration whose budget meets the cell's epsilon, and without a target.

    The budget does not depend on the learning rate or the seed, and is solved for once for all.

    Raises:
        ConfigError: no budget meets it, or the settings do not go together.
    """
    if config.target is None:
        return config
    alike = config.changed(learning_rate=RATE, seed=0)
    problem = problem_with(config, data, None)
    key = (alike.model_dump_json(), problem)
    if key not in _budgets:
        try:
            fast = cell.system.fast_to_state
            found = plan(alike, problem).config if fast else _coarsely_solved(alike, problem)
        except ConfigError:
            plan(alike.changed(target=None), problem)  # where no budget would do, it says why
            raise
        _budgets[key] = {name: getattr(found, name) for name in _BUDGETS if hasattr(found, name)}
    return config.changed(target=None, **_budgets[key])


def _coarsely_solved(config: SystemConfig, problem: Problem) -> SystemConfig:
    """Return ``config`` with the largest budget that meets its target, to a thousandth."""
    target = config.target
    assert target is not None
    free = config.changed(target=None)

    def reached(budget: float) -> float:
        try:
            privacy = plan(free.with_budget(budget), problem).privacy
            return proven(privacy, target.adversary).epsilon
        except ConfigError:
            return math.inf

    low = 1e-3
    while reached(2 * low) <= target.epsilon:
        low *= 2
    return free.with_budget(solve(reached, target.epsilon, low, 2 * low, _COARSE))


def proven(privacy: dict[str, Any], adversary: Adversary) -> Proven:
    """Return what a statement proves of a client's run.

    Raises:
        ConfigError: nothing; the line says why.
    """
    lines = [
        line
        for line in privacy["guarantees"]
        if (line["unit"], line["adversary"]) == ("client-run", adversary) and line["delta"] <= DELTA
    ]
    real = [line for line in lines if IDEALISED not in line["assumptions"]] or lines
    known = [line for line in real if line["epsilon"] is not None]
    if not known or len(known) < len(real):
        why = "; ".join(line["method"] for line in real) or "the statement has no such line"
        raise ConfigError(f"no guarantee for a client's run against the {adversary}: {why}")
    best = min(known, key=lambda line: float(line["epsilon"]))
    idealised = IDEALISED in best["assumptions"]
    return Proven(float(best["epsilon"]), float(best["delta"]), idealised, best["method"])


def checked(cell: Cell, privacy: dict[str, Any]) -> Proven:
    """Return what is proven of a run of a cell, which must be no more than its label.

    Raises:
        StudyError: it is more.
        ConfigError: nothing is proven.
    """
    found = proven(privacy, cell.system.against)
    if not found.epsilon <= cell.epsilon or found.delta > DELTA:
        raise StudyError(
            f"{cell.contestant} on {cell.task}, {cell.clients} clients: its statement proves "
            f"epsilon {found.epsilon!r} at delta {found.delta:g}, above its label {cell.epsilon:g}"
        )
    return found
