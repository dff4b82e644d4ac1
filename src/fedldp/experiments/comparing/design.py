"""The design of `fedldp compare`, read from the user's input, and a contestant's default tries."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, cast

from pydantic_core import PydanticUndefined

from fedldp.accounting.guarantees import unit_and_adversary
from fedldp.algorithms.bounds import InRange
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import find_system
from fedldp.algorithms.validation import shown
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import SMALLEST_DELTA
from fedldp.data import Dataset
from fedldp.experiments.comparing.comparison import Cell, Comparison, Contestant, Try
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.runs import Task, read_seeds
from fedldp.experiments.store import Config
from fedldp.experiments.table import metrics_for
from fedldp.simulation.plan import dataset_of, problem_with
from fedldp.simulation.settings import check_setting, from_mapping, named, nested

Recipe = str | Path | RunConfig
"""A recipe's name, the path of a TOML file, or a configuration."""

TRIES, MOST_TRIES, DELTA = 8, 100, 1e-5
SEEDS, SEEDS_OF_SMALL = range(3), range(10)
"""The seeds that are measured, and the seeds at an epsilon of 1 or less."""

SHARED = (
    "dataset", "test_file", "label_column", "client_column", "person_column", "ignore_columns",
    "scale_columns", "spread_columns", "centre_columns", "fill_columns", "categories",
    "other_columns", "fold_columns", "classes", "label_range", "standardise", "partition",
    "num_examples", "num_clients", "rows_per_person", "persons_at_sites",
)  # fmt: skip
"""The settings of data, clients and partition, which all contestants must share."""

_ANY = {"unit": "client-run", "epsilon": 1.0, "delta": 1e-5, "adversary": "server"}
"""A placeholder for a budget that is not given because it is solved for."""

_OF_FILES = ("guarantee", "epsilon", "delta", "metric", "tries", "seeds", "set", "contestants")
_OF_CONTESTANTS = ("recipe", "system", "set", "grid", "reference")


@dataclass(frozen=True)
class Entry:
    """A contestant as the user gave it.

    Attributes:
        config: its settings.
        grid: its own tries, or None for the default tries.
        reference: whether it runs unchanged, without a guarantee, as a reference for the others.
    """

    config: Config
    grid: tuple[Try, ...] | None = None
    reference: bool = False


