"""The study's rules: what is chosen, what is not run twice, what may not stand."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from benchmarks.study import measuring, pages, proving
from benchmarks.study.contestants import CONTESTANTS, UNPROTECTED, Try
from benchmarks.study.measuring import Results, cells, choose, measure, run_one, without_guarantee
from benchmarks.study.pages import charts, updated
from benchmarks.study.proving import Cell, StudyError, checked, configuration, proven, solved
from benchmarks.study.tasks import (
    TASKS,
    Task,
    examples_for,
    oriented_gradients,
    random_convolutions,
)
from fedldp.errors import ConfigError, PrivacyError
from fedldp.simulation.plan import plan, problem_with

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-22-study.jsonl"
PRIVUNIT = Cell("digits", 20, "ldp_fl, privunit", 4.0)
FIRST = Try(1, 1.0, 1.0)


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "digits", Task("digits", "digits", "digits"))


def row(accuracy: float | None, rounds: int = 1, **others: Any) -> dict[str, Any]:
    return {"accuracy": accuracy, "try": {"rounds": rounds}, "refused": None, **others}


def test_the_best_try_on_held_out_examples_is_chosen() -> None:
    assert choose([row(0.2, 1), row(0.9, 4), row(0.3, 16)]) == row(0.9, 4)


def test_of_equal_tries_the_first_is_chosen() -> None:
    assert choose([row(0.2, 1), row(0.9, 4), row(0.9, 16)]) == row(0.9, 4)


def test_refused_tries_are_not_chosen() -> None:
    assert choose([row(None, 1), row(0.1, 4)]) == row(0.1, 4)
    assert choose([row(None, 1), row(None, 4)]) is None


def test_all_systems_have_as_many_tries() -> None:
    assert {len(set(contestant.grid)) for contestant in CONTESTANTS} == {8}


def test_choosing_sees_no_test_example_and_no_example_twice() -> None:
    whole = examples_for(TASKS["digits"], "measured", 0)
    tried = examples_for(TASKS["digits"], "tried", 100)

    def keys(examples: Any) -> list[bytes]:
        return sorted(each.tobytes() for each in examples.features)

    assert sorted(keys(tried.train) + keys(tried.test)) == keys(whole.train)
    assert len(tried.test) == len(whole.train) // 6
    other = examples_for(TASKS["digits"], "tried", 101)
    assert keys(other.test) != keys(tried.test)


def test_no_seed_is_both_chosen_on_and_measured() -> None:
    assert measuring.CHOSEN_ON not in measuring.SEEDS
    assert len(measuring.SEEDS) >= 3


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
    if not contestant.noisy or contestant.tasks == {"mnist-gradients"}:
        pytest.skip("it has no budget, or has no digits")
    cell = Cell("digits", 20, contestant.name, 4.0)
    data = examples_for(TASKS["digits"], "measured", 0)
    config = solved(cell, configuration(cell, FIRST, 0), data)
    found = checked(cell, plan(config, problem_with(config, data, None)).privacy)
    assert 3.95 < found.epsilon <= 4.0  # equal guarantees: no system has less than it might
    assert found.delta <= 1e-5


def test_the_budget_is_the_same_for_every_seed_and_rate() -> None:
    data = examples_for(TASKS["digits"], "measured", 0)
    one, other = (
        solved(PRIVUNIT, configuration(PRIVUNIT, attempt, seed), data)
        for attempt, seed in ((FIRST, 0), (Try(1, 1.0, 0.25), 2))
    )
    assert one.model_dump()["epsilon"] == other.model_dump()["epsilon"]
    assert one.learning_rate != other.learning_rate


def statement(epsilon: float | None, delta: float = 1e-5, **others: Any) -> dict[str, Any]:
    line = {
        "unit": "client-run", "adversary": "server", "epsilon": epsilon, "delta": delta,
        "assumptions": [], "method": "by hand", **others,
    }  # fmt: skip
    return {"guarantees": [line]}


@pytest.mark.parametrize("epsilon", [4.0000001, float("inf"), float("nan")])
def test_a_figure_above_the_label_is_refused(epsilon: float) -> None:
    with pytest.raises(StudyError, match="above its label 4"):
        checked(PRIVUNIT, statement(epsilon))


@pytest.mark.parametrize(
    "privacy",
    [
        statement(None),
        statement(1.0, delta=1e-4),
        statement(1.0, unit="client-round"),
        statement(1.0, adversary="downlink"),
    ],
)
def test_nothing_else_counts_as_the_figure(privacy: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no guarantee for a client's run"):
        proven(privacy, "server")


def test_a_run_above_its_label_is_not_trained_and_leaves_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generous(cell: Cell, config: Any, data: Any) -> Any:
        return config.changed(target=None, epsilon=4.5)

    monkeypatch.setattr(measuring, "solved", generous)
    monkeypatch.setattr(fedldp, "run", lambda *_, **__: pytest.fail("it was trained"))
    results = Results(tmp_path / "results.jsonl")
    with pytest.raises(StudyError, match="above its label"):
        run_one(results, PRIVUNIT, FIRST, "tried", 100)
    assert not results.path.exists()


@pytest.mark.parametrize("system", UNPROTECTED, ids=lambda system: system.name)
def test_systems_without_a_guarantee_say_why(tmp_path: Path, system: Any) -> None:
    results = Results(tmp_path / "results.jsonl")
    found = without_guarantee(results, Cell("digits", 20, system.name, 0.0))
    assert found["refused"].startswith("no guarantee for a client's run against the server: ")
    assert results.rows == [found]


# The file


def test_what_was_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    made = run_one(Results(path), PRIVUNIT, FIRST, "measured", 0)
    assert made["accuracy"] > 0.1
    assert made["proven"]["epsilon"] <= 4.0
    assert {"digest", "settings", "seconds", "versions", "hardware"} <= set(made)
    monkeypatch.setattr(fedldp, "run", lambda *_, **__: pytest.fail("it was run again"))
    again = Results(path)
    assert run_one(again, PRIVUNIT, FIRST, "measured", 0) == made
    assert len(again.rows) == 1


def test_another_seed_try_purpose_or_cell_is_another_run(tmp_path: Path) -> None:
    keys = {
        proving.digest(cell, attempt, seed, data)
        for cell in (PRIVUNIT, Cell("digits", 20, "ldp_fl, privunit", 2.0))
        for attempt in (FIRST, Try(1, 3.0, 1.0))
        for seed in (0, 1)
        for data in ("tried: digits", "measured: digits")
    }
    assert len(keys) == 16


def test_a_line_that_was_cut_short_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"digest": "a"}\n{"digest": "b", "accu')
    results = Results(path)
    assert results.rows == [{"digest": "a"}]
    results.add({"digest": "c"})
    assert Results(path).rows == [{"digest": "a"}, {"digest": "c"}]


def test_a_refusal_is_a_line_too(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    short = Cell("digits", 20, "personalized_sound", 4.0)
    refused = run_one(results, short, Try(1000, 1.0, 1.0), "tried", 100)
    assert refused["accuracy"] is None
    assert "examples" in refused["refused"]
    assert Results(results.path).rows == [refused]


def test_a_try_that_diverges_is_refused_and_the_study_goes_on(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    plain = Cell("digits", 20, "FedAvg, no noise", 0.0)
    refused = run_one(results, plain, Try(1, 1.0, 1e12), "tried", 100)
    assert refused["accuracy"] is None
    assert "lower learning_rate" in refused["refused"]


def test_a_try_whose_update_is_not_finite_is_refused_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise PrivacyError("round 3, client 8: the values to release contain NaN or infinity")

    monkeypatch.setattr(fedldp, "run", run)
    results = Results(tmp_path / "results.jsonl")
    refused = run_one(results, PRIVUNIT, Try(1, 1.0, 1.0), "tried", 100)
    assert refused["accuracy"] is None
    assert "round 3, client 8" in refused["refused"]


def test_a_budget_that_is_used_up_starts_no_run(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    measure(results, [PRIVUNIT], lambda: False, lambda line: None)
    assert not results.rows
    left = iter([True, True, False])  # the cell, its first try, and then no more
    measure(results, [PRIVUNIT], lambda: next(left), lambda line: None)
    assert [found["purpose"] for found in results.rows] == ["tried"]


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
            "cell": asdict(cell), "purpose": purpose, "seed": seed, "try": asdict(attempt),
            "data": purpose, "digest": proving.digest(cell, attempt, seed, purpose),
            "accuracy": accuracy, "refused": None, "proven": proof, "cpu_seconds": 30.0,
        }  # fmt: skip

    grid = cell.system.grid
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
    with pytest.raises(StudyError, match="its label is 4"):
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
    count = len([cell for cell in planned if cell.system not in UNPROTECTED])
    rest = 11 * 0.5 * (count - 1)
    assert f"| mnist | 1,000 | 1 | {count} | 5.5 | {rest:.0f} |" in page


@pytest.mark.parametrize("page", ["no marker", "<!-- study nothing -->\n<!-- end -->"])
def test_a_page_that_is_wrong_is_refused(page: str) -> None:
    with pytest.raises(StudyError, match="page: "):
        updated(page, [])


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


@pytest.mark.parametrize("name", ["README.md", "docs/study.md"])
def test_the_committed_page_is_made_of_the_committed_results(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delitem(TASKS, "digits")  # it is no task of the study
    page = (ROOT / name).read_text(encoding="utf-8")
    rows = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    assert updated(page, rows) == page
    assert pages.standing(rows)
