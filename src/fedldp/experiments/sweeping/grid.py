"""The design of a sweep (recipes, values of settings, seeds), and the runs that follow from it."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import file_of
from fedldp.core.errors import ConfigError, FedldpError, one_line
from fedldp.core.registry import is_address
from fedldp.data import Dataset, is_own_file, resolve_data_dir
from fedldp.data.folder import locate
from fedldp.data.sources import find_source
from fedldp.experiments.own import code_of
from fedldp.experiments.runs import PlannedRun
from fedldp.experiments.seeds import check_seeds
from fedldp.experiments.store import Config
from fedldp.simulation.identity import data_digests, digest_of_data, run_digest
from fedldp.simulation.settings import check_setting, nested, value_of

MOST_RUNS = 100_000


@dataclass(frozen=True)
class Design:
    """The design of a sweep.

    Attributes:
        bases: the configurations to vary, by recipe name.
        settings: the changes that apply to all of them, by dotted name.
        grid: the values of each varying setting, by dotted name.
        seeds: the seeds with which every combination runs.
        device: where models are trained.
        own_data: a description of the user's own data, if they were given as arrays.
    """

    bases: Mapping[str, Config]
    settings: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]
    device: str = "cpu"
    own_data: str | None = None

    def __post_init__(self) -> None:
        for key in [*self.settings, *self.grid]:
            if key == "seed":
                raise ConfigError("seed: give a sweep's seeds as --seeds 0-4 (Python: seeds=...)")
            check_setting(self.bases.values(), key)
        for key, values in self.grid.items():
            if key in self.settings:
                raise ConfigError(
                    f"{key}: it is given both for all runs and in the grid; leave one out"
                )
            if not values:
                raise ConfigError(f"grid {key}: there are no values; give at least one")
        check_seeds(self.seeds)
        if self.device not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"device = {self.device}: choose auto, cpu or cuda")
        combinations = len(self.bases) * len(self.seeds)
        for values in self.grid.values():
            combinations *= len(values)
        if combinations > MOST_RUNS:
            raise ConfigError(
                f"grid: {combinations:,} runs; give values and seeds for at most {MOST_RUNS:,}"
            )

    def lacking(self) -> dict[str, list[str]]:
        """Return the settings that each recipe lacks and runs without, by recipe."""
        found = {
            name: [key for key in [*self.settings, *self.grid] if not config.has(key)]
            for name, config in self.bases.items()
        }
        return {name: keys for name, keys in found.items() if keys}


def in_words(settings: Mapping[str, Any]) -> str:
    """Return a cell's settings in words."""
    rest = [f"{key}={shown(value)}" for key, value in settings.items() if key != "recipe"]
    return " ".join([str(settings["recipe"]), *rest])