@dataclass(frozen=True)
class Design:
    """A checked design of a comparison; see ``fedldp.compare``.

    Attributes:
        guarantee: the unit, the adversary and delta.
        epsilons: the epsilons, ascending.
        entries: the contestants, by name.
        metric: one of ``metrics_for`` the labels.
        tries: the largest number of tries per contestant.
        seeds: the seeds to measure at every epsilon; None for the default seeds.
    """

    guarantee: GuaranteeKind
    epsilons: tuple[float, ...]
    entries: Mapping[str, Entry] = field(repr=False)
    metric: str = "accuracy"
    tries: int = TRIES
    seeds: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without data."""
        if not self.entries:
            raise ConfigError("recipe: there are no contestants; give at least one")
        if not self.epsilons or len(set(self.epsilons)) < len(self.epsilons):
            raise ConfigError(
                f"epsilon = {_listed(self.epsilons)}: give one or more different values"
            )
        for epsilon in self.epsilons:
            if not (math.isfinite(epsilon) and 0 < epsilon <= 1e6):
                raise ConfigError(f"epsilon = {epsilon:g}: give numbers above 0, such as 1,4,16")
        if not SMALLEST_DELTA <= self.guarantee.delta < 1:
            raise ConfigError(
                f"delta = {self.guarantee.delta:g}: give a number above 0 and below 1"
            )
        if not 1 <= self.tries <= MOST_TRIES:
            raise ConfigError(
                f"tries = {self.tries}: give 1 (every contestant as it is) to {MOST_TRIES}"
            )
        for name, entry in self.entries.items():
            if entry.grid is not None and len(entry.grid) > self.tries:
                raise ConfigError(
                    f"contestant {name}: its grid has {len(entry.grid)} points, but each "
                    f"contestant has {self.tries} tries; leave some points out, or set tries to "
                    f"{len(entry.grid)}"
                )
        _check_shared(self.entries)
        metrics = metrics_for(entry.config for entry in self.entries.values())
        if self.metric not in metrics:
            raise ConfigError(
                f"metric = {self.metric}: for these labels, choose {', '.join(metrics)}"
            )

    @property
    def first(self) -> RunConfig:
        """The configuration of the first contestant; all contestants share its data."""
        return next(iter(self.entries.values())).config

    def load(self, data_dir: Path | None) -> Dataset:
        """Return the data of all contestants.

        Raises:
            FedldpError: they cannot be loaded.
        """
        return dataset_of(self.first, data_dir)

    def comparison(self, load: Callable[[], Dataset], data_dir: Path | None = None) -> Comparison:
        """Return the comparison, under the rule of equal guarantees and equal effort.

        Args:
            load: returns the data of all contestants; see ``Task.load``.
            data_dir: the data folder, for data that runs load in addition.

        Raises:
            ConfigError: a contestant has nothing to try, or the settings are incompatible.
        """
        config = self.first.changed(standardise=False)
        # With a single site there is no other client to hold out; if the unit is a row, rows are
        # held out.
        alone = config.num_clients == 1 and self.guarantee.unit == "record"
        task = Task(
            Path(config.dataset).name,  # rows have it: a table's path depends on where one stands
            load,
            {},
            divided=None if alone else config.partition,
            num_examples=config.num_examples,
        )
        contestants = []
        for name, entry in self.entries.items():
            try:
                problem = problem_with(entry.config, load(), data_dir)
                tries = entry.grid or default_tries(entry.config, problem, self.tries)
            except ConfigError as error:
                raise ConfigError(f"contestant {name}: {error}") from None
            contestants.append(
                Contestant.of(name, entry.config, tries, self.guarantee, entry.reference)
            )
        return Comparison(
            contestants,
            [task],
            seeds=SEEDS if self.seeds is None else self.seeds,
            seeds_of_small=SEEDS_OF_SMALL if self.seeds is None else self.seeds,
            metric=self.metric,
            data_dir=data_dir,
        )

    def cells(self, comparison: Comparison) -> list[Cell]:
        """Return the cells, from the middle epsilon (the most informative) outwards."""
        middle = (len(self.epsilons) - 1) / 2
        order = sorted(self.epsilons, key=lambda e: abs(self.epsilons.index(e) - middle))
        return comparison.cells([self.first.num_clients], order)


def design_of(
    contestants: Recipe | Iterable[Recipe] | Mapping[str, Recipe],
    settings: Mapping[str, Any],
    **asked: Any,
) -> Design:
    """Return the design from the arguments of ``compare``.

    Args:
        contestants: see ``compare``.
        settings: shared settings, by dotted name, which a file may leave out; see
            ``with_settings``.
        asked: "guarantee", "epsilon", "delta", "metric", "tries" and "seeds", which replace those
            of a compare file; None if they are not given.

    Raises:
        ConfigError: an argument is wrong, or two contestants have the same name.
    """
    said: dict[str, Any] | None = None
    entries: dict[str, Entry] = {}
    one = isinstance(contestants, str | Path | RunConfig)
    pairs = (
        list(contestants.items())
        if isinstance(contestants, Mapping)
        else [("", each) for each in cast(Iterable[Recipe], [contestants] if one else contestants)]
    )
    for name, recipe in pairs:
        file = None if name else _compare_file(recipe)
        if file is None:
            config = recipe if isinstance(recipe, RunConfig) else read(str(recipe), settings)
            found = {name or _name_of(recipe): Entry(config)}
        elif said is not None:
            raise ConfigError(f"{recipe}: a comparison has only one compare file; leave one out")
        else:
            said, found = file, _entries_in(recipe, file)
        for each, entry in found.items():
            add(entries, each, entry)
    targets = [entry.config.target for entry in entries.values() if entry.config.target is not None]
    kinds = {f"{target.unit}:{target.adversary}": target.delta for target in targets}
    given = {key: value for key, value in asked.items() if value is not None}
    said = {**(said or {}), **given}
    if "guarantee" not in said and len(kinds) == 1:
        ((kind, delta),) = kinds.items()
        said = {"guarantee": kind, "delta": delta, **said}
    if not isinstance(said.get("guarantee"), str):
        raise ConfigError(
            "guarantee: give the guarantee that all contestants must meet, as UNIT:ADVERSARY, such "
            "as client-run:server"
        )
    if "epsilon" not in said:
        raise ConfigError("epsilon: give one or more values, such as 1,4,16")
    levels, seeds = said["epsilon"], said.get("seeds")
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        levels = [levels]
    tries = said.get("tries", _most_points(entries))
    if isinstance(tries, bool) or not isinstance(tries, int):
        raise ConfigError(f"tries = {tries}: give an integer")
    if seeds is not None:
        seeds = tuple(read_seeds(seeds) if isinstance(seeds, str) else seeds)
    pair = unit_and_adversary(said["guarantee"])
    entries = with_settings(entries, settings)
    metrics = metrics_for(entry.config for entry in entries.values())
    return Design(
        guarantee=GuaranteeKind(*pair, _number("delta", said.get("delta", DELTA))),
        epsilons=tuple(sorted(_number("epsilon", level) for level in levels)),
        entries=entries,
        metric=str(said.get("metric", metrics[0])),
        tries=tries,
        seeds=seeds,
    )


def _most_points(entries: Mapping[str, Entry]) -> int:
    """Return the default number of tries: 8, or the size of the largest grid if that is larger."""
    grids = [len(entry.grid) for entry in entries.values() if entry.grid is not None]
    return max(grids) if grids and len(grids) == len(entries) else max([*grids, TRIES])


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} = {value}: give a number")
    return float(value)


def read(recipe: str, settings: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a recipe or a TOML file.

    Args:
        recipe: a recipe's name, or the path of a file. The file may leave out the budget, which is
            solved for, and everything in ``settings``.
        settings: changes to all contestants, by dotted name.

    Raises:
        ConfigError: there is no such recipe, or the file is invalid.
    """
    return _without(named(recipe, {**nested(settings.items()), "target": _ANY}), _ANY)


