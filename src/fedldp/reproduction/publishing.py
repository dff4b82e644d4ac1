"""From the user's measurements to the committed ones: what a maintainer does after long runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedldp.reproduction.comparison import Ours, compare
from fedldp.reproduction.results import (
    Published,
    Store,
    data_digests,
    digest,
    published,
    published_gains,
)
from fedldp.reproduction.targets import Target, source_of


def document(found: Iterable[Target], store: Store, root: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the committed results, with those of ``store`` in place of what has fewer seeds.

    A gain's deviation is kept with the cells that it is of, and goes when they are replaced.
    """
    cells = {name: asdict(row) for name, row in published().items()}
    gains = {key: dict(row) for key, row in published_gains().items()}
    for target in found:
        rows = compare(target, store, root, prove=False)
        for recipe, row in zip(target.cells, rows, strict=False):
            if row.ours is not None and not row.ours.published:
                config = recipe.config
                metric = source_of(recipe).metric
                own = metric != "accuracy"  # no other name of the run stands for it
                name = recipe.name if own else recipe.same_as or recipe.name
                found_digest = digest(config, data_digests(config, root)[0])
                cells[name] = asdict(_row(name, found_digest, config.rounds, row.ours, metric))
        for gain, row in zip(target.gains, rows[len(target.cells) :], strict=True):
            if row.ours is not None and not row.ours.published:
                gains[target.name, gain.row] = {
                    "target": target.name,
                    "row": gain.row,
                    "seeds": row.ours.seeds,
                    "deviation": row.ours.deviation,
                }
    return {"cells": list(cells.values()), "gains": list(gains.values())}


def text_of(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the committed file: one result on a line."""
    parts = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]"
        for name, rows in results.items()
    )
    return "{" + ", ".join(parts) + "}\n"


def _row(name: str, found: str, rounds: int, ours: Ours, metric: str) -> Published:
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
