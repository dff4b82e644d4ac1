"""A target's cells: the paper's number, our number, and a verdict on the difference."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Expected, Recipe
from fedldp.core.errors import FedldpError
from fedldp.core.registry import paper_folders
from fedldp.experiments.reproduction.results import (
    Device,
    Measured,
    MeasurementStore,
    published,
    published_gains,
)
from fedldp.experiments.reproduction.targets import Gain, PaperTarget, source_of
from fedldp.simulation.identity import data_digests, family_digest
from fedldp.simulation.plan import problem_of, stated_without_shuffler

Verdict = Literal["agrees", "differs", "explained", "unexplained", "no number", "not measured"]

WORTH_A_REASON = 0.01
"""A committed cell that differs by more than this fraction needs a reason, whatever its
tolerance."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The measured value of a cell, on one kind of device.

    Attributes:
        mean: mean accuracy, another metric, or a gain, 0 to 1.
        deviation: sample standard deviation over seeds; None for one seed.
        seeds: the seeds of the runs.
        after: the mean accuracy and its deviation after some of the rounds, by round.
        device: the device that trained.
        hardware: the machine, in words.
        date: the date of the latest run, in ISO format.
        published: whether this is a committed result.
        stand_in: whether it was measured on a smaller stand-in for the data set.
    """

    mean: float
    deviation: float | None
    seeds: list[int]
    after: dict[int, tuple[float, float | None]]
    device: Device
    hardware: str
    date: str
    published: bool
    stand_in: bool = False


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why our number differs from a paper's.

    Attributes:
        text: the reason, in words.
        explains: whether the cause is known. If not, the text gives a possible cause, and the
            command that would test it.
    """

    text: str
    explains: bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """A cell with its comparison.

    Attributes:
        row: the row of the table, or the name of a curve.
        column: the column of the table, or a point of the curve.
        recipe: the recipe's name; for a gain, "FIRST - SECOND" for each pair, joined by "; ".
        paper: the paper's number, 0 to 1; None if the paper gives none.
        paper_lowest: the lower end, if the paper gives a range; ``paper`` is the upper end.
        difference: our number minus the paper's; 0 if ours is within the paper's range.
        tolerance: the largest difference that counts as agreement.
        ours: the measurement, or None.
        verdict: the result of the comparison.
        why: the cause of a difference of more than a point, or a note that the cause is not known.
        epsilon: the epsilon proven for a client's whole run against the server; None if none is
            proven, or for a gain.
        delta: the delta of that epsilon.
        idealised: whether that guarantee holds only in idealised arithmetic.
    """

    row: str
    column: str
    recipe: str
    paper: float | None
    paper_lowest: float | None
    difference: float | None
    tolerance: float | None
    ours: Measurement | None
    verdict: Verdict
    why: str | None
    epsilon: float | None = None
    delta: float | None = None
    idealised: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return a cell in the form that ``fedldp reproduce --json`` prints."""
        ours = self.ours
        return {
            "row": self.row,
            "column": self.column,
            "recipe": self.recipe,
            "paper": self.paper,
            "paper_lowest": self.paper_lowest,
            "tolerance": self.tolerance,
            "mean": ours and ours.mean,
            "deviation": ours and ours.deviation,
            "seeds": ours.seeds if ours else [],
            "difference": self.difference,
            "verdict": self.verdict,
            "why": self.why,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "idealised": self.idealised,
            "device": ours and ours.device,
            "hardware": ours and ours.hardware,
            "date": ours and ours.date,
            "published": ours is not None and ours.published,
            "stand_in": ours is not None and ours.stand_in,
            "after": {str(k): v for k, v in ours.after.items()} if ours else {},
        }


def compare(
    target: PaperTarget,
    store: MeasurementStore,
    root: Path,
    *,
    device: Device | None = None,
    prove: bool = True,
) -> list[Row]:
    """Return a target's rows with everything known about them, without running anything.

    Args:
        target: the table or figure.
        store: the user's measurements.
        root: the data folder; it determines whether a data set or its stand-in is used.
        device: only measurements on this device are used; with None, those on the device with more
            seeds.
        prove: whether to compute the proven epsilons, which takes longer than everything else.
    """
    rows, reasons = [], known()
    for recipe in target.cells:
        source = source_of(recipe)
        ours = ours_of(recipe, store, root, device)
        epsilon, delta, idealised = proven(recipe.config, root) if prove else (None, None, False)
        rows.append(
            Row(
                row=source.row,
                column=source.column,
                recipe=recipe.name,
                **_judged(recipe.expected, ours, reasons.get(recipe.name), _published_of(recipe)),
                epsilon=epsilon,
                delta=delta,
                idealised=idealised,
            )
        )
    for gain in target.gains:
        ours = _gain(target, gain, store, root, device)
        why = reasons.get(f"{target.name}: {gain.row}")
        recipe_names = "; ".join(" - ".join(pair) for pair in gain.pairs)
        rows.append(
            Row(
                row=gain.row,
                column=gain.column,
                recipe=recipe_names,
                **_judged(gain.expected, ours, why, None),
            )
        )
    return rows


def ours_of(
    recipe: Recipe, store: MeasurementStore, root: Path, device: Device | None
) -> Measurement | None:
    """Return the measurement of a recipe: the user's runs, or committed ones with more seeds."""
    config, data = recipe.config, data_digests(recipe.config, root)[0]
    metric = source_of(recipe).metric
    found, whole = store.find(config, data, metric), data_digests(config)[0]
    own = [
        replace(_together(_of_device(found, kind), config, metric), stand_in=data != whole)
        for kind in sorted({one.device for one in found})
    ]
    row = _published_of(recipe)
    candidates = [each for each in [*own, row] if each and device in (None, each.device)]
    return max(candidates, key=lambda each: len(each.seeds), default=None)


