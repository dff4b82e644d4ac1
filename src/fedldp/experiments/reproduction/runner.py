"""Makes the missing runs, starting with the most informative ones per minute of computing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Recipe, find_recipe
from fedldp.experiments.engine import Experiment, Means, carried_out
from fedldp.experiments.making import Maker
from fedldp.experiments.reproduction.results import Measurements
from fedldp.experiments.runs import PlannedRun, Row
from fedldp.experiments.store import Document, RunStore
from fedldp.models import multiplications_of
from fedldp.simulation.identity import run_digest
from fedldp.simulation.plan import problem_of

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
        """Return no settings: its folder may hold runs of all recipes, and lacks none of them."""
        return {}

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
