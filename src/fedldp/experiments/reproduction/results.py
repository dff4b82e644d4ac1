"""What is measured: the committed results, and the user's own runs; and the runs that are missing.

A run is found by the digest of everything that determines it except the seed: see
``identity``. Missing runs are made in order of what they tell per minute of computing.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import platformdirs
from pydantic import BaseModel, ConfigDict

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Recipe, find_recipe
from fedldp.experiments.engine import Experiment, Means, carried_out
from fedldp.experiments.identity import data_digests, family_digest, run_digest
from fedldp.experiments.making import Maker
from fedldp.experiments.reproduction.targets import papers_with_targets, source_of
from fedldp.experiments.runs import PlannedRun, Row
from fedldp.experiments.store import RESULTS, Document, RunStore
from fedldp.experiments.table import deviation_of
from fedldp.models import multiplications_of
from fedldp.simulation.plan import problem_of

Device = Literal["cpu", "cuda"]

NOWHERE = Path("/nonexistent")
"""A data folder without data, so that what is shown is the same on every machine."""


class Measurement(BaseModel):
    """The measured value of a cell over several seeds, on one kind of device.

    The first attributes are those of a cell in ``published.json``.

    Attributes:
        digest: of everything that determines its runs except the seed: ``family_digest``.
        rounds: number of rounds in each run.
        seeds: the seeds of the runs.
        mean: mean over the seeds of the metric after the last round, 0 to 1.
        deviation: sample standard deviation over seeds; None for one seed.
        after: mean and deviation after some of the rounds, by round.
        device: the device that trained.
        hardware: the machine, in words.
        date: the date of the latest run, in ISO format.
        metric: the name of the metric.
        published: whether this is a committed result.
        stand_in: whether it was measured on a smaller stand-in for the data set.
    """

    model_config = ConfigDict(frozen=True)

    digest: str
    rounds: int
    seeds: list[int]
    mean: float
    deviation: float | None
    after: dict[int, tuple[float, float | None]]
    device: Device
    hardware: str
    date: str
    metric: str = "accuracy"
    published: bool = False
    stand_in: bool = False

    @classmethod
    def of_runs(cls, runs: Sequence[Row], rounds: int, metric: str) -> Self:
        """Return the first rounds of runs with different seeds, in the order of their seeds."""
        curves = [curve_of(run, metric) for run in runs]
        after = {n: _both([curve[n - 1] for curve in curves]) for n in range(1, rounds + 1)}
        mean, deviation = after[rounds]
        return cls(
            digest=runs[0]["family"],
            rounds=rounds,
            seeds=[run["seed"] for run in runs],
            mean=mean,
            deviation=deviation,
            after=after,
            device=runs[0]["device"],
            hardware=runs[-1]["hardware"],
            date=max(run["date"] for run in runs),
            metric=metric,
        )


class Measurements:
    """What is measured on one kind of device: the user's own runs, and the committed results.

    Args:
        folder: the user's own runs, in a folder for each device; created with the first run. With
            None, only committed results count.
        root: the data folder; it determines whether a data set or its stand-in is used.
        device: the device.
    """

    def __init__(
        self, folder: Path | None = None, root: Path = NOWHERE, device: Device = "cpu"
    ) -> None:
        self.root = root
        self.device = device
        self.folder = None if folder is None else folder / device
        self.read()

    def read(self) -> None:
        """Read the user's own runs.

        Raises:
            RunError: their file is damaged.
        """
        self._own = {} if self.folder is None else RunStore(self.folder / RESULTS).rows

    def data(self, config: RunConfig) -> str:
        """Return the digest of the data that a configuration uses."""
        return data_digests(config, self.root)[0]

    def family(self, config: RunConfig) -> str:
        """Return the digest that the runs of a configuration share; see ``family_digest``."""
        return family_digest(config, self.data(config))

    def runs(self, recipe: Recipe) -> dict[int, Row]:
        """Return the user's runs of a cell by seed, in the order of the seeds."""
        family, metric = self.family(recipe.config), source_of(recipe).metric
        found = {
            row["seed"]: row
            for row in self._own.values()
            if row["family"] == family and len(curve_of(row, metric)) >= recipe.config.rounds
        }
        return dict(sorted(found.items()))

    def of(self, recipe: Recipe) -> Measurement | None:
        """Return the user's own measurement of a cell, or the committed one if it has more seeds.

        None if there is neither.
        """
        config, metric = recipe.config, source_of(recipe).metric
        runs, kept = list(self.runs(recipe).values()), published_of(recipe)
        found = [Measurement.of_runs(runs, config.rounds, metric)] if runs else []
        found += [kept] if kept is not None and kept.device == self.device else []
        if not found:
            return None
        best = max(found, key=lambda each: len(each.seeds))
        whole = family_digest(config, data_digests(config)[0])
        return best.model_copy(update={"stand_in": best.digest != whole})


