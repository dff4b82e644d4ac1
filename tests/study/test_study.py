"""The pages of the study are made from its committed results, which follow its rule."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from benchmarks import study

MEASURED = [each for each in study.tables() if each.lines]


@pytest.mark.parametrize("page", study.PAGES)
def test_a_page_agrees_with_the_committed_results(page: str) -> None:
    assert study.updated(page) == (study.ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("each", MEASURED, ids=lambda each: each.name)
def test_results_follow_the_rule(each: study.Table) -> None:
    """The chosen try is best on held-out clients; the table shows its mean on other seeds."""
    tried: dict[Any, list[dict[str, Any]]] = {}
    measured: dict[Any, list[dict[str, Any]]] = {}
    for run in each.runs:
        cell = run["cell"]["contestant"], run["cell"]["epsilon"] or None
        if run["accuracy"] is not None and cell[1] is not None:
            assert run["proven"]["epsilon"] <= cell[1]
            assert run["proven"]["delta"] <= each.design.guarantee.delta
        assert (run["purpose"] == "tried") == (run["seed"] == 100)
        assert run["data"].startswith(run["purpose"])
        (tried if run["purpose"] == "tried" else measured).setdefault(cell, []).append(run)
    for cell, line in each.lines.items():
        grid = [dict(attempt) for attempt in each.design.entries[cell[0]].grid or ()]
        scores = {
            grid.index(run["try"]): run["accuracy"] or 0.0
            for run in tried[cell]
            if run["try"] in grid
        }
        assert len(scores) == each.design.tries
        best = grid[min(scores, key=lambda place: (-scores[place], place))]
        runs = [run for run in measured[cell] if run["try"] == best]
        assert 100 * statistics.mean(run["accuracy"] for run in runs) == pytest.approx(line.mean)
        assert line.idealised == any((run.get("proven") or {}).get("idealised") for run in runs)


def test_the_advice_is_the_most_accurate_contestant_that_can_be_deployed(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "mine"
    folder.mkdir(parents=True)
    head = "name,epsilon,accuracy,deviation,seeds,of_seeds,idealised,refused\n"
    rows = ["ideal,4.0,0.9,0.01,3,3,True,", "good,4.0,0.7,0.01,3,3,False,",
            "early,1.0,0.8,0.01,3,3,False,", "worse,4.0,0.6,0.01,3,3,False,",
            "partly,4.0,0.8,0.01,2,3,False,", "none,4.0,,,0,3,False,why"]  # fmt: skip
    table = folder / "table.csv"
    table.write_text(head + "\n".join(rows), encoding="utf-8")
    assert study.most_accurate(study.Table("mine", tmp_path)) == "good"
    table.write_text(head + rows[0], encoding="utf-8")
    assert study.most_accurate(study.Table("mine", tmp_path)) == "ideal"


def test_no_advised_system_is_beaten_at_the_same_epsilon_in_its_table() -> None:
    for each in MEASURED:
        shown = [line for (_, epsilon), line in each.lines.items() if epsilon == study.CHOSEN_AT]
        if not shown:
            continue
        advised = each.lines[study.most_accurate(each), study.CHOSEN_AT]
        assert not any(
            line.mean > advised.mean
            for line in shown
            if not line.refused and line.idealised <= advised.idealised
        )
