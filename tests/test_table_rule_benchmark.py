"""The benchmark of the rule for tables: its rows, its people, and how it compares."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from unlabelled import load_features

from benchmarks.table_rule import measure
from benchmarks.table_rule.made import TABLES, Facts, Rows
from benchmarks.table_rule.stay import Sample
from fedldp.data import Columns


def test_rows_are_those_that_the_declared_settings_make(tmp_path: Path) -> None:
    facts = Facts(*(np.array([each]) for each in (0.0, 100.0, 40.0, 15.0)))
    rows = Rows(np.array([[40.0], [100.0], [25.0]]), np.array([[0], [1], [2]]), (3,), np.zeros(3))
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["x", "c", "label"], [40, "a", 0], [100, "b", 1], [25, "c", 0]])
    common = {"categories": {"c": ("a", "b", "c")}}
    found = load_features(
        tmp_path / "t.csv", columns=Columns(**common, spreads={"x": (40.0, 15.0)})
    )
    np.testing.assert_allclose(rows.by_spreads(facts), found, rtol=1e-6)
    centres = {"x": 50.0, **dict.fromkeys(("c=a", "c=b", "c=c"), 1 / 3)}
    found = load_features(
        tmp_path / "t.csv", columns=Columns(**common, scaled={"x": (0, 100)}, centres=centres)
    )
    found[:, 0] *= 2  # -1 to 1 in place of -0.5 to 0.5
    np.testing.assert_allclose(rows.by_short_ranges(facts), found, rtol=1e-5)
    sixth = {"x": (50.0, 100 / 6)}
    found = load_features(tmp_path / "t.csv", columns=Columns(**common, spreads=sixth))
    np.testing.assert_allclose(rows.by_ranges(facts), found, rtol=1e-5)


@pytest.mark.slow
def test_a_length_of_stay_is_predicted_nearly_as_well_as_without_privacy() -> None:
    """Of 12,000 people behind a secure sum, at epsilon 1 for a person: R2 within 0.02."""
    sample = Sample(12_000, 1)
    free = sample.without_privacy()
    assert 0.15 < free < 0.18
    assert free - 0.02 < sample.protected("summing-server", 1.0, 1) < free


def test_opacus_has_each_person_as_one_sample() -> None:
    from benchmarks.table_rule.opacus_linear import People

    features = np.arange(8, dtype=np.float32).reshape(4, 2)
    found = People.of(features, np.array([0, 1, 1, 0]), np.array([7, 3, 7, 7]))
    assert found.features.tolist() == [
        [[2, 3], [0, 0], [0, 0]], [[0, 1], [4, 5], [6, 7]]
    ]  # fmt: skip
    assert found.labels.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert found.weights.sum(1).tolist() == pytest.approx([1, 1])


@pytest.mark.slow
def test_a_file_of_rows_is_continued_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "TABLES", [table for table in TABLES if "curved" in table.name])
    monkeypatch.setattr(measure, "WAYS", ("default", "advised"))
    monkeypatch.setattr(measure, "SEEDS", (1, 2))
    monkeypatch.setattr(measure, "TRUSTS", {"central": "downlink"})
    monkeypatch.setattr(measure, "EPSILONS", (4.0,))
    path = tmp_path / "rows.jsonl"
    measure.measure(path, 9)
    rows = measure.rows_of(path)
    assert [(row["trust"], row["way"]) for row in rows] == [
        (trust, way) for trust in measure.TRUSTS for way in ("default", "advised")
    ]
    assert all(0.5 < auc < 0.7 for row in rows for auc in row["auc"])
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows[1:]), encoding="utf-8")
    measure.measure(path, 9)
    assert measure.rows_of(path)[-1]["auc"] == rows[0]["auc"]
    assert measure.page(path).splitlines()[2].startswith("| curved-5000 | 4 | central | 0.")