def proven(config: RunConfig, root: Path) -> tuple[float | None, float | None, bool]:
    """Return the least epsilon proven for a client's whole run against the server, and its delta.

    The third value says whether that guarantee is idealised. The first two are None if no finite
    epsilon is proven.
    """
    try:
        lines = stated_without_shuffler(config, problem_of(config, root)).guarantees
    except FedldpError:  # such as a missing file of the user's own
        return None, None, False
    found = [
        (line.epsilon, line.delta, line.is_idealised)
        for line in lines
        if (line.unit, line.adversary) == ("client-run", "server") and line.epsilon is not None
    ]
    return min(found, default=(None, None, False))


def _judged(
    expected: Expected | None,
    ours: Measurement | None,
    why: Reason | None,
    committed: Measurement | None,
) -> dict[str, Any]:
    """Return a row's comparison of the paper's number with ours.

    A reason explains the committed number and numbers near it, but not every later result.
    """
    verdict: Verdict
    difference = expected.difference(ours.mean) if ours and expected else None
    if ours is None:
        verdict = "not measured"
    elif expected is None or difference is None:
        verdict = "no number"
    elif abs(difference) <= expected.tolerance:
        verdict = "agrees"
    else:
        near = committed is None or abs(ours.mean - committed.mean) <= expected.tolerance
        if why is None or not near:
            verdict = "differs"
        else:
            verdict = "explained" if why.explains else "unexplained"
    far = difference is not None and abs(difference) > WORTH_A_REASON
    return {
        "paper": expected and expected.accuracy,
        "paper_lowest": expected and expected.lowest,
        "difference": difference,
        "tolerance": expected and expected.tolerance,
        "ours": ours,
        "verdict": verdict,
        "why": why.text if why and far and verdict != "differs" else None,
    }


def _of_device(found: Sequence[Measured], device: Device) -> list[Measured]:
    return sorted((one for one in found if one.device == device), key=lambda one: one.seed)


def _together(runs: Sequence[Measured], config: RunConfig, metric: str) -> Measurement:
    curves = [run.values(metric) for run in runs]
    finals = [curve[config.rounds - 1] for curve in curves]
    rounds = range(1, config.rounds + 1)
    return Measurement(
        mean=statistics.fmean(finals),
        deviation=_deviation(finals),
        seeds=[run.seed for run in runs],
        after={n: _both([curve[n - 1] for curve in curves]) for n in rounds},
        device=runs[0].device,
        hardware=runs[-1].hardware,
        date=max(run.date for run in runs),
        published=False,
    )


