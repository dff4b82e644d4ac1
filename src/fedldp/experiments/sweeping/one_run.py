"""One run of a sweep, from its beginning or from where it was interrupted."""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import FedldpError, first_line
from fedldp.data import Dataset
from fedldp.reporting.record import RunFolder
from fedldp.simulation.plan import early_plan


@dataclass(frozen=True)
class RunContext:
    """The settings and data that all runs of a sweep share.

    Attributes:
        dataset: the data, if they are given.
        data_dir: the data folder.
        device: "auto", "cpu" or "cuda".
        workers: the number of processes for each run that is not small.
        cluster: the address of a Ray cluster, if its tasks carry out the runs.
    """

    dataset: Dataset | None = None
    data_dir: Path | None = None
    device: str = "cpu"
    workers: int = 1
    cluster: str | None = None

    def carry_out(self, task: RunTask) -> str | None:
        """Carry out a run; see ``carry_out``."""
        return carry_out(task, self)

    def with_workers(self, workers: int) -> Self:
        """Return the same context with this many processes per run."""
        return replace(self, workers=workers)


@dataclass(frozen=True)
class RunTask:
    """A run to do: its recipe's name, its configuration, and its folder."""

    recipe: str
    config: RunConfig
    place: Path


def carry_out(task: RunTask, context: RunContext) -> str | None:
    """Carry out a run, or the rest of it; return why it failed, on one line, or None."""
    return attempt(lambda: _simulate(task, context))


def attempt(work: Callable[[], object]) -> str | None:
    """Carry out some work of a run; return why it failed, on one line, or None."""
    try:
        work()
    except FedldpError as error:
        return " ".join(str(error).split())
    except Exception as error:  # a bug in one run, or in its model, must not end the others
        traceback.print_exc(file=sys.stderr)
        return f"{type(error).__name__}: {first_line(error)}; its traceback is on stderr"
    return None


def _simulate(task: RunTask, context: RunContext) -> None:
    from fedldp.simulation.engine import simulate  # imports torch, which takes seconds

    begun = (task.place / "config.json").exists()
    if not begun:
        shutil.rmtree(task.place, ignore_errors=True)  # killed before it wrote its config
    planned = None if context.dataset is not None else early_plan(task.config, context.data_dir)
    simulate(
        task.config,
        recipe=task.recipe,
        dataset=context.dataset,
        data_dir=context.data_dir,
        device=context.device,
        workers=context.workers,
        alone_if_small=True,
        out=None if begun else task.place,
        resume=RunFolder(task.place) if begun else None,
        planned=planned,
    )


def summary_of(place: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run; None if it has not finished."""
    try:
        found = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
