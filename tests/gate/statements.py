"""A recipe before any training: its statement, and its configuration as clients get it and as it is
kept."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe, recipes
from fedldp.simulation.plan import Plan, plan, problem_of
from fedldp.simulation.result import run_name
from fedldp.simulation.settings import resolve
from gate.golden import FOLDER, as_read, one_core, read

STATEMENTS = FOLDER / "statements"
NO_DATA = FOLDER / "no-data-here"
"""A missing data folder: the reader's own might contain a replacement for a data set."""


def path_of(system: str) -> Path:
    """Return the file with the recipes of a system."""
    return STATEMENTS / f"{system}.json"


def by_system() -> dict[str, list[str]]:
    """Return the names of all recipes by their system, both sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(recipes()):
        found.setdefault(find_recipe(name).config.system, []).append(name)
    return dict(sorted(found.items()))


def of_recipe(name: str) -> dict[str, Any]:
    """Return the document of a recipe.

    run: the name of the run, a hash of its configuration, which ledgers, stores and checkpoints
    use. config: what that hash takes of the configuration.
    told: what client 0 is told: its differences from config, and the digest of all of it. The same
        for the next and the last client, if they are told something else.
    statement: its kinds and numbers, as JSON without words.
    """
    config = find_recipe(name).config
    key = json.dumps(config.identity())
    if key not in _made:
        _made[key] = _of(resolve(name))
    run, kept, told, statement = _made[key]
    return {"run": run, "config": kept, "told": told, "statement": statement}


_made: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {}
"""Cached by configuration, because recipes have second names."""


def recorded_statement(config: RunConfig, problem: object = None) -> Statement:
    """Return the recorded statement of a recipe's configuration.

    For tests of what is made from statements; another test checks that the records are right.
    """
    return _recorded()[json.dumps(config.identity())]


@cache
def _recorded() -> dict[str, Statement]:
    return {
        json.dumps(find_recipe(name).config.identity()): Statement.from_json(document["statement"])
        for system, names in by_system().items()
        for name, document in read(path_of(system))["recipes"].items()
        if name in names
    }


def _of(config: RunConfig) -> tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]:
    with one_core():
        planned = plan(config, problem_of(config, NO_DATA))
    kept = as_read(planned.config.identity())
    return (
        run_name(planned.config, None),
        kept,
        _told(planned, kept),
        as_read(planned.privacy.to_json()),
    )


def _told(planned: Plan, kept: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for client in (0, 1, planned.config.num_clients - 1):
        told = as_read(planned.scheduled.for_client(client).identity()["settings"])
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
        settings = kept["settings"]
        changes = {key: each for key, each in told.items() if each != settings.get(key, settings)}
        if digest not in {each["digest"] for each in found.values()}:
            found[str(client)] = {**changes, "digest": digest}
    return found