def _without(config: RunConfig, target: Mapping[str, Any]) -> RunConfig:
    """Return a configuration without a target that was only a placeholder for a budget."""
    given = None if config.target is None else config.target.model_dump()
    return config.changed(target=None) if given == target else config


def add(entries: dict[str, Entry], name: str, entry: Entry) -> None:
    """Add a contestant.

    Raises:
        ConfigError: another contestant has this name.
    """
    if name in entries:
        raise ConfigError(
            f"contestant {name}: two have this name; leave one out, or name them in a compare file"
        )
    if not name.strip() or len(name) > 80 or not name.isprintable():
        raise ConfigError(f"contestant {shown(name)}: give a name of 1 to 80 characters")
    entries[name] = entry


def with_settings(entries: Mapping[str, Entry], settings: Mapping[str, Any]) -> dict[str, Entry]:
    """Return the contestants, with each setting changed in every contestant that has it.

    Raises:
        ConfigError: no contestant has a given setting, or its value is wrong.
    """
    for key in settings:
        if key == "seed":
            raise ConfigError("seed: give the seeds to measure as --seeds 0-4")
        if key.split(".")[0] in ("delta", "target"):
            raise ConfigError(
                f"{key}: the guarantee sets it for all contestants; give --guarantee and --delta"
            )
        check_setting((entry.config for entry in entries.values()), key)
    found = {}
    for name, entry in entries.items():
        own = {key: value for key, value in settings.items() if entry.config.has(key)}
        try:
            config = (
                entry.config.changed(**nested(own.items(), entry.config)) if own else entry.config
            )
        except ConfigError as error:
            raise ConfigError(f"contestant {name}: {error}") from None
        found[name] = Entry(config, entry.grid, entry.reference)
    return found


