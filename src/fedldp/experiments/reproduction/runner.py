"""Makes the missing runs, starting with the most informative ones per minute of computing."""

from __future__ import annotations

import datetime
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Recipe
from fedldp.core.errors import RunError
from fedldp.experiments.reproduction.results import (
    Device,
    Measured,
    MeasurementStore,
    hardware,
)
from fedldp.experiments.reproduction.targets import source_of
from fedldp.models import multiplications_of
from fedldp.simulation.identity import data_digests, family_digest
from fedldp.simulation.plan import problem_of

if TYPE_CHECKING:
    from fedldp.protocol.server_loop import Round
    from fedldp.simulation.result import Result

_PER_SECOND = 2e10
"""The speed of two cores: visited examples times multiplications in a forward pass, per second. It
serves to estimate the time of a run that resembles no earlier run."""

_SHORT = 20.0
"""A run that takes fewer seconds than this gets only one process."""

_OVERHEAD = 3.0
"""The estimated time, in seconds, of a run that trains nothing."""


@dataclass(frozen=True, kw_only=True)
class MissingRun:
    """One missing run.

    Attributes:
        recipe: the recipe of the cell.
        config: its configuration, with the seed.
        digest: a digest of everything that determines the measurement except the seed.
        seconds: its estimated duration.
    """

    recipe: Recipe
    config: RunConfig
    digest: str
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
    made: dict[tuple[str, int, int], tuple[float, MissingRun]] = {}
    for recipe in cells:
        config, data = recipe.config, data_digests(recipe.config, root)[0]
        known = store.find(config, data, source_of(recipe).metric)
        kept = [run for run in known if run.device == device]
        seconds = estimate(config, root, kept)
        missing = [seed for seed in seeds if seed not in {run.seed for run in kept}]
        for count, seed in enumerate(missing, start=len(kept) + 1):
            worth = (1 if recipe.expected is None else 2) / count
            found = family_digest(config, data)
            job = MissingRun(
                recipe=recipe, config=config.changed(seed=seed), digest=found, seconds=seconds
            )
            key = (found, seed, 0 if config.longer_begins_with_shorter else config.rounds)
            # If two runs differ only in length, the longer one serves both.
            if key not in made or config.rounds > made[key][1].config.rounds:
                made[key] = (worth / seconds, job)
    return [job for _, job in sorted(made.values(), key=lambda each: -each[0])]


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


def run_all(
    todo: Sequence[MissingRun],
    store: MeasurementStore,
    *,
    data_dir: Path | None,
    device: Device,
    workers: int,
    budget: float | None = None,
    before: Callable[[MissingRun], None] = lambda job: None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Measured]:
    """Run jobs in order, and store and yield each measurement as soon as it is complete.

    An interrupted run continues after its last complete round; a run that another process is
    measuring is left to that process.

    Args:
        todo: the jobs.
        store: where measurements are kept.
        data_dir: the data folder.
        device: the device that trains.
        workers: the number of processes on a CPU; a short run gets only one.
        budget: the available time in seconds; a run that would take longer than the remaining time
            is not started.
        before: is called with each run before it starts.
        clock: returns the current time in seconds.

    Raises:
        FedldpError: a run or its data were refused.
    """
    end = None if budget is None else clock() + budget
    for job in todo:
        if end is not None and clock() + job.seconds > end:
            continue
        with store.under_way(job.digest, device, job.config.seed, job.config.rounds) as place:
            if place is None:
                continue
            before(job)
            measured = _run(job, data_dir, device, workers, place)
            store.write(measured)
        yield measured


def _run(
    job: MissingRun, data_dir: Path | None, device: Device, workers: int, place: Path
) -> Measured:
    result = _simulated(job, data_dir, device, workers if job.seconds > _SHORT else 1, place)
    accuracies = [record.accuracy for record in result.rounds]
    names = [
        name for name in result.rounds[0].metrics if all(name in r.metrics for r in result.rounds)
    ]
    return Measured(
        digest=job.digest,
        recipe=job.recipe.name,
        seed=job.config.seed,
        rounds=job.config.rounds,
        accuracies=[each for each in accuracies if each is not None],
        device=device,
        hardware=hardware(device),
        date=datetime.date.today().isoformat(),
        seconds=result.seconds,
        metrics={name: [record.metrics[name] for record in result.rounds] for name in names},
    )


def _simulated(
    job: MissingRun, data_dir: Path | None, device: Device, workers: int, place: Path
) -> Result:
    """Run a job in the folder ``place``, or continue an interrupted run there."""
    # Imported here, because only a run needs them, and importing torch takes seconds.
    from fedldp.reporting.record import RunFolder
    from fedldp.simulation.engine import simulate

    run = partial(
        simulate, job.config, recipe=job.recipe.name, data_dir=data_dir, device=device,
        workers=workers,
    )  # fmt: skip
    if (place / "checkpoint").exists():
        begun: list[Round] = []
        try:
            return run(resume=RunFolder(place), after_round=begun.append)
        except RunError:  # the folder is damaged, or the run was begun with other defaults
            if begun:  # the run did continue, so it failed for another reason
                raise
    shutil.rmtree(place, ignore_errors=True)  # nothing to continue from
    return run(out=place)
