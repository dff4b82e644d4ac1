"""Measurements, both committed ones and the user's own, and what they are valid for.

A measurement is found by the digest of everything that determines it except the seed: see
``simulation.identity``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import platformdirs

from fedldp.algorithms.config import RunConfig
from fedldp.core.locks import owned
from fedldp.experiments.reproduction.targets import papers_with_targets
from fedldp.experiments.runs import Row
from fedldp.experiments.store import RESULTS, RunStore
from fedldp.simulation.identity import family_digest

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of a cell.

    Attributes:
        family: a digest of everything that determines it except the seed: ``family_digest``.
        recipe: the name of the recipe, for display.
        seed: the seed of the simulation.
        rounds: number of rounds.
        accuracies: the accuracy after every round, 0 to 1.
        device: the device that trained.
        hardware: the machine, in words.
        date: the date, in ISO format.
        seconds: the total time of all rounds; 0 if unknown.
        metrics: the system's metrics besides accuracy, each after every round.
    """

    family: str
    recipe: str
    seed: int
    rounds: int
    accuracies: list[float]
    device: Device
    hardware: str
    date: str
    seconds: float
    metrics: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Row) -> Measured:
        """Return a row of a store, or of ``Maker.make``, as a measurement."""
        return cls(**{each.name: row[each.name] for each in fields(cls)})

    def key(self) -> str:
        """Return what names it among the user's measurements."""
        return f"{self.family}-{self.device}-seed{self.seed}-rounds{self.rounds}"

    def values(self, metric: str) -> list[float]:
        """Return a metric after every round; empty if it was not stored."""
        return self.accuracies if metric == "accuracy" else self.metrics.get(metric, [])


@dataclass(frozen=True, kw_only=True)
class Published:
    """A cell's committed result, over several seeds.

    Attributes:
        recipe: the recipe of the cell.
        digest: a digest of everything that determines it except the seed: ``family_digest``.
        rounds: number of rounds in each of its runs.
        seeds: the seeds of its runs.
        mean: accuracy after the last round, or another metric, 0 to 1.
        deviation: sample standard deviation over the seeds; None for one seed.
        after: mean and deviation after other rounds, by round.
        device: the device that trained.
        hardware: the machine, in words.
        date: the date, in ISO format.
        metric: the name of the metric.
    """

    recipe: str
    digest: str
    rounds: int
    seeds: list[int]
    mean: float
    deviation: float | None
    after: dict[str, list[float | None]]
    device: Device
    hardware: str
    date: str
    metric: str = "accuracy"


def default_cache() -> Path:
    """Return the folder of the user's own measurements."""
    return Path(platformdirs.user_cache_dir("fedldp")) / "reproduction"


class MeasurementStore:
    """The user's own measurements: the rows of a folder for each device.

    Args:
        folder: created when the first measurement is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stores: dict[str, RunStore] = {}

    @contextmanager
    def opened(self, device: Device) -> Iterator[RunStore]:
        """Own the folder of a device's measurements, to add some.

        Raises:
            Held: another process owns it.
            RunError: the folder cannot be written to, or its file is damaged.
        """
        with owned(self._folder / device, "cache", "reproduction") as own:
            store = self._stores[device] = RunStore(own.path / RESULTS)
            yield store

    def write(self, measured: Measured) -> None:
        """Store one measurement; one that exists is kept.

        Raises:
            RunError: the folder cannot be written to.
        """
        with self.opened(measured.device) as store:
            if measured.key() not in store.rows:
                store.add({"digest": measured.key(), **asdict(measured)})

    def find(self, config: RunConfig, data: str, metric: str = "accuracy") -> list[Measured]:
        """Return a configuration's measurements of a metric: one per device and seed."""
        found: dict[tuple[str, int], Measured] = {}
        family = family_digest(config, data)
        for device in get_args(Device):
            if device not in self._stores:
                self._stores[device] = RunStore(self._folder / device / RESULTS)
            for row in self._stores[device].rows.values():
                if row["family"] == family:
                    read = Measured.of(row)
                    if len(read.values(metric)) >= config.rounds:
                        found[read.device, read.seed] = read
        return list(found.values())


@cache
def published_documents() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the content of each paper's ``published.json``, by authors and year."""
    files = {name: paper.folder / "published.json" for name, paper in papers_with_targets().items()}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }


def published() -> dict[str, Published]:
    """Return the committed results by recipe, whether or not they are still valid."""
    rows = (row for document in published_documents().values() for row in document["cells"])
    return {row["recipe"]: Published(**row) for row in rows}


def published_gains() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the deviations of committed gains over paired seeds, by target and row."""
    rows = (row for document in published_documents().values() for row in document["gains"])
    return {(row["target"], row["row"]): row for row in rows}
