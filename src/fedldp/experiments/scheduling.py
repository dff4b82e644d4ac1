"""Makes the runs of an experiment that are due: the only loop over runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from fedldp.core.errors import ConfigError, one_line
from fedldp.experiments.proving import ComparisonError
from fedldp.experiments.runs import Experiment, PlannedRun, Row, RunExecutor
from fedldp.experiments.store import RunStore

_GROWTH = 1.2
"""How much the rows grow until what they say is shown again."""


def carry_out(
    experiment: Experiment,
    store: RunStore,
    executor: RunExecutor,
    *,
    go_on: Callable[[], bool] = lambda: True,
    say: Callable[[str], None] = lambda line: None,
    outcome: Callable[[Row], str] = lambda row: "",
    progress: Callable[[int, int], None] = lambda done, total: None,
    show: Callable[[], None] = lambda: None,
) -> None:
    """Make the runs that are due and not in the store, the most urgent first.

    A run that fails for an unforeseen reason is in ``store.failed`` and is not tried again by this
    call.

    Args:
        experiment: which runs are due.
        store: where rows are kept; a row is written as soon as its run has ended.
        executor: who makes the runs.
        go_on: called to ask whether another run may begin.
        say: called with a line about each run: how many of all runs are done, and its outcome.
        outcome: returns the outcome of a run in words, from its row.
        progress: called with the number of runs that are done and the number of all runs, also
            before the first run.
        show: called when the first rows are in, when they have grown by a fifth, and at the end, to
            show what they say.

    Raises:
        ComparisonError: a run's statement proves less than its target.
    """
    running: set[str] = set()
    done = sum(1 for _ in _distinct(experiment.due(store.rows), lambda key: key in store.rows))
    total = experiment.total(store.rows)
    store.begin()
    progress(done, total)

    def left() -> Iterator[PlannedRun]:
        return _distinct(
            experiment.due(store.rows),
            lambda key: not (key in store.rows or key in store.failed or key in running),
        )

    waiting, shown = left(), 0
    while True:
        while len(running) < executor.slots and (run := next(waiting, None)) is not None:
            if not go_on():
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
                told = outcome(store.add(result))
            done += 1
            say(f"{done}/{total}  {run.words}: {told}")
            progress(done, total)
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
