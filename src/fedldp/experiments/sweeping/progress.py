"""A sweep's plan and progress on stderr: a bar of rounds in a terminal, a line for each run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedldp.experiments.sweeping.grid import Job
from fedldp.experiments.sweeping.sweeps import Planned, Watcher
from fedldp.reporting.scores import is_imbalanced
from fedldp.reporting.words import percent


class SweepProgress(Watcher):
    """Shows the progress of a sweep; use it as a context manager.

    Args:
        console: the console to write to, stderr.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._total = self._ended = 0
        self._open: dict[Path, Job] = {}
        self._rounds = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def planned(self, plan: Planned) -> None:
        """Show the plan, and the runs that are refused before they begin."""
        rounds = sum(job.config.rounds for job in plan.places.values() if job.config is not None)
        refused = [job for job in plan.jobs if job.refused is not None]
        at_once = f", {plan.at_once} at once" if plan.at_once > 1 else ""
        done = f"; {plan.finished} finished before" if plan.finished else ""
        cells = len(plan.places) // len(plan.design.seeds)
        self._say(
            f"sweep      {_many(len(plan.places), 'run')} ({_many(cells, 'combination')}, "
            f"{_many(len(plan.design.seeds), 'seed')} each), {_many(rounds, 'round')} in all"
            f"{at_once}{done}"
        )
        if plan.out is not None:
            self._say(f"folder     {plan.out}")
        for name, keys in plan.design.lacking().items():
            self._say(f"note       {name} has no {', '.join(keys)}, and runs without")
        for job in refused:
            self._say(f"refused    {job.label}: {job.refused}")
        self._total, self._open = len(plan.places), dict(plan.places)
        self._ended = plan.finished
        self._rounds = rounds
        if self._console.is_terminal:
            self._start_bar()

    def done(self, job: Job, run: Mapping[str, Any] | None, reason: str | None) -> None:
        """Show a run that ended."""
        self._ended += 1
        end = f"failed: {reason}"
        if run is not None:
            metrics = run.get("metrics", {})
            known = is_imbalanced(metrics.get("most_frequent")) and metrics["auc"] is not None
            first = f"AUC {metrics['auc']:.4f}  " if known else ""
            end = f"{first}accuracy {percent(run['accuracy'])}  {run['seconds']:.1f} s"
        self._say(f"run {self._ended}/{self._total}  {job.label}  {end}")
        self.tick()

    def tick(self) -> None:
        """Show how many rounds of all runs are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=sum(map(_rounds_done, self._open)))

    def _start_bar(self) -> None:
        self._bar = Progress(
            TextColumn("round {task.completed}/{task.total}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("rounds", total=self._rounds)
        self._bar.start()
        self.tick()

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _rounds_done(place: Path) -> int:
    """Return how many rounds a run's folder holds; another process may be writing to it."""
    try:
        return (place / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0
