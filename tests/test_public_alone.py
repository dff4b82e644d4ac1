"""The table of results with public data alone comes from complete, committed results."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.public_alone import COLUMNS, ENCODER, KINDS, RESULTS, read
from fedldp.algorithms.features import KINDS as FEDLDP

ROOT = Path(__file__).parents[1]
LINES = read(RESULTS)


def test_every_kind_was_measured_with_its_columns_settings() -> None:
    assert set(KINDS) == {"none", *FEDLDP, ENCODER}
    found = [(line["features"], line["dataset"], line["epsilon"], line["seed"]) for line in LINES]
    wanted = [
        (kind, column.dataset, column.epsilon, seed)
        for kind in KINDS
        for column in COLUMNS.values()
        for seed in range(column.seeds)
    ]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    for line in LINES:
        assert (
            line["epsilon"] is None or 0.999 * line["epsilon"] < line["proven"] <= line["epsilon"]
        )


def test_what_the_page_says_about_the_results_is_true() -> None:
    def scores(kind: str, epsilon: float | None) -> list[float]:
        return [
            line["accuracy"]
            for line in LINES
            if (line["features"], line["dataset"], line["epsilon"]) == (kind, "mnist", epsilon)
        ]

    def mean(kind: str, epsilon: float | None) -> float:
        return float(np.mean(scores(kind, epsilon)))

    alone = mean("pose", None)
    assert max(mean(kind, None) for kind in KINDS) == alone
    assert max(mean(kind, 1.0) for kind in KINDS) < alone
    page = " ".join((ROOT / "docs" / "features.md").read_text(encoding="utf-8").split())
    assert f"with `pose` has {100 * alone:.1f} % on MNIST" in page
