"""The runs of an experiment: what is planned, their data, their rows, and how seeds are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset

Row = dict[str, Any]
"""One finished or refused run: a line of results.jsonl; see ``Maker.make``."""


def score(row: Row, metric: str = "accuracy") -> float | None:
    """Return the value of a metric in a run's line; None if the line has no value."""
    found: float | None = row.get("accuracy")
    if metric != "accuracy":
        found = row.get("metrics", {}).get(metric)
    return found


Settings = Mapping[str, Any]
"""Settings by name."""


class Shared:
    """Data that each process loads once, when it needs them; it can be pickled.

    Args:
        load: returns the data.
        travels: whether the data are pickled, because another process cannot load them; if not,
            ``load`` is.
    """

    def __init__(self, load: Callable[[], Dataset], *, travels: bool = False) -> None:
        self._load: Callable[[], Dataset] | None = load
        self._travels = travels
        self._data: Dataset | None = None

    def __call__(self) -> Dataset:
        """Return the data."""
        if self._data is None:
            assert self._load is not None
            self._data = self._load()
        return self._data

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that another process needs."""
        if self._travels:
            return {"_load": None, "_travels": True, "_data": self()}
        return {**vars(self), "_data": None}


@dataclass(frozen=True)
class Task:
    """A learning task: its data and common settings.

    Attributes:
        name: the task's name.
        load: returns the data for training, standardised or not; the test set is only for
            measuring. It is called for every run; see ``Shared``.
        settings: the settings of all contestants on this task: ``dataset``, ``model``,
            ``partition`` and whatever else must be equal.
        divided: how a run divides the training set (a scheme of ``fedldp.data.partition``), so that
            whole clients are held out for the tries; with None, single examples are held out, and
            no client has them. This has no effect on data that name their clients or people: whole
            clients or people are then held out.
        num_examples: the number of training examples to divide; None for all.
        part: what the data are, in a digest, if not a data set as it was loaded: one site's rows,
            or other features.
    """

    name: str
    load: Callable[[], Dataset]
    settings: Settings
    divided: str | None = field(default=None, kw_only=True)
    num_examples: int | None = field(default=None, kw_only=True)
    part: str = field(default="", kw_only=True)

    def words(self, held_out: bool) -> str:
        """Return in words what is held out of the training set to choose a try; else nothing."""
        if not held_out:
            return ""
        return "a held-out part" if self.divided is None else "clients that are held out"


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run that an experiment plans.

    Attributes:
        digest: the digest of everything that determines the run's numbers; runs of one digest are
            one run. See ``identity``.
        words: the run in words, for progress.
        labels: what the run's row says besides its numbers; it determines nothing.
        config: the run's configuration, with its seed; None if its settings are incompatible.
        refused: why, if they are.
        task: the name of the task whose data the run uses.
        held_out: whether the run is tested on a part of the training set that no client then has.
        calibrated: whether the budget is solved for so that the statement meets ``config.target``.
        place: the name of the run's own folder, with which an interrupted run continues; None for
            a run that is made in one go.
        keeps_curve: whether the run keeps its metrics after every round in its row, and not its
            folder.
        decides: whether later runs depend on this run's score.
        keeps_predictions: whether its row keeps the predictions on the test set, as private as the
            test set is.
    """

    digest: str
    words: str
    labels: Mapping[str, Any]
    config: RunConfig | None
    refused: str | None = None
    task: str = ""
    held_out: bool = False
    calibrated: bool = False
    place: str | None = None
    keeps_curve: bool = False
    decides: bool = False
    keeps_predictions: bool = False


Ended = tuple[PlannedRun, Row | Exception]
"""A run that has ended, and its row, or the error that prevented it."""


class RunExecutor(Protocol):
    """Makes runs; each has, bit for bit, the numbers that a single process would give it."""

    @property
    def slots(self) -> int:
        """How many runs are made at the same time."""
        ...

    def begin(self, run: PlannedRun, place: Path | None) -> None:
        """Begin a run while fewer than ``slots`` are under way.

        Args:
            run: the run.
            place: its own folder, if it keeps one; a run that was begun continues from there.
        """
        ...

    def ended(self) -> Sequence[Ended]:
        """Return the runs that have ended since the last call, after at most half a second.

        Raises:
            FedldpError: a node of a cluster differs from this machine.
        """
        ...

    def close(self) -> None:
        """Stop making runs, at the end or if interrupted."""
        ...


_MOST = 10_000


def read_seeds(text: str) -> list[int]:
    """Return the seeds in a string such as "0-4" or "0,2,5".

    Raises:
        ConfigError: the string does not have this form.
    """
    found: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 <= last - first < _MOST:
            raise ConfigError(f"seeds {text}: write them as 0-4, or as 0,2,5")
        found += range(first, last + 1)
    return found


def check_seeds(seeds: Sequence[int], chosen_on: int | None = None) -> None:
    """Refuse seeds that are no integers, occur twice, or may not be measured.

    Args:
        seeds: the seeds.
        chosen_on: the seed on which tries are scored, if there are tries.

    Raises:
        ConfigError: there are such seeds, or none at all.
    """
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds)
    if not seeds or not whole or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds = {list(seeds)}: give one or more different integers from 0")
    if chosen_on in seeds:
        raise ConfigError(
            f"seeds = {list(seeds)}: tries are scored on seed {chosen_on}, which is not measured; "
            "leave it out"
        )