def _both(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.fmean(values), _deviation(values)


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _published_of(recipe: Recipe) -> Measurement | None:
    """Return the committed result of a recipe, under any of its names, if it is still valid."""
    config, metric = recipe.config, source_of(recipe).metric
    valid = [family_digest(config, data) for data in data_digests(config)]
    for row in published().values():
        # The rounds after a result's last one are unknown, so a result is valid only for its own
        # number of rounds.
        if row.digest in valid and (row.rounds, row.metric) == (config.rounds, metric):
            return Measurement(
                mean=row.mean,
                deviation=row.deviation,
                seeds=row.seeds,
                after={int(n): (m, spread) for n, (m, spread) in row.after.items() if m is not None}
                | {row.rounds: (row.mean, row.deviation)},
                device=row.device,
                hardware=row.hardware,
                date=row.date,
                published=True,
                stand_in=row.digest != valid[0],
            )
    return None


def _gain(
    target: PaperTarget, gain: Gain, store: MeasurementStore, root: Path, device: Device | None
) -> Measurement | None:
    """Return the mean difference over the pairs, from the seeds that all of them have."""
    by_name = {recipe.name: recipe for recipe in target.cells}
    kinds: tuple[Device, ...] = ("cpu", "cuda") if device is None else (device,)
    found = [_own_gain(gain, by_name, store, root, kind) for kind in kinds]
    kept = _published_gain(target, gain, by_name)
    if kept is not None and kept.device in kinds:
        found.append(kept)
    return max(filter(None, found), key=lambda each: len(each.seeds), default=None)


def _published_gain(
    target: PaperTarget, gain: Gain, by_name: dict[str, Recipe]
) -> Measurement | None:
    """Return a gain from committed results, if all of them have the same seeds and device."""
    parts = [_published_of(by_name[name]) for pair in gain.pairs for name in pair]
    kept = [each for each in parts if each is not None]
    if len(kept) < len(parts) or len({(*each.seeds, each.device) for each in kept}) > 1:
        return None
    first, row = kept[0], published_gains().get((target.name, gain.row))
    return replace(
        first,
        # The mean of paired differences is the difference of means; the deviation of the
        # differences is stored separately.
        mean=2 * statistics.fmean((-1) ** n * each.mean for n, each in enumerate(kept)),
        deviation=row["deviation"] if row and row["seeds"] == first.seeds else None,
        after={},
        date=max(each.date for each in kept),
    )


def _own_gain(
    gain: Gain, by_name: dict[str, Recipe], store: MeasurementStore, root: Path, device: Device
) -> Measurement | None:
    runs = {
        name: {run.seed: run for run in _of_device(store.find(config, data), device)}
        for pair in gain.pairs
        for name in pair
        for config in [by_name[name].config]
        for data in [data_digests(config, root)[0]]
    }
    seeds = sorted(set.intersection(*(set(each) for each in runs.values())))
    if not seeds:
        return None

    def final(name: str, seed: int) -> float:
        return runs[name][seed].accuracies[by_name[name].config.rounds - 1]

    values = [
        statistics.fmean(final(one, seed) - final(other, seed) for one, other in gain.pairs)
        for seed in seeds
    ]
    some = [run for each in runs.values() for run in each.values()]
    return Measurement(
        mean=statistics.fmean(values),
        deviation=_deviation(values),
        seeds=seeds,
        after={},
        device=device,
        hardware=some[-1].hardware,
        date=max(run.date for run in some),
        published=False,
    )


def known() -> dict[str, Reason]:
    """Return why our numbers differ from papers' numbers, by recipe, or by a gain's target and row.

    A paper's folder has the reasons in ``known.toml``. Every committed cell that differs by more
    than a point from the paper's number has one: a cause, with the run that tested it, or else
    ``explained = false``. A cell outside its tolerance that has none makes ``fedldp reproduce
    --check`` fail.
    """
    documents = (
        tomllib.loads(Path(file).read_text(encoding="utf-8"))
        for file in paper_folders("known.toml")
    )
    return {
        name: Reason(text=each["why"], explains=each["explained"])
        for document in documents
        for each in document["known"]
        for name in each["of"]
    }
