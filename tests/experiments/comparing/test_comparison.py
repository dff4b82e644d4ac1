"""The rule of equal effort: the choice of tries, no run twice, and no figure above its label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.kinds import GAUSSIAN, NOT_PURE
from fedldp.data import load_dataset
from fedldp.experiments.comparing import Cell, Comparison, Contestant, Try
from fedldp.experiments.comparing.comparison import Cells, Purpose, choose
from fedldp.experiments.engine import Means, Processes, carry_out
from fedldp.experiments.making import Maker
from fedldp.experiments.proving import ComparisonError, GuaranteeKind, checked, proven
from fedldp.experiments.runs import Task
from fedldp.experiments.store import RunStore
from fedldp.simulation import engine
from fedldp.simulation.settings import resolve

MEANS = Means()
KIND = GuaranteeKind("client-run", "server", 1e-5)
FIRST: dict[str, Any] = {"rounds": 1, "learning_rate": 0.4, "clip": 1.0}
TRIES = (FIRST, {**FIRST, "rounds": 4, "clip": 0.5})
PRIVUNIT = Cell("digits", 20, "privunit", 4.0)
DIGITS = Task("digits", lambda: load_dataset("digits"), {"dataset": "digits", "model": "logistic"})


PLAIN = ({"rounds": 1, "learning_rate": 0.4}, {"rounds": 1, "learning_rate": 1e12})
SIGNS = find_system("personalized_sound")(
    dataset="digits", model="logistic", num_clients=20, rounds=1, learning_rate=0.1, epsilon=1.0,
    clip=1.0, perturbation="sign",
)  # fmt: skip


def contestant(name: str = "privunit", tries: Sequence[Try] = TRIES) -> Contestant:
    return Contestant.of(name, resolve("privunit-fl-digits"), tries, KIND)


def measured(
    found: Comparison, store: RunStore, cells: Sequence[Cell], means: Means = MEANS
) -> None:
    carry_out(Cells(found, cells), store, Processes(found.maker, 1, 1), means)


def made(found: Comparison, cell: Cell, attempt: Try, purpose: Purpose, seed: int) -> Any:
    return found.maker.make(found.run(cell, attempt, purpose, seed))


def digest(found: Comparison, cell: Cell, attempt: Try, purpose: Purpose, seed: int) -> str:
    return found.run(cell, attempt, purpose, seed).digest


def compared() -> Comparison:
    return Comparison(
        [
            contestant(),
            Contestant.of("no noise", resolve("fedavg-digits"), PLAIN, KIND, "reference"),
            Contestant.of("signs", SIGNS, ({"rounds": 1000}, {"rounds": 1}), KIND),
        ],
        [DIGITS],
    )


def not_trained(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.setattr(engine, "simulate", lambda *_, **__: pytest.fail(why))


def row(accuracy: float | None, rounds: int = 1, **others: Any) -> dict[str, Any]:
    return {"accuracy": accuracy, "try": {"rounds": rounds}, "refused": None, **others}


def test_the_first_of_the_best_tries_on_held_out_examples_is_chosen() -> None:
    assert choose([row(0.2, 1), row(0.9, 4), row(0.9, 16), row(None, 9)]) == row(0.9, 4)
    assert choose([row(None, 1), row(0.1, 4)]) == row(0.1, 4)
    assert choose([row(None, 1), row(None, 4)]) is None
    tried = [row(0.5, rounds, metrics={"brier": 0.1 * rounds}) for rounds in (2, 1, 4)]
    assert choose(tried, "brier") == tried[1]  # less is better


def test_choosing_sees_no_test_example_and_no_example_twice() -> None:
    found = compared()
    whole = found.maker.data_for(found.run(PRIVUNIT, FIRST, "measured", 0))
    tried = found.maker.data_for(found.run(PRIVUNIT, FIRST, "tried", 100))

    def keys(examples: Any) -> list[bytes]:
        return sorted(each.tobytes() for each in examples.features)

    assert sorted(keys(tried.train) + keys(tried.test)) == keys(whole.train)
    assert len(tried.test) == len(whole.train) // 6
    other = found.maker.data_for(found.run(PRIVUNIT, FIRST, "tried", 101))
    assert keys(other.test) != keys(tried.test)


# The label


def test_the_budget_is_the_same_for_every_seed_and_rate() -> None:
    found = compared()
    one, other = (
        found.maker.calibrated(found.run(PRIVUNIT, attempt, "measured", seed))
        for attempt, seed in ((FIRST, 0), ({**FIRST, "learning_rate": 0.1}, 2))
    )
    assert one.model_dump()["epsilon"] == other.model_dump()["epsilon"]
    assert one.learning_rate != other.learning_rate


def test_a_closed_form_which_has_no_rate_is_calibrated() -> None:
    tries = ({"ridge": 0.01}, {"ridge": 0.1})
    solving = Contestant.of("solving", resolve("composed-digits-solution"), tries, KIND)
    task = Task("digits", DIGITS.load, {"dataset": "digits"})
    found, cell = Comparison([solving], [task]), Cell("digits", 20, "solving", 4.0)
    config = found.maker.calibrated(found.run(cell, tries[0], "measured", 0))
    assert 3.9 < config.model_dump()["epsilon"] < 4.1
    assert config.target is None


def statement(epsilon: float | None, delta: float = 1e-5, **others: Any) -> Statement:
    of: dict[str, Any] = {"unit": "client-run", "adversary": "server", **others}
    if epsilon is None:
        line = Guarantee(epsilon=None, delta=0.0, reason=NOT_PURE, **of)
    else:
        line = Guarantee(epsilon=epsilon, delta=delta, method=GAUSSIAN, **of)
    return Statement(claim=None, guarantees=(line,))


@pytest.mark.parametrize("epsilon", [4.0000001, float("inf"), float("nan")])
def test_a_figure_above_the_label_is_refused(epsilon: float) -> None:
    with pytest.raises(ComparisonError, match="above its label 4"):
        checked(KIND.target(4.0), statement(epsilon))


@pytest.mark.parametrize(
    "privacy",
    [
        statement(None),
        statement(1.0, delta=1e-4),
        statement(1.0, unit="client-round"),
        statement(1.0, adversary="downlink"),
    ],
)
def test_no_other_line_counts_as_the_figure(privacy: Statement) -> None:
    with pytest.raises(ConfigError, match="no guarantee for a client's whole run"):
        proven(privacy, KIND)


def test_a_row_above_its_label_is_refused_even_without_an_accuracy() -> None:
    comparison, proven_ = compared(), {"epsilon": 4.1, "delta": 1e-5, "idealised": False}
    with pytest.raises(ComparisonError, match="its label is 4"):
        comparison.check(PRIVUNIT, row(None, digest="a", metrics={"r2": 0.5}, proven=proven_))
    comparison.check(PRIVUNIT, row(None) | {"refused": "diverged"})
    comparison.check(PRIVUNIT, row(None, digest="a", proven={**proven_, "epsilon": 4.0}))


def test_a_run_above_its_label_is_not_trained_and_leaves_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compared()

    def generous(run: Any) -> Any:
        return run.config.changed(target=None, epsilon=4.5)

    monkeypatch.setattr(Maker, "calibrated", lambda self, run: generous(run))
    not_trained(monkeypatch, "it was trained")
    store = RunStore(tmp_path / "results.jsonl")
    with pytest.raises(ComparisonError, match="above its label"):
        measured(found, store, [PRIVUNIT])
    assert not store.path.exists()


# The file


def test_a_finished_run_is_known(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    run = made(compared(), PRIVUNIT, FIRST, "measured", 0)
    RunStore(path).add(run)
    assert run["accuracy"] > 0.1
    assert run["proven"]["epsilon"] <= 4.0
    assert {"digest", "settings", "seconds", "versions", "hardware"} <= set(run)
    known = RunStore(path).rows
    assert known[digest(compared(), PRIVUNIT, FIRST, "measured", 0)] == run
    assert digest(compared(), PRIVUNIT, FIRST, "measured", 1) not in known


def test_a_contestant_that_equals_another_shares_its_runs(tmp_path: Path) -> None:
    found = Comparison([contestant("one"), contestant("two")], [DIGITS], seeds=[0])
    cells = [Cell("digits", 20, name, 4.0) for name in ("one", "two")]
    store = RunStore(tmp_path / "results.jsonl")
    measured(found, store, cells)
    assert len(store.rows) == 2 + 1
    one, two = (found.result(cell, store.rows) for cell in cells)
    assert len(one.runs) == 1
    assert one == replace(two, name="one")


def test_a_refusal_is_stored_as_a_line(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "results.jsonl")
    short = Cell("digits", 20, "signs", 4.0)
    refused = made(compared(), short, {"rounds": 1000}, "tried", 100)
    store.add(refused)
    assert refused["accuracy"] is None
    assert "examples" in refused["refused"]
    assert RunStore(store.path).rows == {refused["digest"]: refused}


def test_a_try_whose_update_is_not_finite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise PrivacyError("round 3, client 8: the values to release contain NaN or infinity")

    monkeypatch.setattr(engine, "simulate", run)
    refused = made(compared(), PRIVUNIT, FIRST, "tried", 100)
    assert refused["accuracy"] is None
    assert "round 3, client 8" in refused["refused"]


def test_a_budget_that_is_used_up_starts_no_run(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "results.jsonl")
    measured(compared(), store, [PRIVUNIT], Means(end=0.0))
    assert not store.rows
    left = iter([True, False, False])  # the first try, and then no more
    means = type("Left", (Means,), {"go_on": lambda self: next(left)})()
    measured(compared(), store, [PRIVUNIT], means)
    assert [found["purpose"] for found in store.rows.values()] == ["tried"]
