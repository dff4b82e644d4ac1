"""The configuration that ``fedldp ask`` runs, and the settings that follow from its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedldp.algorithms.asking import QUANTILES, SHARE_OF_CLASS, SHARES_OF_CLASSES, rounds_to_ask
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings_docs import key_text, value_text
from fedldp.core.errors import ConfigError
from fedldp.data import is_own_file
from fedldp.reporting.record import RunFolder, read_schema
from fedldp.reporting.scores import answers_of
from fedldp.simulation.plan import divided, problem_of
from fedldp.simulation.settings import (
    assignment,
    beside,
    from_mapping,
    nested,
    settings_in,
    with_clients,
)

_OF_MODEL = (
    "model", "features", "trainable", "scale_columns", "spread_columns", "centre_columns",
    "categories", "classes", "fill_columns", "other_columns", "fold_columns", "label_column",
    "ignore_columns", "client_column", "person_column", "persons_at_sites", "standardise",
    "label_range",
)  # fmt: skip
"""The settings that an evaluation takes from the run whose model it is about."""

_UNUSED = {"system": "person_dp_sgd", "model": "linear", "learning_rate": 1.0}
"""What a file of questions may leave out, because nothing is trained."""

_NO_ROW = "no row is read; give, from public knowledge and approximate if need be"

_QUARTILES_APART = 1.349
"""The distance between the quartiles of a normal distribution, in standard deviations."""


def config_to_ask(
    questions: Path,
    table: Path | None,
    model: Path | None,
    assignments: Sequence[str],
    *,
    read: bool = True,
) -> RunConfig:
    """Return the configuration of a run that asks.

    Args:
        questions: a TOML file of settings, with ``ask``.
        table: the table whose people are asked; None for the file's ``dataset``.
        model: the folder of the run whose model is evaluated; None if ``initial`` names its file.
        assignments: "KEY=VALUE" strings, which change settings.
        read: whether the table is read, to count its clients if their number is not set.

    Raises:
        ConfigError: the file, a setting or the model cannot be used.
    """
    given = beside(questions, settings_in(questions, "questions"))
    found: dict[str, Any] = {**_UNUSED, **({} if model is None else _of_run(model)), **given}
    if table is not None:
        found["dataset"] = str(table)
    found |= nested(map(assignment, assignments), found)
    asked = found.get("ask")
    if not isinstance(asked, list) or not asked or not all(isinstance(a, str) for a in asked):
        raise ConfigError(
            f'ask = {asked!r}: give what people are asked, such as ask = ["shares", "age"]; '
            "shares, evaluation, or names of columns"
        )
    if read:
        found = with_clients(found)
    elif found.get("client_column") and "num_clients" not in found:
        raise ConfigError(f"client_column: {_NO_ROW}: num_clients = NUMBER")
    return from_mapping({"rounds": sum(rounds_to_ask(asked)), "num_clients": 1, **found})


def problem_to_ask(
    config: RunConfig, people: int | None, model: Path | None, data_dir: Path | None
) -> Problem:
    """Return the public facts about people who will be asked, without reading any row.

    Args:
        config: the configuration of a run that asks.
        people: about how many people there are; None for a built-in data set, whose rows are known.
        model: the folder of the run whose model is evaluated, if any.
        data_dir: the data folder.

    Raises:
        ConfigError: something is not declared that only rows would tell.
    """
    if not is_own_file(config.dataset):
        if people is not None:
            raise ConfigError(
                f"people = {people}: it is known how many rows {config.dataset} has; leave people "
                "out"
            )
        return problem_of(config, data_dir)
    asks: Any = config
    columns, named = config.columns, dict.fromkeys((*asks.ask, *asks.by_columns))
    made = [each for name in named if columns.is_feature(name) for each in columns.made(name)]
    shape: tuple[int, ...] = (max(1, len(made)),)  # a model has inputs, even if it is not used
    classes = len(config.classes or ())
    if model is not None:
        schema = read_schema(model)
        shape, classes = schema.input_shape, schema.num_classes
    classes = classes if columns.label_range is None else 1
    lacks = ["--people NUMBER"] * (people is None) + ["classes = [...]"] * (classes == 0)
    if people is None or lacks:
        raise ConfigError(f"account: {_NO_ROW}: {' and '.join(lacks)}")
    found = Problem(shape, classes, people, data_dir, config.num_clients)
    if columns.client is None:
        found = divided(config, shape, classes, people, data_dir)
    return replace(found, features=tuple(made), people=people if columns.person else None)


def _of_run(folder: Path) -> dict[str, Any]:
    config = RunFolder(folder).read_config()["config"]
    found = {name: config[name] for name in _OF_MODEL if config.get(name) is not None}
    return {**found, "initial": str(folder / "model.safetensors")}


def settings_from(config: RunConfig, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return the settings of later runs that follow from answers, by name.

    These are ``class_shares``, if all shares were seen; ``spread_columns`` from the quartiles of
    numbers: the median, and the spread of a normal distribution with such quartiles; and the
    ``categories`` that were seen, with those that stand for others. Where no category stands for
    others, all that were asked for are kept, because rows with others would be refused.

    Args:
        config: the run that asked.
        metrics: its own metrics.
    """
    answers = answers_of(metrics)
    told: dict[str, float] = {each["question"]: each["value"] for each in answers if each["seen"]}
    found: dict[str, Any] = {}
    for name in dict.fromkeys(getattr(config, "ask", ())):
        quartiles = [f"{level} of {name}" for level in QUANTILES]
        if name == SHARES_OF_CLASSES:
            asked = (each["question"] for each in answers)  # also of single clients
            of_all = (each for each in asked if each.removeprefix(SHARE_OF_CLASS).isdigit())
            shares = [told.get(each, 0.0) for each in of_all]
            if shares and all(0 < share < 1 for share in shares):
                found["class_shares"] = list(map(_short, shares))
        elif declared := config.categories.get(name):
            rest = config.other_columns.get(name)
            seen = [each for each in declared if f"{name}={each}" in told]
            kept = [each for each in declared if rest is None or each in (*seen, rest)]
            if seen:
                found.setdefault("categories", {})[name] = kept
            if seen and rest is not None:
                found.setdefault("other_columns", {})[name] = rest
        elif told.keys() >= set(quartiles):
            low, middle, high = (told[each] for each in quartiles)
            if low < high:
                spread = _short((high - low) / _QUARTILES_APART)
                found.setdefault("spread_columns", {})[name] = [_short(middle), spread]
    return found


def lines_of(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as lines of TOML, which may stand anywhere before a file's first table."""
    found = []
    for setting, given in settings.items():
        if isinstance(given, Mapping):
            found += [f"{setting}.{key_text(n)} = {value_text(each)}" for n, each in given.items()]
        else:
            found.append(f"{setting} = {value_text(given)}")
    return found


def _short(value: float) -> float:
    """Return a figure with 4 significant digits; its interval is wider than what is cut off."""
    return float(f"{value:.4g}")
