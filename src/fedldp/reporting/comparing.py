"""Comparisons of the settings of finished runs, and the command that repeats a run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedldp.algorithms.recipes import find_recipe
from fedldp.algorithms.systems import with_left_out
from fedldp.core.errors import ConfigError
from fedldp.reporting.runs import FinishedRun

TRAINING = ("dataset", "label_column", "standardise", "partition", "num_examples", "num_clients",
            "clients_per_round", "rounds", "model", "local_epochs", "batch_size", "learning_rate",
            "seed", "server_optimizer", "server_rate", "server_momentum", "average",
            "class_weights")  # fmt: skip
"""The settings that a noise-free twin shares with a run."""

LONGEST_COMMAND = 2000
_MISSING = object()


def differing(runs: Sequence[FinishedRun]) -> dict[str, list[Any]]:
    """Return the settings that differ, with each run's value; None where a run lacks one."""
    configs = [with_left_out(run.summary["config"]) for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    return {
        name: [config.get(name) for config in configs]
        for name in names
        if any(config.get(name, _MISSING) != configs[0].get(name, _MISSING) for config in configs)
    }


def twin_of(run: FinishedRun, runs: Sequence[FinishedRun]) -> FinishedRun | None:
    """Return the run among ``runs`` that trains like ``run`` but without noise, if there is one."""
    if run.summary["system"] == "fedavg":
        return None

    def training(one: FinishedRun) -> list[Any]:
        config = with_left_out(one.summary["config"])
        return [one.own_data, *(config.get(name) for name in TRAINING)]

    twins = [one for one in runs if one.summary["system"] == "fedavg"]
    return next((one for one in twins if training(one) == training(run)), None)


def command(run: FinishedRun) -> str | None:
    """Return the shell command that repeats a run; None if a recipe and settings cannot express it.

    No command repeats a run of real sites, or a run on arrays that were passed from Python. None is
    given for the recipe of another package either, because its settings are known only to its code.
    """
    summary = run.summary
    if summary["recipe"] is None or summary["seed"] is None:
        return None
    if run.own_data is not None and not Path(str(summary["config"].get("dataset"))).suffix:
        return None
    try:
        recipe = find_recipe(summary["recipe"], installed=False).config
    except ConfigError:
        return None
    base = json.loads(json.dumps(recipe.every_setting()))
    config = with_left_out(summary["config"])
    if base.keys() != config.keys():
        return None
    changes = {key: value for key, value in config.items() if value != base[key]}
    words = ["fedldp", "run", summary["recipe"]]
    for key in ("rounds", "seed"):
        if key in changes:
            words += [f"--{key}", str(changes.pop(key))]
    for key, value in changes.items():
        words += ["--set", f"{key}={_toml(value)}"]
    line = shlex.join(words)
    return line if len(line) <= LONGEST_COMMAND else None


def _toml(value: Any) -> str:
    """Return a setting in the form that ``--set`` reads: TOML, with plain words unquoted."""
    if value is None:
        return ""
    if isinstance(value, dict):
        parts = (f"{json.dumps(k)} = {_toml_inner(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(parts) + "}"
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w.:/-]*", value)
    return value if plain and value not in ("true", "false", "inf", "nan") else _toml_inner(value)


def _toml_inner(value: Any) -> str:
    if isinstance(value, dict):
        return _toml(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_inner, value)) + "]"
    return json.dumps(value)
