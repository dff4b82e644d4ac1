"""Copies the user's measurements to the committed results, or back; for maintainers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedldp.experiments.reproduction.comparison import Measurement, compare
from fedldp.experiments.reproduction.results import (
    Measured,
    MeasurementStore,
    Published,
    published,
    published_documents,
)
from fedldp.experiments.reproduction.targets import PaperTarget, source_of
from fedldp.simulation.identity import data_digests, family_digest


def documents(
    found: Iterable[PaperTarget], store: MeasurementStore, root: Path
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the committed results, each replaced by the one in ``store`` if that has more seeds.

    There is one document for each paper, by authors and year. A gain's deviation is stored with the
    gain's cells, and removed when these cells are replaced.
    """
    before = published_documents().items()
    cells = {row["recipe"]: (paper, row) for paper, each in before for row in each["cells"]}
    gains = {
        (row["target"], row["row"]): (paper, row) for paper, each in before for row in each["gains"]
    }
    for target in found:
        rows = compare(target, store, root, prove=False)
        for recipe, row in zip(target.cells, rows, strict=False):
            if row.ours is not None and not row.ours.published:
                config = recipe.config
                metric = source_of(recipe).metric
                own = metric != "accuracy"  # other metrics are not stored under ``same_as``
                name = recipe.name if own else recipe.same_as or recipe.name
                found_digest = family_digest(config, data_digests(config, root)[0])
                paper, _ = cells.get(name, (target.paper, None))  # two papers may share a result
                new = _row(name, found_digest, config.rounds, row.ours, metric)
                cells[name] = (paper, asdict(new))
        for gain, row in zip(target.gains, rows[len(target.cells) :], strict=True):
            if row.ours is not None and not row.ours.published:
                gains[target.name, gain.row] = (
                    target.paper,
                    {
                        "target": target.name,
                        "row": gain.row,
                        "seeds": row.ours.seeds,
                        "deviation": row.ours.deviation,
                    },
                )
    return {
        name: {
            "cells": [row for paper, row in cells.values() if paper == name],
            "gains": [row for paper, row in gains.values() if paper == name],
        }
        for name in dict.fromkeys(paper for paper, _ in [*cells.values(), *gains.values()])
    }


def restore(store: MeasurementStore) -> None:
    """Write the one-seed committed results to ``store`` as runs, so that seeds can be added.

    An existing run is kept. Results over several seeds are only means, so no runs can be restored
    from them.
    """
    for run in _runs():
        store.write(run)


def _runs() -> list[Measured]:
    """Return the runs of committed results that have one seed, without the runs' durations."""
    found: dict[tuple[str, int], list[Published]] = {}
    for row in published().values():
        if len(row.seeds) == 1 and len(row.after) == row.rounds:
            found.setdefault((row.digest, row.rounds), []).append(row)
    return [_run(rows) for rows in found.values()]


def _run(rows: list[Published]) -> Measured:
    """Return the run whose metrics are ``rows``."""
    first = rows[0]
    curves = {
        row.metric: [mean for mean, _ in row.after.values() if mean is not None] for row in rows
    }
    return Measured(
        family=first.digest,
        recipe=first.recipe,
        seed=first.seeds[0],
        rounds=first.rounds,
        accuracies=curves.pop("accuracy", []),
        device=first.device,
        hardware=first.hardware,
        date=first.date,
        seconds=0.0,
        metrics=curves,
    )


def text_of(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the content of a paper's committed file: one result per line."""
    parts = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]"
        for name, rows in results.items()
    )
    return "{" + ", ".join(parts) + "}\n"


def _row(name: str, found: str, rounds: int, ours: Measurement, metric: str) -> Published:
    return Published(
        recipe=name,
        digest=found,
        rounds=rounds,
        seeds=ours.seeds,
        mean=_short(ours.mean),
        deviation=None if ours.deviation is None else _short(ours.deviation),
        after={
            str(n): [_short(mean), None if spread is None else _short(spread)]
            for n, (mean, spread) in ours.after.items()
        },
        device=ours.device,
        hardware=ours.hardware,
        date=ours.date,
        metric=metric,
    )


def _short(value: float) -> float:
    return round(value, 6)