def shown(value: Any) -> str:
    """Return a setting's value as a user writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def runs_of(design: Design, data_dir: Path | None, given: Dataset | None) -> list[PlannedRun]:
    """Return the runs of a sweep; a run that is refused before training carries the reason.

    Their labels are "recipe", "settings" (what identifies the run's cell in the table: the recipe,
    and the grid's settings) and "seed".

    Args:
        design: the design of the sweep.
        data_dir: the data folder.
        given: the data, if they are given, so that no data files are read.

    Raises:
        ConfigError: all runs are refused, or two runs are the same.
    """
    names = {each.dataset for each in design.bases.values()} | {*design.grid.get("dataset", ())}
    known: dict[Any, Any] = {}

    def once(find: Callable[..., Any], config: RunConfig, *of: Any) -> Any:
        """Return what is found for a configuration; it is found only once for the same values."""
        if (find, of) not in known:
            known[find, of] = find(config)
        return known[find, of]

    def missing(config: RunConfig) -> str | None:
        if given is not None or is_own_file(config.dataset):
            return None
        try:
            locate(find_source(config.dataset), resolve_data_dir(data_dir))
        except FedldpError as error:
            return one_line(error)
        return None

    def digest_of(config: RunConfig) -> str:
        if given is not None:
            return digest_of_data(given, config, data_dir)
        # Of own tables nothing is known but their paths, if there are several.
        path = f" {config.dataset}" if len(names) > 1 and is_own_file(config.dataset) else ""
        return data_digests(config, resolve_data_dir(data_dir))[0] + path

    def planned(
        base: RunConfig, labels: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> PlannedRun:
        words = f"{in_words(labels['settings'])} seed {labels['seed']}"
        try:
            config = base.changed(**changes)
            refused = once(missing, config, config.dataset)
        except FedldpError as error:
            refused = one_line(error)
        if refused is not None:
            return PlannedRun(
                digest=words, words=words, labels=labels, config=None, refused=refused
            )
        texts = (each for each in config.model_dump().values() if isinstance(each, str))
        own = tuple(text for text in texts if is_address(text) or file_of(text) is not None)
        code = once(code_of, config, *own)
        data = once(digest_of, config, config.dataset, getattr(config, "public_dataset", None))
        digest = run_digest(config, data, code=code, device=design.device)
        place = _folder_of(labels, config, code)
        return PlannedRun(digest=digest, words=words, labels=labels, config=config, place=place)

    found: dict[tuple[str, str], PlannedRun] = {}
    for name, base in design.bases.items():
        settings = {k: v for k, v in design.settings.items() if base.has(k)}
        keys = [key for key in design.grid if base.has(key)]
        for values in product(*(design.grid[key] for key in keys)):
            cell = dict(zip(keys, values, strict=True))
            for seed in design.seeds:
                changes = nested([*settings.items(), *cell.items(), ("seed", seed)], base)
                labels = {"recipe": name, "settings": {"recipe": name, **cell}, "seed": seed}
                run = planned(base, labels, changes)
                other = found.setdefault((name, run.digest), run)
                if other is not run:
                    raise ConfigError(
                        f"grid: {other.words} and {run.words} are the same configuration; leave "
                        "one out"
                    )
    runs = list(found.values())
    if all(run.refused is not None for run in runs):
        raise ConfigError(f"{runs[0].refused}")
    return runs


def _folder_of(labels: Mapping[str, Any], config: RunConfig, code: str) -> str:
    """Return a run's folder name: readable, and different for every configuration and own code."""
    whole = [labels["recipe"], config.identity(), *([code] if code else [])]
    document = json.dumps(whole, sort_keys=True)
    digest = hashlib.sha256(document.encode()).hexdigest()[:12]
    words = [Path(labels["recipe"]).stem]
    words += [f"{k}={shown(v)}" for k, v in labels["settings"].items() if k != "recipe"]
    text = re.sub(r"[^A-Za-z0-9.=]+", "_", "-".join(words))[:80].strip("._")
    return f"{text}-seed{labels['seed']}-{digest}"


def read_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of each setting from strings such as "epsilon=1,2,4".

    Each value is read as TOML, or else as a string. A comma within brackets or quotes does not
    separate values.

    Raises:
        ConfigError: a string does not have this form, or names a setting twice.
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals or not key or not rest.strip():
            raise ConfigError(f"grid {text}: write it as KEY=V1,V2,...")
        if key in found:
            raise ConfigError(f"grid {text}: {key} occurs twice; give all its values at once")
        found[key] = _values(rest, text)
    return found


def _values(listed: str, text: str) -> list[Any]:
    """Return listed values; strings without quotes go with plain values only."""
    try:
        found: list[Any] = tomllib.loads(f"values = [{listed}]")["values"]
    except (ValueError, RecursionError):
        if set(listed) & set("[]{}\"'"):
            raise ConfigError(
                f"grid {text}: a bracket or a quote is not closed, or a string beside one has no "
                "quotes; close it, or write strings in quotes"
            ) from None
        found = [value_of(piece.strip()) for piece in listed.split(",")]
        if "" in found:
            raise ConfigError(f"grid {text}: a value is empty; write it as KEY=V1,V2,...") from None
    return found
