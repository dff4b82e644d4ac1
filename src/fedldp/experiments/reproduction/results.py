"""What is measured: the committed results, and the user's own runs, and what both are valid for.

A run is found by the digest of everything that determines it except the seed: see
``simulation.identity``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import platformdirs
from pydantic import BaseModel, ConfigDict

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Recipe
from fedldp.experiments.reproduction.targets import (
    papers_with_targets,
    source_of,
)
from fedldp.experiments.runs import Row
from fedldp.experiments.store import RESULTS, RunStore
from fedldp.experiments.table import deviation_of
from fedldp.simulation.identity import data_digests, family_digest

Device = Literal["cpu", "cuda"]

NOWHERE = Path("/nonexistent")
"""A data folder without data, so that what is shown is the same on every machine."""


class Measurement(BaseModel):
    """The measured value of a cell over several seeds, on one kind of device.

    The first attributes are those of a cell in ``published.json``.

    Attributes:
        digest: of everything that determines its runs except the seed: ``family_digest``.
        rounds: number of rounds in each run.
        seeds: the seeds of the runs.
        mean: mean over the seeds of the metric after the last round, 0 to 1.
        deviation: sample standard deviation over seeds; None for one seed.
        after: mean and deviation after some of the rounds, by round.
        device: the device that trained.
        hardware: the machine, in words.
        date: the date of the latest run, in ISO format.
        metric: the name of the metric.
        published: whether this is a committed result.
        stand_in: whether it was measured on a smaller stand-in for the data set.
    """

    model_config = ConfigDict(frozen=True)

    digest: str
    rounds: int
    seeds: list[int]
    mean: float
    deviation: float | None
    after: dict[int, tuple[float, float | None]]
    device: Device
    hardware: str
    date: str
    metric: str = "accuracy"
    published: bool = False
    stand_in: bool = False

    @classmethod
    def of_runs(cls, runs: Sequence[Row], rounds: int, metric: str) -> Self:
        """Return the first rounds of runs with different seeds, in the order of their seeds."""
        curves = [curve_of(run, metric) for run in runs]
        after = {n: _both([curve[n - 1] for curve in curves]) for n in range(1, rounds + 1)}
        mean, deviation = after[rounds]
        return cls(
            digest=runs[0]["family"],
            rounds=rounds,
            seeds=[run["seed"] for run in runs],
            mean=mean,
            deviation=deviation,
            after=after,
            device=runs[0]["device"],
            hardware=runs[-1]["hardware"],
            date=max(run["date"] for run in runs),
            metric=metric,
        )


class Measurements:
    """What is measured on one kind of device: the user's own runs, and the committed results.

    Args:
        folder: the user's own runs, in a folder for each device; created with the first run. With
            None, only committed results count.
        root: the data folder; it determines whether a data set or its stand-in is used.
        device: the device.
    """

    def __init__(
        self, folder: Path | None = None, root: Path = NOWHERE, device: Device = "cpu"
    ) -> None:
        self.root = root
        self.device = device
        self.folder = None if folder is None else folder / device
        self.read()

    def read(self) -> None:
        """Read the user's own runs.

        Raises:
            RunError: their file is damaged.
        """
        self._own = {} if self.folder is None else RunStore(self.folder / RESULTS).rows

    def data(self, config: RunConfig) -> str:
        """Return the digest of the data that a configuration uses."""
        return data_digests(config, self.root)[0]

    def family(self, config: RunConfig) -> str:
        """Return the digest that the runs of a configuration share; see ``family_digest``."""
        return family_digest(config, self.data(config))

    def runs(self, recipe: Recipe) -> dict[int, Row]:
        """Return the user's runs of a cell by seed, in the order of the seeds."""
        family, metric = self.family(recipe.config), source_of(recipe).metric
        found = {
            row["seed"]: row
            for row in self._own.values()
            if row["family"] == family and len(curve_of(row, metric)) >= recipe.config.rounds
        }
        return dict(sorted(found.items()))

    def of(self, recipe: Recipe) -> Measurement | None:
        """Return the user's own measurement of a cell, or the committed one if it has more seeds.

        None if there is neither.
        """
        config, metric = recipe.config, source_of(recipe).metric
        runs, kept = list(self.runs(recipe).values()), published_of(recipe)
        found = [Measurement.of_runs(runs, config.rounds, metric)] if runs else []
        found += [kept] if kept is not None and kept.device == self.device else []
        if not found:
            return None
        best = max(found, key=lambda each: len(each.seeds))
        whole = family_digest(config, data_digests(config)[0])
        return best.model_copy(update={"stand_in": best.digest != whole})


def default_cache() -> Path:
    """Return the folder of the user's own runs."""
    return Path(platformdirs.user_cache_dir("fedldp")) / "reproduction"


def curve_of(run: Row, metric: str) -> list[float]:
    """Return a run's metric after every round; empty if it was not stored."""
    found: list[float] = (
        run["accuracies"] if metric == "accuracy" else run["metrics"].get(metric, [])
    )
    return found


def _both(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.fmean(values), deviation_of(values)


@cache
def published_documents() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the content of each paper's ``published.json``, by authors and year."""
    files = {name: paper.folder / "published.json" for name, paper in papers_with_targets().items()}
    return {
        name: json.loads(file.read_text(encoding="utf-8"))
        for name, file in files.items()
        if file.exists()
    }


@cache
def published() -> dict[str, Measurement]:
    """Return the committed results by recipe, whether or not they are still valid."""
    found: dict[str, Measurement] = {}
    for document in published_documents().values():
        for cell in document["cells"]:
            last = {str(cell["rounds"]): (cell["mean"], cell["deviation"])}
            more = {"after": cell["after"] | last, "published": True}
            found[cell["recipe"]] = Measurement.model_validate(cell | more)
    return found


def published_of(recipe: Recipe) -> Measurement | None:
    """Return the committed result of a recipe, if one is still valid.

    It may be that of another recipe with the same runs, or with longer ones; of several results,
    that with the most seeds, and the shortest run.
    """
    config, metric = recipe.config, source_of(recipe).metric
    last = config.rounds
    valid = [family_digest(config, data) for data in data_digests(config)]
    found = [
        each
        for each in published().values()
        if each.digest in valid and each.metric == metric and last in (each.rounds, *each.after)
    ]
    if not found:
        return None
    best = min(found, key=lambda each: (-len(each.seeds), each.rounds))
    if best.rounds == last:
        return best
    mean, deviation = best.after[last]
    curve = {n: both for n, both in best.after.items() if n <= last}
    return best.model_copy(
        update={"rounds": last, "mean": mean, "deviation": deviation, "after": curve}
    )
