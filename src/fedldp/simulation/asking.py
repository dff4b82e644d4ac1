"""What ``fedldp ask`` runs: a configuration that asks people, and its answers as a document."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.algorithms.answers import TWO_SIDED
from fedldp.algorithms.asking import rounds_to_ask
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.protocol.roles import HALF_WIDTH, PRIVATELY
from fedldp.reporting.record import RunFolder
from fedldp.simulation.settings import assignment, from_mapping, nested

_OF_MODEL = (
    "model", "features", "trainable", "scale_columns", "spread_columns", "centre_columns",
    "categories", "classes", "fill_columns", "other_columns", "fold_columns", "label_column",
    "ignore_columns", "client_column", "person_column", "standardise",
)  # fmt: skip
"""The settings that an evaluation takes from the run whose model it is about."""

_UNUSED = {"system": "person_dp_sgd", "model": "linear", "learning_rate": 1.0}
"""What a file of questions may leave out, because nothing is trained."""


def config_to_ask(
    questions: Path, table: Path | None, model: Path | None, assignments: Sequence[str]
) -> RunConfig:
    """Return the configuration of a run that asks.

    Args:
        questions: a TOML file of settings, with ``ask``.
        table: the table whose people are asked; None for the file's ``dataset``.
        model: the folder of the run whose model is evaluated; None if ``initial`` names its file.
        assignments: "KEY=VALUE" strings, which change settings.

    Raises:
        ConfigError: the file, a setting or the model cannot be used.
    """
    try:
        given = tomllib.loads(questions.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"questions = {questions}: {error}; give a TOML file") from error
    found: dict[str, Any] = {**_UNUSED, **({} if model is None else _of_run(model)), **given}
    if table is not None:
        found["dataset"] = str(table)
    found |= nested([assignment(text) for text in assignments])
    asked = found.get("ask")
    if not isinstance(asked, list) or not asked or not all(isinstance(a, str) for a in asked):
        raise ConfigError(
            f'ask = {asked!r}: give what people are asked, such as ask = ["shares", "age"]; '
            "shares, evaluation, or names of columns"
        )
    return from_mapping({"rounds": sum(rounds_to_ask(asked)), **found})


def _of_run(folder: Path) -> dict[str, Any]:
    config = RunFolder(folder).read_config()["config"]
    found = {name: config[name] for name in _OF_MODEL if config.get(name) is not None}
    return {**found, "initial": str(folder / "model.safetensors")}


def answers_of(metrics: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return private figures as JSON shows them; one that was not seen has no value."""
    found = []
    for name, half in metrics.items():
        if name.endswith(HALF_WIDTH):
            figure = name.removesuffix(HALF_WIDTH)
            value = metrics.get(figure)
            found.append(
                {
                    "question": figure.removeprefix(PRIVATELY),
                    "value": value,
                    "deviation": half / TWO_SIDED,
                    "interval": None if value is None else [value - half, value + half],
                    "seen": value is not None,
                }
            )
    return found
