"""For maintainers: python -m fedldp.experiments.reproduction --publish.

Replaces committed results with the user's own measurements if these have more seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from fedldp.data import resolve_data_dir
from fedldp.experiments.reproduction.results import (
    Measurement,
    Measurements,
    default_cache,
    published_documents,
)
from fedldp.experiments.reproduction.targets import PaperTarget, papers_with_targets, targets


def main() -> None:
    """Carry out the command."""
    if sys.argv[1:] != ["--publish"]:
        sys.exit(__doc__)
    own = Measurements(default_cache(), resolve_data_dir(None))
    for name, results in documents(targets().values(), own).items():
        path = papers_with_targets()[name].folder / "published.json"
        path.write_text(text_of(results), encoding="utf-8")


def documents(
    found: Iterable[PaperTarget], measurements: Measurements
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the committed results, each replaced by the user's own if that has more seeds.

    There is one document for each paper, by authors and year.
    """
    before = published_documents().items()
    cells = {row["recipe"]: (paper, row) for paper, each in before for row in each["cells"]}
    for target in found:
        for recipe in target.cells:
            ours = measurements.of(recipe)
            if ours is not None and not ours.published:
                # Metrics besides accuracy are not stored under ``same_as``.
                shared = recipe.same_as if ours.metric == "accuracy" else None
                name = shared or recipe.name
                paper, _ = cells.get(name, (target.paper, None))  # two papers may share a result
                cells[name] = paper, {"recipe": name, **_cell_of(ours)}
    return {
        name: {"cells": [row for paper, row in cells.values() if paper == name]}
        for name in dict.fromkeys(paper for paper, _ in cells.values())
    }


def text_of(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the content of a paper's committed file: one result per line."""
    parts = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]"
        for name, rows in results.items()
    )
    return "{" + ", ".join(parts) + "}\n"


def _cell_of(ours: Measurement) -> dict[str, Any]:
    """Return a result as a cell of ``published.json`` has it, without the recipe's name."""
    return {
        **ours.model_dump(mode="json", exclude={"published", "stand_in"}),
        "mean": _short(ours.mean),
        "deviation": _short(ours.deviation),
        "after": {str(n): [_short(each) for each in both] for n, both in ours.after.items()},
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


if __name__ == "__main__":
    main()
