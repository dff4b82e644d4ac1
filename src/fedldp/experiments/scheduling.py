"""Makes the runs of an experiment that are due: the only loop over runs, and its means."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError, one_line
from fedldp.core.locks import OwnedFolder
from fedldp.core.registry import import_extra
from fedldp.data import Dataset
from fedldp.experiments.proving import ComparisonError
from fedldp.experiments.runs import Experiment, PlannedRun, RunExecutor, Shared
from fedldp.experiments.store import RunStore
from fedldp.simulation.given import path_of
from fedldp.simulation.plan import check_workers

_GROWTH = 1.2
"""How much the rows grow until what they say is shown again."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Where, with what and for how long an experiment is carried out; this changes no result.

    Attributes:
        out: its folder, which may hold a part of the experiment, or a folder that the caller owns;
            None keeps nothing.
        data_dir: the data folder.
        end: when no more runs begin, on the monotonic clock; None for never.
        workers: the number of processes; None starts one per core.
        cluster: "auto" or the address of a Ray cluster, which makes the runs instead.
        say: called with a line about the experiment and about every run.
        progress: called with the number of runs that are done and the number of all runs.
        same_data: whether private data are those of the folder, where nobody can tell.

    Raises:
        ConfigError: they contradict each other, or a cluster is named and Ray is not installed.
    """

    out: Path | OwnedFolder | None = None
    data_dir: Path | None = None
    end: float | None = None
    workers: int | None = None
    cluster: str | None = None
    say: Callable[[str], None] = lambda line: None
    progress: Callable[[int, int], None] = lambda done, total: None
    same_data: bool = False

    def __post_init__(self) -> None:
        """Check who makes the runs."""
        check_workers(self.workers, self.cluster)
        if self.cluster is not None:
            import_extra("ray", extra="ray")

    def shared(self, load: Callable[[Path | None], Dataset], given: Dataset | None) -> Shared:
        """Return data for all runs; those that were given, or go to a cluster, are sent.

        Args:
            load: returns them, from the data folder; it can be pickled.
            given: the data, if they are given.
        """
        if given is not None:
            return Shared(lambda: given, travels=True)
        return Shared(partial(load, self.data_dir), travels=self.cluster is not None)

    @classmethod
    def of(
        cls,
        out: Path | str | None,
        data_dir: Path | str | None,
        budget: str | float | None = None,
        **others: Any,
    ) -> Means:
        """Return the means that a user of Python gives; ``budget`` says when to end.

        Raises:
            ConfigError: a path is empty, or the budget is not a time.
        """
        place, folder = path_of("out", out), path_of("data_dir", data_dir)
        return cls(out=place, data_dir=folder, end=end_of(budget), **others)

    def go_on(self) -> bool:
        """Return whether another run may begin."""
        return self.end is None or time.monotonic() < self.end


def carry_out(
    experiment: Experiment,
    store: RunStore,
    executor: RunExecutor,
    means: Means,
    show: Callable[[], None] = lambda: None,
) -> None:
    """Make the runs that are due and not in the store, the most urgent first.

    A run that fails for an unforeseen reason is in ``store.failed`` and is not tried again by this
    call.

    Args:
        experiment: which runs are due.
        store: where rows are kept; a row is written as soon as its run has ended.
        executor: who makes the runs.
        means: for how long, and who is told how many of all runs are done, and each outcome.
        show: called when the first rows are in, when they have grown by a fifth, and at the end, to
            show what they say.

    Raises:
        ComparisonError: a run's statement proves less than its target.
    """
    running: set[str] = set()
    done = sum(1 for _ in _distinct(experiment.due(store.rows), lambda key: key in store.rows))
    total = experiment.total(store.rows)
    store.begin()
    means.progress(done, total)

    def left() -> Iterator[PlannedRun]:
        return _distinct(
            experiment.due(store.rows),
            lambda key: not (key in store.rows or key in store.failed or key in running),
        )

    waiting, shown = left(), 0
    while True:
        while len(running) < executor.slots and (run := next(waiting, None)) is not None:
            if not means.go_on():
                waiting = iter(())
                break
            running.add(run.digest)
            executor.begin(run, store.place(run))
        if not running:
            show()
            return
        for run, result in executor.ended():
            running.discard(run.digest)
            if isinstance(result, ComparisonError):
                raise result
            if isinstance(result, Exception):
                store.failed[run.digest] = result
                told = f"failed: {one_line(result)}"
            else:
                told = experiment.outcome(store.add(result))
            done += 1
            means.say(f"{done}/{total}  {run.words}: {told}")
            means.progress(done, total)
            if run.decides:
                waiting, total = left(), experiment.total(store.rows)
        if len(store.rows) > shown * _GROWTH:
            shown = len(store.rows)
            show()


def read_time(text: str) -> float:
    """Return the seconds in a time such as "90s", "20m", "2h" or "1h30m".

    Raises:
        ConfigError: the string does not have this form.
    """
    match = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", text.strip())
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    found = 3600 * hours + 60 * minutes + seconds
    if found == 0:
        raise ConfigError(f"budget = {text}: write it as 90s, 30m or 2h")
    return float(found)


def end_of(budget: str | float | None) -> float | None:
    """Return when a budget ends, on the monotonic clock; None if there is none.

    Raises:
        ConfigError: it is not a time.
    """
    seconds = read_time(budget) if isinstance(budget, str) else budget
    if seconds is not None and seconds <= 0:
        raise ConfigError(
            f"budget = {seconds:g}: give a number of seconds above 0, or a time such as 20m"
        )
    return None if seconds is None else time.monotonic() + seconds


def _distinct(runs: Iterator[PlannedRun], wanted: Callable[[str], bool]) -> Iterator[PlannedRun]:
    """Yield each wanted run once; two cells of a table may share a run."""
    seen: set[str] = set()
    for run in runs:
        if run.digest not in seen and wanted(run.digest):
            seen.add(run.digest)
            yield run
