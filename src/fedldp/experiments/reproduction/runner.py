"""Makes the missing runs, starting with the most informative ones per minute of computing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Recipe
from fedldp.experiments.executors import executor_of
from fedldp.experiments.making import Maker
from fedldp.experiments.reproduction.results import Device, Measured, MeasurementStore
from fedldp.experiments.reproduction.targets import source_of
from fedldp.experiments.runs import PlannedRun, Row
from fedldp.experiments.scheduling import Lines, carry_out
from fedldp.models import multiplications_of
from fedldp.simulation.identity import data_digests, family_digest
from fedldp.simulation.plan import problem_of

_PER_SECOND = 2e10
"""The speed of two cores: visited examples times multiplications in a forward pass, per second. It
serves to estimate the time of a run that resembles no earlier run."""

_OVERHEAD = 3.0
"""The estimated time, in seconds, of a run that trains nothing."""


@dataclass(frozen=True, kw_only=True)
class MissingRun:
    """One missing run.

    Attributes:
        run: the run.
        seconds: its estimated duration.
    """

    run: PlannedRun
    seconds: float


def jobs(
    cells: Iterable[Recipe],
    seeds: Sequence[int],
    store: MeasurementStore,
    root: Path,
    device: Device,
) -> list[MissingRun]:
    """Return the missing runs, starting with the most informative ones per minute of computing.

    A cell's first seed counts more than its second, and a cell with a paper's number counts twice
    as much as one without. Cells with the same configuration share their runs.
    """
    made: dict[tuple[str, int, int], tuple[int, float, MissingRun]] = {}
    for recipe in cells:
        config, data = recipe.config, data_digests(recipe.config, root)[0]
        known = store.find(config, data, source_of(recipe).metric)
        kept = [run for run in known if run.device == device]
        seconds = estimate(config, root, kept)
        missing = [seed for seed in seeds if seed not in {run.seed for run in kept}]
        for count, seed in enumerate(missing, start=len(kept) + 1):
            worth = (1 if recipe.expected is None else 2) / count
            found = family_digest(config, data)
            key = (found, seed, 0 if config.longer_begins_with_shorter else config.rounds)
            # If two runs differ only in length, the longer one serves both.
            if key not in made or config.rounds > made[key][0]:
                run = _planned(recipe, found, seed, device)
                made[key] = config.rounds, worth / seconds, MissingRun(run=run, seconds=seconds)
    return [job for _, _, job in sorted(made.values(), key=lambda each: -each[1])]


def _planned(recipe: Recipe, family: str, seed: int, device: Device) -> PlannedRun:
    """Return a run of a recipe; a run without a wanted metric is another one."""
    config, metric = recipe.config.changed(seed=seed), source_of(recipe).metric
    labels = {"family": family, "recipe": recipe.name, "seed": seed, "rounds": config.rounds}
    key = f"{family}-{device}-seed{seed}-rounds{config.rounds}"
    key += "" if metric == "accuracy" else f"-{metric}"
    return PlannedRun(
        digest=key,
        words=f"{recipe.name}, seed {seed}",
        labels={**labels, "device": device},
        config=config,
        place=f"work/{key}",
        keeps_curve=True,
    )


def estimate(config: RunConfig, root: Path, known: Iterable[Measured] = ()) -> float:
    """Return a run's estimated time in seconds, from similar runs or the number of multiplications.

    Args:
        config: the configuration of the run.
        root: the data folder.
        known: runs that differ from this run only in the seed and the number of rounds.
    """
    guess = partial(_guessed, root=root)
    longer = [
        run.seconds / guess(config.changed(rounds=run.rounds)) for run in known if run.seconds
    ]
    return _OVERHEAD + guess(config) * (statistics.fmean(longer) if longer else 1.0)


def _guessed(config: RunConfig, root: Path) -> float:
    """Return the estimated training time in seconds, from the number of multiplications."""
    problem = problem_of(config, root)
    examples = config.round_size * problem.num_examples / config.num_clients
    if getattr(config, "sampling_probability", None) is not None:
        examples /= config.rounds  # each round visits only a fraction of the examples
    visits = config.rounds * config.local_epochs * examples
    shape = config.algorithm(problem).input_shape
    each = multiplications_of(config.model, shape, problem.num_classes)
    return (config.algorithm(problem).work_before_training() + visits * each) / _PER_SECOND


@dataclass(frozen=True)
class Missing:
    """Missing runs as an experiment; see ``fedldp.experiments.runs.Experiment``.

    Attributes:
        todo: the runs, in order.
        end: when the time ends, by ``clock``; a run that would take longer is not begun.
        clock: returns the current time in seconds.
    """

    todo: Sequence[MissingRun]
    end: float | None
    clock: Callable[[], float]

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield the runs that still fit into the time."""
        for each in self.todo:
            if self.end is None or self.clock() + each.seconds <= self.end:
                yield each.run

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs are missing."""
        return len(self.todo)


def run_all(
    todo: Sequence[MissingRun],
    store: MeasurementStore,
    *,
    data_dir: Path | None,
    device: Device,
    workers: int | None,
    budget: float | None = None,
    say: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Make runs in order, and store each measurement as soon as it is complete.

    An interrupted run continues after its last complete round.

    Args:
        todo: the runs.
        store: where measurements are kept.
        data_dir: the data folder.
        device: the device that trains.
        workers: the number of processes; None for one per core.
        budget: the available time in seconds; a run that would take longer than the remaining time
            is not started.
        say: called with a line about every run.
        clock: returns the current time in seconds.

    Raises:
        FedldpError: a run or its data were refused; the other runs were made. Or another process is
            making runs on this device.
    """
    if not todo:
        return
    end = None if budget is None else clock() + budget
    maker = Maker(data_dir=data_dir, device=device)
    with store.opened(device) as kept, executor_of(maker, workers, None, len(todo)) as executor:
        carry_out(Missing(todo, end, clock), kept, executor, watcher=Lines(say, _outcome))
        for error in kept.failed.values():
            raise error


def _outcome(row: Row) -> str:
    return (
        f"accuracy {row['accuracies'][-1]:.4f} after {row['rounds']} rounds, {row['seconds']:.0f} s"
    )
