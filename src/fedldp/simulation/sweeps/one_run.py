"""One run of a sweep: begun, or continued where it was cut short."""

from __future__ import annotations

import json
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import FedldpError, first_line
from fedldp.data import Dataset
from fedldp.reporting.record import RunFolder
from fedldp.simulation.plan import early_plan


@dataclass(frozen=True)
class Means:
    """What all runs of a sweep share.

    Attributes:
        dataset: the data, where they are given.
        data_dir: the data folder.
        device: "auto", "cpu" or "cuda".
        workers: processes for each run that is not small.
        cluster: the address of a Ray cluster, whose tasks do the runs then.
    """

    dataset: Dataset | None = None
    data_dir: Path | None = None
    device: str = "cpu"
    workers: int = 1
    cluster: str | None = None


@dataclass(frozen=True)
class Order:
    """A run that is to be done: its recipe's name, its configuration, and its folder."""

    recipe: str
    config: RunConfig
    place: Path


def carry_out(order: Order, means: Means) -> str | None:
    """Do a run, or what is left of it; return why it failed, in one line, or None."""
    return attempt(lambda: _simulate(order, means))


def attempt(work: Callable[[], object]) -> str | None:
    """Do some work of a run; return why it failed, in one line, or None."""
    try:
        work()
    except FedldpError as error:
        return " ".join(str(error).split())
    except Exception as error:  # one run's bug, or its model's, does not end the others
        traceback.print_exc(file=sys.stderr)
        return f"{type(error).__name__}: {first_line(error)}; its traceback is on stderr"
    return None


def _simulate(order: Order, means: Means) -> None:
    from fedldp.simulation.engine import simulate  # imports torch, which takes seconds

    begun = (order.place / "config.json").exists()
    if not begun:
        shutil.rmtree(order.place, ignore_errors=True)  # killed before it was written
    planned = None if means.dataset is not None else early_plan(order.config, means.data_dir)
    simulate(
        order.config,
        recipe=order.recipe,
        dataset=means.dataset,
        data_dir=means.data_dir,
        device=means.device,
        workers=means.workers,
        alone_if_small=True,
        out=None if begun else order.place,
        resume=RunFolder(order.place) if begun else None,
        planned=planned,
    )


def summary_of(place: Path) -> dict[str, Any] | None:
    """Return what a finished run gave, or None where it has not finished."""
    try:
        found = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
