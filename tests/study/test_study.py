"""The pages of the study are made from its committed results, which follow its rule."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from benchmarks import study

MEASURED = [each for each in study.tables() if each.lines]


@pytest.mark.slow
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