def default_cache() -> Path:
    """Return the folder of the user's own runs."""
    return Path(platformdirs.user_cache_dir("fedldp")) / "reproduction"


def curve_of(run: Row, metric: str) -> list[float]:
    """Return a run's metric after every round; empty if it was not stored."""
    found: list[float] = (
        run["accuracies"] if metric == "accuracy" else run["metrics"].get(metric, [])
    )
    return found


def _both(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.fmean(values), deviation_of(values)


@cache
def published_documents() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the content of each paper's ``published.json``, by authors and year."""
    files = {name: paper.folder / "published.json" for name, paper in papers_with_targets().items()}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }


@cache
def published() -> dict[str, Measurement]:
    """Return the committed results by recipe, whether or not they are still valid."""
    found: dict[str, Measurement] = {}
    for document in published_documents().values():
        for cell in document["cells"]:
            last = {str(cell["rounds"]): (cell["mean"], cell["deviation"])}
            more = {"after": cell["after"] | last, "published": True}
            found[cell["recipe"]] = Measurement.model_validate(cell | more)
    return found


def published_of(recipe: Recipe) -> Measurement | None:
    """Return the committed result of a recipe, if one is still valid.

    It may be that of another recipe with the same runs, or with longer ones; of several results,
    that with the most seeds, and the shortest run.
    """
    config, metric = recipe.config, source_of(recipe).metric
    last = config.rounds
    valid = [family_digest(config, data) for data in data_digests(config)]
    found = [
        each
        for each in published().values()
        if each.digest in valid and each.metric == metric and last in (each.rounds, *each.after)
    ]
    if not found:
        return None
    best = min(found, key=lambda each: (-len(each.seeds), each.rounds))
    if best.rounds == last:
        return best
    mean, deviation = best.after[last]
    curve = {n: both for n, both in best.after.items() if n <= last}
    return best.model_copy(
        update={"rounds": last, "mean": mean, "deviation": deviation, "after": curve}
    )


_PER_SECOND = 2e10
"""The speed of two cores: visited examples times multiplications in a forward pass, per second. It
serves to estimate the time of a run that resembles no earlier run."""

_CORES = 2
"""How many cores the estimated time of a run assumes."""

_WHOLE = 10
_OVERHEAD = 3.0
"""The estimated time, in seconds, of a run that trains nothing."""


