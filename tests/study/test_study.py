"""The study: its systems meet their labels, and its page is made of its results."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import samples

from benchmarks.study.contestants import CONTESTANTS, UNPROTECTED, tried
from benchmarks.study.measuring import STUDY, cells
from benchmarks.study.pages import StudyError, charts, updated
from benchmarks.study.tasks import oriented_gradients, random_convolutions
from fedldp.comparing import Cell, Comparison, ComparisonError, Results, Task, Try, checked
from fedldp.data import load_dataset
from fedldp.simulation.plan import plan, problem_with

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-22-study.jsonl"
DIGITS = Comparison(
    (*CONTESTANTS, *UNPROTECTED),
    [Task("digits", lambda: load_dataset("digits"), {"dataset": "digits", "model": "logistic"})],
)
"""The study's systems on what the tests have."""


def test_all_systems_have_as_many_tries() -> None:
    assert {len(contestant.tries) for contestant in CONTESTANTS} == {8}


@pytest.mark.parametrize("transform", [oriented_gradients, random_convolutions])
def test_public_features_look_at_one_example_alone(transform: Any) -> None:
    images = np.random.default_rng(0).random((3, 1, 28, 28), dtype=np.float32)
    together = transform(images)
    alone = np.concatenate([transform(images[i : i + 1]) for i in range(3)])
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 10, rtol=1e-4)
    assert not transform(np.zeros((1, 1, 28, 28), np.float32)).any()


# The label


@pytest.mark.sampled(5)
@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda contestant: contestant.name)
def test_every_system_meets_its_label_or_says_why_not(contestant: Any) -> None:
    if not contestant.is_calibrated or contestant.only == {"mnist-gradients"}:
        pytest.skip("it has no budget, or has no digits")
    cell = Cell("digits", 20, contestant.name, 4.0)
    data = DIGITS.data_for(cell, "measured", 0)
    config = DIGITS.calibrated(cell, DIGITS.configuration(cell, tried(1, 1.0, 1.0), 0), data)
    privacy = plan(config, problem_with(config, data, None)).privacy
    found = checked(cell, contestant.guarantee, privacy)
    assert 3.95 < found.epsilon <= 4.0  # equal guarantees: no system has less than it might
    assert found.delta <= 1e-5


@pytest.mark.parametrize("system", UNPROTECTED, ids=lambda system: system.name)
def test_systems_without_a_guarantee_say_why(tmp_path: Path, system: Any) -> None:
    results = Results(tmp_path / "results.jsonl")
    found = DIGITS.without_guarantee(results, Cell("digits", 20, system.name, 0.0))
    assert found["refused"].startswith("no guarantee for a client's run against the server: ")
    assert results.rows == [found]


def test_cells_are_planned_once_and_the_first_panel_first() -> None:
    planned = cells()
    assert len(set(planned)) == len(planned)
    assert {(cell.task, cell.clients) for cell in planned[:20]} == {("mnist", 1000)}
    for task in ("mnist", "covertype"):
        for clients in (100, 1000, 10_000):
            found = {
                (cell.contestant, cell.epsilon)
                for cell in planned
                if (cell.task, cell.clients) == (task, clients)
            }
            assert {("central_dp", epsilon) for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0)} <= found


# The page


def lines(accuracies: list[float], epsilon: float = 4.0) -> list[dict[str, Any]]:
    """Return the lines of one cell: a grid, of which the second try is best, and its seeds."""
    cell = Cell("mnist", 1000, "ldp_fl, privunit", epsilon)
    proof = {"epsilon": epsilon, "delta": 1e-5, "idealised": True, "method": "by hand"}

    def line(purpose: str, seed: int, attempt: Try, accuracy: float) -> dict[str, Any]:
        return {
            "cell": asdict(cell), "purpose": purpose, "seed": seed, "try": attempt,
            "data": purpose, "digest": STUDY.digest(cell, attempt, seed, purpose),
            "accuracy": accuracy, "refused": None, "proven": proof, "cpu_seconds": 30.0,
        }  # fmt: skip

    grid = STUDY.contestant(cell).tries
    tried = [line("tried", 100, attempt, 0.9 if attempt is grid[1] else 0.2) for attempt in grid]
    return tried + [
        line("measured", seed, grid[1], accuracy) for seed, accuracy in enumerate(accuracies)
    ]


PAGE = "Before.\n\n<!-- study mnist -->\nold\n<!-- end -->\n\nAfter.\n"


def test_the_table_has_mean_and_deviation_over_seeds() -> None:
    page = updated(PAGE, lines([0.5, 0.6, 0.7]))
    assert page.startswith("Before.\n")
    assert page.endswith("After.\n")
    assert "old" not in page
    assert "| ldp_fl, privunit * | server | - | - | 60.0 ± 10.0 | - | - |" in page
    assert updated(page, lines([0.5, 0.6, 0.7])) == page


