"""Measurements, both committed ones and the user's own, and what they are valid for.

A measurement is found by the digest of everything that determines it except the seed: see
``simulation.identity``.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import platformdirs

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import RunError
from fedldp.core.locks import Held, alone
from fedldp.experiments.reproduction.targets import papers_with_targets
from fedldp.simulation.identity import family_digest

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of a cell.

    Attributes:
        digest: a digest of everything that determines it except the seed: ``family_digest``.
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

    digest: str
    recipe: str
    seed: int
    rounds: int
    accuracies: list[float]
    device: Device
    hardware: str
    date: str
    seconds: float
    metrics: dict[str, list[float]] = field(default_factory=dict)

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
    """The user's own measurements: one file per run, written completely or not at all.

    An unfinished run has a folder there, so that it can continue where it was interrupted.

    Args:
        folder: created when the first measurement is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, measured: Measured) -> None:
        """Store one measurement.

        Raises:
            RunError: the folder cannot be written to.
        """
        from fedldp.reporting.record import replace_file

        path = self._path(measured)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, json.dumps(asdict(measured)).encode())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}; measurements are kept there") from error

    def has(self, measured: Measured) -> bool:
        """Return whether a measurement exists that ``write`` would replace."""
        return self._path(measured).exists()

    @contextmanager
    def under_way(
        self, digest: str, device: Device, seed: int, rounds: int
    ) -> Iterator[Path | None]:
        """Reserve a run's folder while it is measured: empty, or as an interrupted run left it.

        The folder is removed when the block ends normally, and kept if the block raises an error.
        Yields None if another process is measuring the same run.

        Raises:
            RunError: the folder cannot be written to.
        """
        path = self._folder / digest / _name(device, seed, rounds)
        with ExitStack() as stack:
            try:
                stack.enter_context(alone(path.with_suffix(".lock"), "measurement"))
            except Held:
                yield None
                return
            yield path
            shutil.rmtree(path, ignore_errors=True)

    def find(self, config: RunConfig, data: str, metric: str = "accuracy") -> list[Measured]:
        """Return a configuration's measurements of a metric: one per device and seed.

        An unreadable file counts as missing, so the run is measured again.
        """
        found: dict[tuple[str, int], Measured] = {}
        for path in sorted((self._folder / family_digest(config, data)).glob("*.json")):
            try:
                read = Measured(**json.loads(path.read_text()))
            except (OSError, ValueError, TypeError):
                continue
            if len(read.values(metric)) >= config.rounds:
                found[read.device, read.seed] = read
        return list(found.values())

    def _path(self, measured: Measured) -> Path:
        name = _name(measured.device, measured.seed, measured.rounds)
        return self._folder / measured.digest / f"{name}.json"


def _name(device: Device, seed: int, rounds: int) -> str:
    return f"{device}-seed{seed}-rounds{rounds}"


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


def hardware(device: Device) -> str:
    """Return a description of the machine, for readers of a measurement."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} cores ({platform.machine()}), no GPU"