class Missing(Experiment[Sequence[Exception]]):
    """Missing runs of cells as an experiment, whose folder is that of the user's runs.

    Args:
        runs: the runs, the most informative ones per minute of computing first, each with its
            estimated duration in seconds.
        measurements: what is measured, and on which device.
    """

    kind = "reproduce"

    def __init__(
        self, runs: Sequence[tuple[PlannedRun, float]], measurements: Measurements
    ) -> None:
        self.runs = runs
        self.maker = Maker(data_dir=measurements.root, device=measurements.device)
        self.end: float | None = None
        self._measurements = measurements

    @property
    def seconds(self) -> float:
        """The estimated duration of all of them."""
        return sum(seconds for _, seconds in self.runs)

    @property
    def core_seconds(self) -> float:
        """The estimated duration of all of them on one core."""
        return _CORES * self.seconds

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield the runs that still fit into the time."""
        for run, seconds in self.runs:
            if self.end is None or time.monotonic() + seconds <= self.end:
                yield run

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs are missing."""
        return len(self.runs)

    def document(self) -> Document:
        """Return no settings: its folder may hold runs of all recipes."""
        return {}

    def lacks(self, old: Document) -> None:
        """Return None: it lacks nothing of what its folder may hold."""

    def outcome(self, row: Row) -> str:
        """Return the outcome of a run in words."""
        accuracy, rounds = row["accuracies"][-1], row["rounds"]
        return f"accuracy {accuracy:.4f} after {rounds} rounds, {row['seconds']:.0f} s"

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run of a row as it would be planned now; None if there is none."""
        run = _planned(find_recipe(row["recipe"]), row["seed"], self._measurements)
        return run if run.digest == row["digest"] else None

    def view(self, store: RunStore, folder: Path | None) -> Sequence[Exception]:
        """Return why runs could not be made."""
        return list(store.failed.values())

    def make(self, means: Means) -> None:
        """Make the runs in order; an interrupted one continues after its last complete round.

        Args:
            means: with what they are made; a run that would take longer than the time that is left
                is not begun.

        Raises:
            FedldpError: a run or its data were refused; the other runs were made. Or another
                process is making runs on this device.
        """
        if not self.runs:
            return
        self.end = means.end
        failed = carried_out(self, replace(means, out=self._measurements.folder))
        self._measurements.read()
        for error in failed:
            raise error


def missing(cells: Iterable[Recipe], seeds: Sequence[int], measurements: Measurements) -> Missing:
    """Return the missing runs of some cells.

    A cell's first seed counts more than its second, and a cell with a paper's number counts twice
    as much as one without. Cells with the same configuration share their runs.
    """
    made: dict[tuple[str, int, int], tuple[float, PlannedRun, float]] = {}
    for recipe in cells:
        config, family = recipe.config, measurements.family(recipe.config)
        kept = measurements.runs(recipe)
        seconds = estimate(config, measurements.root, kept.values())
        left = [seed for seed in seeds if seed not in kept]
        for count, seed in enumerate(left, start=len(kept) + 1):
            worth = (1 if recipe.expected is None else 2) / count
            key = (family, seed, 0 if config.longer_begins_with_shorter else config.rounds)
            # If two runs differ only in length, the longer one serves both.
            if key not in made or config.rounds > made[key][1].labels["rounds"]:
                run = _planned(recipe, seed, measurements)
                made[key] = worth / seconds, run, seconds
    best = sorted(made.values(), key=lambda each: -each[0])
    return Missing([(run, seconds) for _, run, seconds in best], measurements)


def _planned(recipe: Recipe, seed: int, measurements: Measurements) -> PlannedRun:
    config, device = recipe.config.changed(seed=seed), measurements.device
    digest = run_digest(config, measurements.data(config), device=device)
    return PlannedRun(
        digest=digest,
        words=f"{recipe.name}, seed {seed}",
        labels={
            "family": measurements.family(config),
            "recipe": recipe.name,
            "seed": seed,
            "rounds": config.rounds,
            "device": device,
        },
        config=config,
        place=f"work/{digest}",
        keeps_curve=True,
    )


def estimate(config: RunConfig, root: Path, known: Iterable[Row] = ()) -> float:
    """Return a run's estimated time in seconds, from similar runs or the number of multiplications.

    Args:
        config: the configuration of the run.
        root: the data folder.
        known: runs that differ from this run only in the seed and the number of rounds.
    """
    longer = [
        run["seconds"] / _guessed(config.changed(rounds=run["rounds"]), root)
        for run in known
        if run["seconds"]
    ]
    return _OVERHEAD + _guessed(config, root) * (statistics.fmean(longer) if longer else 1.0)


def _guessed(config: RunConfig, root: Path) -> float:
    """Return the estimated training time in seconds, from the number of multiplications."""
    problem = problem_of(config, root)
    examples = config.round_size * problem.num_examples / config.num_clients
    if getattr(config, "sampling_probability", None) is not None:
        examples /= config.rounds  # each round visits only a fraction of the examples
    visits = config.rounds * config.local_epochs * examples
    shape = config.algorithm(problem).input_shape
    each = multiplications_of(config.model, shape, problem.num_classes)
    return visits * each / _PER_SECOND


def in_hours(seconds: float) -> str:
    """Return an estimated time in hours, without decimals from ten hours on."""
    hours = seconds / 3600
    return f"{hours:.1f}" if hours < _WHOLE else f"{hours:.0f}"