def test_the_table_says_when_seeds_are_missing() -> None:
    assert "| 55.0 ± 7.1 (2 of 3 seeds) |" in updated(PAGE, lines([0.5, 0.6]))


def test_runs_of_a_try_that_is_not_chosen_do_not_count() -> None:
    rows = lines([0.5, 0.6, 0.7])
    rows[2]["accuracy"] = 0.95  # now the third try is the best, and nothing is measured of it
    assert "Not measured yet." in updated(PAGE, rows)


def test_runs_of_what_a_system_was_before_do_not_count() -> None:
    rows = lines([0.5, 0.6, 0.7])
    rows[-1]["digest"] = "of something else"
    rows[-2]["try"] = {"rounds": 7, "reach": 1.0, "rate": 1.0}
    assert "| 50.0 (1 of 3 seeds) |" in updated(PAGE, rows)


def test_the_table_refuses_a_figure_above_its_label() -> None:
    rows = lines([0.5, 0.6, 0.7])
    rows[-1]["proven"] = {**rows[-1]["proven"], "epsilon": 4.01}
    with pytest.raises(ComparisonError, match="its label is 4"):
        updated(PAGE, rows)


def test_a_cell_whose_every_try_is_refused_says_why() -> None:
    rows = [*lines([0.5, 0.6, 0.7]), *lines([], epsilon=1.0)]
    for found in rows[-8:]:
        found |= {"accuracy": None, "refused": "no budget meets it"}
    page = updated(PAGE, rows)
    assert "| ldp_fl, privunit * | server | refused | - | 60.0" in page
    assert "- ldp_fl, privunit, 1,000 clients, ε 1: no budget meets it." in page


def test_a_cell_with_a_refused_run_has_no_mean_of_the_others() -> None:
    rows = [*lines([0.2, 0.2, 0.2], epsilon=1.0), *lines([0.5, 0.6, 0.7])]
    rows[-2] |= {"accuracy": None, "refused": "not finite"}
    page = updated(PAGE.replace("end -->", "end -->\n<!-- study progress -->\n<!-- end -->"), rows)
    assert "| ldp_fl, privunit * | server | 20.0 ± 0.0 | - | refused | - | - |" in page
    assert "- ldp_fl, privunit, 1,000 clients, ε 4: seed 1, not finite." in page
    assert "| mnist | 1,000 | 2 | " in page  # it is measured, and not run again


def test_the_progress_tells_what_is_left() -> None:
    page = updated("<!-- study progress -->\n<!-- end -->\n", lines([0.5, 0.6, 0.7]))
    planned = [cell for cell in cells() if (cell.task, cell.clients) == ("mnist", 1000)]
    count = len([cell for cell in planned if STUDY.contestant(cell) not in UNPROTECTED])
    rest = 11 * 0.5 * (count - 1)
    assert f"| mnist | 1,000 | 1 | {count} | 5.5 | {rest:.0f} |" in page


@pytest.mark.parametrize("page", ["no marker", "<!-- study nothing -->\n<!-- end -->"])
def test_a_page_that_is_wrong_is_refused(page: str) -> None:
    with pytest.raises(StudyError, match="page: "):
        updated(page, [])


@pytest.mark.slow
def test_the_chart_is_the_same_each_time(tmp_path: Path) -> None:
    rows = [*lines([0.5, 0.6, 0.7]), *lines([0.7, 0.8, 0.9], epsilon=8.0)]
    (chart,) = charts(rows, tmp_path)
    first = chart.read_text()
    assert "ldp_fl, privunit (server)" in first
    assert charts(rows, tmp_path) == [chart]
    assert chart.read_text() == first


def test_a_summary_has_the_best_under_each_trust() -> None:
    rows = [*lines([0.5, 0.6, 0.7]), *lines([0.7, 0.8, 0.9], epsilon=16.0)]
    page = updated("<!-- study summary -->\n<!-- end -->\n", rows)
    assert "| any server | ldp_fl, privunit * | - | -, 60.0, 80.0 | - |" in page
    [deployed] = [line for line in page.splitlines() if "in a deployment" in line]
    assert "privunit *" not in deployed


def test_an_overview_has_a_row_for_what_is_measured() -> None:
    rows = [*lines([0.5, 0.6, 0.7]), *lines([0.7, 0.8, 0.9], epsilon=16.0)]
    page = updated("<!-- study overview -->\n<!-- end -->\n", rows)
    assert [line for line in page.splitlines() if "mnist" in line] == [
        "| mnist | 1,000 | - | - | - | -, 60.0, 80.0 | - |"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/study.md"])
def test_the_committed_page_is_made_of_the_committed_results(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    assert updated(page, rows) == page
    assert STUDY.standing(rows)


@pytest.mark.slow
def test_committed_results_are_of_the_study_as_it_is() -> None:
    """A digest takes a configuration of each line: by default, of an eighth."""
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    chosen = rows[:: 1 if samples.thorough else 8]
    assert len(chosen) > 1000
    assert [row for row in chosen if not STUDY.is_current(row)] == []
