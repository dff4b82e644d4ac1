"""The results of a sweep: the table, the chart, and the proven epsilon."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

import fedldp
from fedldp.accounting.guarantees import Adversary, Guarantee, Unit, unit_and_adversary
from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import Statement
from fedldp.core.kinds import GAUSSIAN, IDEALISED, NOT_PURE
from fedldp.experiments.sweeping.results import Combination, Sweep
from fedldp.experiments.sweeping.sweeps import asked_of, shown_of
from fedldp.reporting.lines import behind_sums
from fedldp.simulation.plan import plan, problem_of


def line(epsilon: float | None, delta: float = 0.0, **more: Any) -> Guarantee:
    of: dict[str, Any] = {"unit": "client-run", "adversary": "server", "epsilon": epsilon, **more}
    if epsilon is None:
        return Guarantee(delta=0.0, reason=NOT_PURE, **of)
    return Guarantee(delta=delta, method=GAUSSIAN, **of)


def proven(*lines: Guarantee, asked: tuple[Unit, Adversary] | None = None) -> Proven:
    return shown_of(Statement(claim=None, guarantees=lines), asked)


def told(epsilon: float | None, delta: float, **more: Any) -> Proven:
    of: dict[str, Any] = {"unit": "client-run", "adversary": "server", "conditions": (), **more}
    return Proven(epsilon=epsilon, delta=delta, **of)


OTHERS = [line(0.1, unit="weight"), line(0.2, adversary="shuffled-server"),
          line(0.3, unit="client-round"), line(0.4, adversary="downlink")]  # fmt: skip
NOTHING, ROW, PERSON = line(None), line(0.5, unit="record"), line(2.0, unit="person", delta=1e-5)
SUMS = line(1.0, unit="person", adversary="summing-server")
ROWS = [ROW, line(0.7, unit="record", adversary="summing-server")]


@pytest.mark.parametrize(
    ("lines", "asked", "expected"),
    [
        ([*OTHERS, line(9.0), line(5.0, delta=1e-5)], None, (5.0, 1e-5, "client-run", "server")),
        ([*OTHERS, line(5.0), line(9.0, delta=1e-5)], None, (5.0, 0.0, "client-run", "server")),
        (OTHERS, None, (None, 0.0, "client-run", "server")),
        ([*OTHERS, NOTHING], None, (None, 0.0, "client-run", "server")),
        # If no client is hidden, it is for a person or a row, perhaps against those who see less.
        ([NOTHING, ROW], None, (0.5, 0.0, "record", "server")),
        ([NOTHING, SUMS, ROW, PERSON], None, (2.0, 1e-5, "person", "server")),
        ([NOTHING, SUMS], None, (1.0, 0.0, "person", "summing-server")),
        ([NOTHING, line(None, unit="person"), ROW], None, (0.5, 0.0, "record", "server")),
        ([line(9.0), PERSON], None, (9.0, 0.0, "client-run", "server")),
        # It is that of the requested guarantee.
        ([line(9.0), *ROWS], "record:summing-server", (0.7, 0.0, "record", "summing-server")),
        ([line(9.0), *ROWS], "person:server", (None, 0.0, "person", "server")),
    ],
)
def test_the_proven_epsilon_is_the_least_for_the_unit_that_is_hidden_or_requested(
    lines: list[Guarantee], asked: str | None, expected: tuple[Any, ...]
) -> None:
    found = proven(*lines, asked=None if asked is None else unit_and_adversary(asked))
    assert (found.epsilon, found.delta, found.unit, found.adversary) == expected


def test_the_requested_guarantee_comes_before_that_of_the_target() -> None:
    asked = unit_and_adversary("record:summing-server")
    target = {"unit": "record", "epsilon": 2.0, "adversary": "downlink"}
    of_target = fedldp.recipe("dp-sgd-digits", target=target)
    assert asked_of(of_target, None) == ("record", "downlink")
    assert asked_of(of_target, asked) == asked
    assert asked_of(fedldp.recipe("quickstart"), None) is None


def test_the_requested_figure_comes_first_and_is_drawn() -> None:
    found = fedldp.sweep(
        "quickstart", grid={"epsilon": [4.0]}, rounds=1, workers=1, metric="brier",
        guarantee="client-round:server",
    )  # fmt: skip
    head, (row,) = found.shown()
    assert head[head.index("accuracy") - 1] == "Brier score"
    assert row[head.index("Brier score")] == f"{found.runs[0]['metrics']['brier']:.4f}"
    assert row[-1].endswith(" per client-round")
    assert found.runs[0]["unit"] == "client-round"
    assert any("the unit client-round, against the adversary server" in n for n in found.notes())
    assert not any("does not protect a client as a whole" in note for note in found.notes())
    pytest.importorskip("matplotlib")
    (axes,) = found.plot().axes
    assert axes.get_ylabel() == "Brier score, with its standard deviation over seeds"


def test_a_table_and_a_chart_name_the_unit_of_an_epsilon() -> None:
    config = fedldp.recipe("person-dp-sgd-digits", rounds=2)
    statements = [
        plan(each, problem_of(each, None)).privacy
        for each in (config, config.changed(channel="central"), config.changed(channel="sum"))
    ]
    cells = [
        replace(
            cell(8.0, 0.5, proven=8.0, channel=f"{each.adversary} {each.epsilon:g}"),
            each=[each],
            behind_sums={each: behind} if (behind := behind_sums(privacy)) else {},
        )
        for privacy in statements
        for each in [shown_of(privacy)]
    ]
    sweep = Sweep(groups=cells)
    shown = [row[-1] for row in sweep.shown()[1]]
    assert [text.partition(")")[2] for text in shown] == [
        " per record", " per record, against the downlink",
        " per record; 7.9999 against the summing-server"]  # fmt: skip
    assert sum("does not protect a client as a whole" in note for note in sweep.notes()) == 2
    assert {record["adversary"] for record in sweep.to_records()} == {"server", "downlink"}
    pytest.importorskip("matplotlib")
    figure = sweep.plot()
    (axes,), (legend,) = figure.axes, figure.legends
    assert "unless named otherwise" in axes.get_xlabel()
    assert all("per record" in text.get_text() for text in legend.get_texts())
    (axes,) = Sweep(groups=cells[:1]).plot().axes
    assert axes.get_xlabel() == "proven epsilon for a record, against the server, at delta 1e-05"


def test_ideal_noise_counts_only_if_nothing_else_is_proven_and_is_marked() -> None:
    ideal = line(1.0, assumptions=frozenset({IDEALISED}))
    assert proven(ideal, line(7.0)) == told(7.0, 0.0)
    assert proven(ideal) == told(1.0, 0.0, conditions=(IDEALISED,))


def cell(epsilon: float, *accuracies: float, proven: float, **settings: Any) -> Combination:
    settings = {"recipe": "quickstart", "epsilon": epsilon, **settings}
    shown = None if proven == math.inf else proven
    runs = [
        {"settings": settings, "seed": seed, "accuracy": accuracy, "metrics": {"loss": 0.5},
         "seconds": 1.0}
        for seed, accuracy in enumerate(accuracies)
    ]  # fmt: skip
    at = told(shown, 0.0 if shown is None else 1e-5)
    return Combination(name=f"{epsilon}", settings=settings, runs=runs, each=[at] * len(runs))


@pytest.fixture
def result() -> Sweep:
    of = {"recipe": "quickstart", "epsilon": 99}
    refused = Combination(name="99", settings=of, refused="epsilon = 99: <too> large")
    failed = [{"settings": of, "seed": 0, "reason": refused.refused}]
    cells = [cell(1, 0.5, 0.7, proven=700.0), cell(2, 0.8, proven=math.inf), refused]
    return Sweep(groups=cells, failed=failed)


def test_the_printed_table_shows_failures(result: Sweep) -> None:
    assert result.shown() == (
        ["epsilon", "accuracy", "seeds", "loss", "proven epsilon", "failed"],
        [
            ["1", "60.00 ± 14.14 %", "2", "0.5000", "700 (delta 1e-05)", ""],
            ["2", "80.00 %", "1", "0.5000", "infinity", ""],
            ["99", "", "0", "", "", "epsilon = 99: <too> large"],
        ],
    )
    assert repr(result) == "Sweep(3 runs, 2 combinations, 1 failed)"
    assert "<td>epsilon = 99: &lt;too&gt; large</td>" in result._repr_html_()


def test_numbers_have_r2_in_place_of_the_accuracy() -> None:
    metrics = {"r2": 0.25, "mae": 1234.567, "loss": 0.02, "auc": None, "most_frequent": None}
    one = cell(1, 0.0, 0.0, proven=4.0)
    runs = [run | {"accuracy": None, "metrics": metrics} for run in one.runs]
    found = Sweep(groups=[replace(one, runs=runs)])
    head, rows = found.shown()
    assert head[1:5] == ["R2", "mean absolute error", "seeds", "loss"]
    assert rows[0][1:3] == ["0.2500 ± 0.0000", "1,235 ± 0"]
    assert found.first == "r2"
    assert found.notes()[0] == (
        "R2 and mean absolute error are means over seeds, with the standard deviation"
    )
    assert (found.table[0]["mean"], found.table[0]["figure"]["baseline"]) == (0.25, 0.0)
    assert found.runs[0]["metrics"]["r2"] == 0.25
    assert {(row["r2"], row["accuracy"]) for row in found.to_records()} == {(0.25, None)}
    both = Sweep(groups=[replace(one, runs=runs), cell(2, 0.5, proven=8.0)])
    assert both.shown()[0][1:4] == ["accuracy", "R2", "mean absolute error"]
    assert [row["r2"] for row in both.to_records()] == [0.25, 0.25, None]


def of_rare_classes(cell: Combination, auc: float) -> Combination:
    metrics = {"auc": auc, "balanced_accuracy": 0.6, "most_frequent": 0.87, "loss": 0.5}
    return replace(cell, runs=[run | {"metrics": metrics} for run in cell.runs])


def test_if_most_test_rows_are_of_one_class_auc_comes_first() -> None:
    one, two = cell(1, 0.87, 0.89, proven=4.0), cell(2, 0.88, proven=8.0)
    found = Sweep(groups=[of_rare_classes(one, 0.7), of_rare_classes(two, 0.75)])
    head, rows = found.shown()
    assert head[1:4] == ["AUC", "balanced accuracy", "accuracy"]
    assert rows[0][1:4] == ["0.7000 ± 0.0000", "60.00 ± 0.00 %", "88.00 ± 1.41 %"]
    assert rows[1][1:3] == ["0.7500", "60.00 %"]
    assert found.notes()[0] == (
        "AUC and balanced accuracy come first: 87.00 % of the test set is one class, so always "
        "predicting that class has this accuracy: compare AUC or balanced accuracy"
    )
    # The JSON and its means still show the accuracy.
    assert found.table[0]["mean"] == pytest.approx(0.88)
    pytest.importorskip("matplotlib")
    axes = found.plot().axes[0]
    assert axes.get_ylabel() == "AUC, with its standard deviation over seeds"
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.7, 0.75])


def test_a_setting_and_its_proven_epsilon_are_two_columns(result: Sweep) -> None:
    lines = result.to_csv().splitlines()
    assert lines[0] == ("recipe,epsilon,seed,accuracy,loss,proven_epsilon,proven_delta,unit,"
                        "adversary,stated_epsilon,stated_delta,stated_by,idealised,conditions,"
                        "baseline,doubts,seconds,run_dir")  # fmt: skip
    for line, begins in (
        (
            lines[1],
            "quickstart,1,0,0.5,0.5,700.0,1e-05,client-run,server,700.0,1e-05,fedldp,False,",
        ),
        (lines[3], "quickstart,2,0,0.8,0.5,inf,0.0,client-run,server,inf,0.0,fedldp,False,"),
    ):
        assert line.startswith(begins)
        assert line.endswith(",1.0,")
    strange = Sweep(groups=[cell(1, 0.5, proven=3.0, loss="own")]).to_records()[0]
    assert (strange["setting loss"], strange["loss"]) == ("own", 0.5)


def test_the_worst_run_stands_for_a_combination() -> None:
    each = [told(2.0, 1e-5), told(3.0, 1e-5)]
    worst = replace(cell(1, 0.5, 0.6, proven=2.0), each=each).proven
    assert worst is not None
    assert worst.epsilon == 3.0