def _compare_file(recipe: Recipe) -> dict[str, Any] | None:
    """Return the contents of a TOML file that lists contestants; None if it is a recipe."""
    if isinstance(recipe, RunConfig) or not str(recipe).endswith(".toml"):
        return None
    try:
        found = tomllib.loads(Path(recipe).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # reading it as a recipe reports the error
    return found if "contestants" in found else None


def _entries_in(path: Recipe, found: dict[str, Any]) -> dict[str, Entry]:
    """Take the contestants out of the contents of a compare file, and return them.

    Raises:
        ConfigError: a key or a contestant is wrong.
    """
    for key in found:
        if key not in _OF_FILES:
            raise ConfigError(
                f"{path}: {key}: unknown key; a compare file has {', '.join(_OF_FILES)}"
            )
    tables = found.pop("contestants")
    if not isinstance(tables, dict) or not tables:
        raise ConfigError(
            f"{path}: contestants: write a table [contestants.NAME] for each contestant"
        )
    shared = found.pop("set", {})
    if not isinstance(shared, dict):
        raise ConfigError(f"{path}: set = {shown(shared)}: write a table [set]")
    entries: dict[str, Entry] = {}
    for name, table in tables.items():
        add(entries, name, _entry(path, name, table, shared))
    return with_settings(entries, shared)


def _entry(path: Recipe, name: str, table: Any, shared: Mapping[str, Any]) -> Entry:
    where = f"{path}: contestant {name}"
    if not isinstance(table, dict) or ("recipe" in table) == ("system" in table):
        raise ConfigError(f"{where}: give either a recipe (a name or a file) or a system")
    for key in table:
        if key not in _OF_CONTESTANTS:
            raise ConfigError(
                f"{where}: {key}: unknown key; a contestant has {', '.join(_OF_CONTESTANTS)}"
            )
    own, reference = table.get("set", {}), table.get("reference", False)
    grid = grid_of(name, table["grid"]) if "grid" in table else None
    if not isinstance(own, dict) or not isinstance(reference, bool):
        raise ConfigError(f"{where}: set must be a table of settings, and reference true or false")
    try:
        if "recipe" in table:
            config = read(str(table["recipe"]), {**shared, **own}).changed(**own)
        else:
            # A preset names no data, so the shared settings may complete it.
            system = str(table["system"])
            fields = find_system(system).model_fields
            of_all = {key: value for key, value in shared.items() if key in fields}
            # The grid may have settings that nothing else gives, such as a learning rate.
            tried = {
                key: value
                for key, value in (grid or ({},))[0].items()
                if key in fields and fields[key].get_default() in (None, PydanticUndefined)
            }
            config = from_mapping({"target": _ANY, **tried, **of_all, **own, "system": system})
            config = _without(config, _ANY)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Entry(config, grid, reference)


def _check_shared(entries: Mapping[str, Entry]) -> None:
    """Refuse contestants with different data, clients or partitions."""
    (first, entry), *others = entries.items()
    for name, other in others:
        for key in SHARED:
            one, two = (getattr(each.config, key) for each in (entry, other))
            if one != two:
                raise ConfigError(
                    f"{key}: {first} has {shown(one)}, {name} has {shown(two)}; data, clients and "
                    f"partition must be the same for all contestants: --set {key}=VALUE changes "
                    "all of them"
                )


def _name_of(recipe: Recipe) -> str:
    if isinstance(recipe, RunConfig):
        return recipe.system
    return Path(recipe).stem if str(recipe).endswith(".toml") else str(recipe)


def _listed(values: Iterable[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


_FACTORS: Mapping[str, Sequence[float]] = {
    "learning_rate": (1, 4, 1 / 4, 16, 1 / 16),
    "clip": (1, 1 / 4, 4, 1 / 16),
    "range_radius": (1, 1 / 4, 4, 1 / 16),
    "ridge": (1, 1 / 10, 10, 1 / 100, 100),
}
_FEWER, _MORE = (1, 1 / 16, 1 / 4), (1, 4, 16)
"""Factors for the number of rounds. Far fewer rounds are tried first, because rounds cost budget;
if the configuration has only a few rounds, more rounds are tried instead."""

_FEW_ROUNDS = 4


def default_tries(config: RunConfig, problem: Problem, most: int) -> tuple[Try, ...]:
    """Return tries around the settings of ``config``, the nearest first.

    The varied settings are learning rate, clip (or the radius of a range), ridge and rounds, if
    they affect ``config``; they are multiplied by powers of 4, or of 10 for a ridge. A larger
    ``most`` only adds tries after the first ones, so that a comparison can grow.

    Args:
        config: the contestant's configuration.
        problem: the shape of its data.
        most: the largest number of tries; there may be fewer.

    With one try, ``config`` is measured as it is.

    Raises:
        ConfigError: nothing can be varied.
    """
    if most == 1:
        return ({},)
    levels = _levels(config, problem)
    points = product(*(range(len(values)) for values in levels.values()))
    order = sorted(points, key=lambda point: (max(point, default=0), sum(point), point[::-1]))
    found: list[Try] = []
    for point in order:
        attempt = {name: levels[name][k] for name, k in zip(levels, point, strict=True)}
        if len(found) < most and _fits(config, attempt):
            found.append(attempt)
    if len(found) < 2:
        raise ConfigError(
            f"tries: {config.name()} has no learning rate, clip, ridge or rounds to vary; give the "
            "contestant a grid"
        )
    return tuple(found)


def grid_of(name: str, given: Any) -> tuple[Try, ...]:
    """Return the tries that a user wrote: a list of tries, or a mapping to lists of values.

    Args:
        name: the contestant's name, for messages.
        given: ``[{"clip": 1.0, "rounds": 4}, ...]``, or ``{"clip": [1.0, 0.5]}``, all combinations
            of which are tried.

    Raises:
        ConfigError: the grid has neither form.
    """
    match given:
        case list() if given and all(isinstance(each, Mapping) and each for each in given):
            found = [dict(each) for each in given]
        case dict() if given and all(isinstance(each, list) and each for each in given.values()):
            found = [dict(zip(given, values, strict=True)) for values in product(*given.values())]
        case _:
            raise ConfigError(
                f"contestant {name}: grid = {given}: give lists of values, such as "
                "{clip = [1.0, 0.5]}, or a list of tries"
            )
    return tuple(found)


def _levels(config: RunConfig, problem: Problem) -> dict[str, list[Any]]:
    """Return the values to try for each setting that affects the run, the current value first."""
    unused = config.unused_settings()
    found: dict[str, list[Any]] = {}
    for name, factors in _FACTORS.items():
        own = getattr(config, name, None)
        if isinstance(own, int | float) and name not in unused and _matters(config, problem, name):
            found[name] = _distinct(float(f"{own * factor:.4g}") for factor in factors)
    rounds = config.rounds
    factors = _MORE if rounds < _FEW_ROUNDS else _FEWER
    found["rounds"] = _distinct(max(1, round(rounds * factor)) for factor in factors)
    return found


def _matters(config: RunConfig, problem: Problem, name: str) -> bool:
    """Return whether a setting changes a run.

    If the bound is a range, its radius changes the run, and a clip changes it only in rare cases.
    """
    if name not in ("clip", "range_radius"):
        return True
    own = getattr(config, name)
    try:
        release, other = (
            each.algorithm(problem).encoder(0).release  # type: ignore[attr-defined]
            for each in (config, config.changed(**{name: own / 4}))
        )
    except (AttributeError, ConfigError):  # the system has no release of this kind
        return True
    if isinstance(release.bound, InRange):
        return name == "range_radius" or release.mechanism != other.mechanism
    return name == "clip"


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _fits(config: RunConfig, attempt: Try) -> bool:
    try:
        config.changed(**attempt)
    except ConfigError:
        return False
    return True
