"""The design of a sweep (recipes, values of settings, seeds), and the runs that follow from it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.data import resolve_data_dir
from fedldp.data.custom import SUFFIXES
from fedldp.data.folder import locate
from fedldp.data.sources import find_source
from fedldp.simulation.settings import nested, value_of

MOST_RUNS = 100_000
MOST_SEEDS = 10_000


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

    bases: Mapping[str, RunConfig]
    settings: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]
    device: str = "cpu"
    own_data: str | None = None

    def __post_init__(self) -> None:
        for key in [*self.settings, *self.grid]:
            if key == "seed":
                raise ConfigError("seed: give a sweep's seeds as --seeds 0-4 (Python: seeds=...)")
            if all(not _has(config, key) for config in self.bases.values()):
                config = next(iter(self.bases.values()))
                config.changed(**nested([(key, None)]))  # raises an error that lists the settings
        for key, values in self.grid.items():
            if key in self.settings:
                raise ConfigError(
                    f"{key}: it is given both for all runs and in the grid; leave one out"
                )
            if not values:
                raise ConfigError(f"grid {key}: there are no values; give at least one")
        _check_seeds(self.seeds)
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
            name: [key for key in [*self.settings, *self.grid] if not _has(config, key)]
            for name, config in self.bases.items()
        }
        return {name: keys for name, keys in found.items() if keys}


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        recipe: the recipe's name.
        settings: what identifies the run's cell in the table: "recipe", and the grid's settings.
        seed: the seed of the run.
        config: the run's configuration, or None if it is refused.
        refused: why it is refused, on one line.
    """

    recipe: str
    settings: Mapping[str, Any]
    seed: int
    config: RunConfig | None
    refused: str | None = None

    @property
    def folder(self) -> str:
        """The name of the run's folder: readable, and different for every configuration."""
        assert self.config is not None
        document = json.dumps([self.recipe, self.config.identity()], sort_keys=True)
        digest = hashlib.sha256(document.encode()).hexdigest()[:12]
        words = [Path(self.recipe).stem]
        words += [f"{k}={shown(v)}" for k, v in self.settings.items() if k != "recipe"]
        text = re.sub(r"[^A-Za-z0-9.=]+", "_", "-".join(words))[:80].strip("._")
        return f"{text}-seed{self.seed}-{digest}"

    @property
    def label(self) -> str:
        """The settings and the seed of the run, in words."""
        return f"{in_words(self.settings)} seed {self.seed}"


def in_words(settings: Mapping[str, Any]) -> str:
    """Return a cell's settings in words."""
    rest = [f"{key}={shown(value)}" for key, value in settings.items() if key != "recipe"]
    return " ".join([str(settings["recipe"]), *rest])


def shown(value: Any) -> str:
    """Return a setting's value as a user writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def jobs(design: Design, data_dir: Path | None, *, given_data: bool = False) -> list[Job]:
    """Return the runs of a sweep; a run that is refused before training carries the reason.

    Args:
        design: the design of the sweep.
        data_dir: the data folder.
        given_data: whether the data are given, so that no data files are read.

    Raises:
        ConfigError: all runs are refused, or two runs are the same.
    """
    found, missing = [], _Missing(None if given_data else [data_dir])
    for name, base in design.bases.items():
        settings = {k: v for k, v in design.settings.items() if _has(base, k)}
        keys = [key for key in design.grid if _has(base, key)]
        for values in product(*(design.grid[key] for key in keys)):
            cell = dict(zip(keys, values, strict=True))
            for seed in design.seeds:
                changes = nested([*settings.items(), *cell.items(), ("seed", seed)], base)
                found.append(_job(name, base, {"recipe": name, **cell}, changes, seed, missing))
    if all(job.refused is not None for job in found):
        raise ConfigError(f"{found[0].refused}")
    _check_different(found)
    return found


class _Missing:
    """Searches for the files of data sets, once per data set."""

    def __init__(self, data_dirs: Sequence[Path | None] | None) -> None:
        self._data_dirs = data_dirs
        self._known: dict[str, str | None] = {}

    def reason(self, dataset: str) -> str | None:
        if self._data_dirs is None or dataset.lower().endswith(SUFFIXES):
            return None
        if dataset not in self._known:
            try:
                locate(find_source(dataset), resolve_data_dir(self._data_dirs[0]))
                self._known[dataset] = None
            except FedldpError as error:
                self._known[dataset] = one_line(error)
        return self._known[dataset]


def _job(
    name: str,
    base: RunConfig,
    cell: Mapping[str, Any],
    changes: Mapping[str, Any],
    seed: int,
    missing: _Missing,
) -> Job:
    try:
        config = base.changed(**changes)
    except FedldpError as error:
        return Job(name, cell, seed, None, one_line(error))
    reason = missing.reason(config.dataset)
    return Job(name, cell, seed, None if reason else config, reason)


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())


def _check_different(found: Iterable[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in found:
        if job.config is None:
            continue
        key = json.dumps([job.recipe, job.config.identity()], sort_keys=True)
        if key in seen:
            raise ConfigError(
                f"grid: {seen[key].label} and {job.label} are the same configuration; leave one out"
            )
        seen[key] = job


def _has(config: RunConfig, key: str) -> bool:
    return key.split(".")[0] in type(config).model_fields


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
        pieces = list(_pieces(rest, text))
        if not all(pieces):
            raise ConfigError(f"grid {text}: a value is empty; write it as KEY=V1,V2,...")
        found[key] = [value_of(piece) for piece in pieces]
    return found


def _pieces(values: str, text: str) -> Iterator[str]:
    """Yield the strings between those commas that are outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for place, letter in enumerate(values):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and depth == 0:
            yield values[start:place].strip()
            start = place + 1
    if quote or depth:
        raise ConfigError(
            f"grid {text}: a {'quote' if quote else 'bracket'} is not closed; close it"
        )
    yield values[start:].strip()


def read_seeds(text: str) -> list[int]:
    """Return the seeds in a string such as "0-4" or "0,2,5".

    Raises:
        ConfigError: the string does not have this form.
    """
    found: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 <= last - first < MOST_SEEDS:
            raise ConfigError(f"seeds {text}: write them as 0-4, or as 0,2,5")
        found += range(first, last + 1)
    return found


def _check_seeds(seeds: Sequence[int]) -> None:
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds)
    if not seeds or not whole or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds = {list(seeds)}: give one or more different integers from 0")
