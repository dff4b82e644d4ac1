"""Every output has the console's warnings and the requested guarantee."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import SHORT
from pages import Page
from visits import NAMES, write_visits

import fedldp
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.core.kinds import CHOOSING, DOUBTFUL_RUNS, HELD_OUT, PURE_SUM
from fedldp.data import Dataset
from fedldp.reporting import words
from fedldp.reporting.html import page
from fedldp.reporting.lines import asked_first
from fedldp.reporting.words import explain
from fedldp.simulation.recorded import read_run
from fedldp.simulation.settings import resolve

pytestmark = pytest.mark.usefixtures("charts_are_drawn")


def test_console_json_and_page_have_the_same_warnings(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_visits(tmp_path)
    outcome = fedldp_command("run", "visits.toml", "--out", "run")
    assert outcome.status == 0, outcome.err
    assert (
        "in short   Asked for: epsilon 2 (delta 1e-05) about all data of one person" in outcome.out
    )
    printed = re.findall(r"^warning +(.*)$", outcome.out, re.MULTILINE)
    run = read_run(tmp_path / "run")
    assert printed == run.warnings
    assert run.doubts
    assert HELD_OUT in run.privacy.warnings
    told = Page((tmp_path / "run" / "report.html").read_text()).text()
    for warning in printed:
        assert warning in told
    (read,) = json.loads(fedldp_command("report", "run", "--json").out)["runs"]
    assert [each["text"] for each in [*read["privacy"]["warnings"], *read["doubts"]]] == printed
    assert fedldp.load("run").doubts == tuple(run.doubts)


def test_the_requested_guarantee_comes_first(visits: Path) -> None:
    run = read_run(visits)
    assert run.asked == ("person", "server")
    assert run.headline is not None
    assert run.headline.unit == "person"
    told = Page(page([run])).text()
    asked = (
        "Asked for: epsilon 2 (delta 1e-05) about all data of one person, against the server; "
        "proven: epsilon"
    )
    said = "This run was simulated and protects nothing itself: the guarantee holds for a deploym"
    assert told.index(asked) < told.index(said) < told.index("AUC")
    assert told.index("AUC") < told.index("Privacy: what is claimed")


def test_any_requested_line_comes_first() -> None:
    lines = tuple(
        Guarantee(unit=unit, adversary=adversary, epsilon=epsilon, delta=0.0,
                  method=PURE_SUM(over="reports"))
        for unit, adversary, epsilon in (
            ("weight", "server", 1.0), ("client-run", "server", 9.0),
            ("client-run", "summing-server", 3.0),
        )
    )  # fmt: skip
    privacy = Statement(claim=None, guarantees=lines, warnings=())
    for line in lines:
        found = asked_first(privacy, (line.unit, line.adversary))
        assert found.guarantees[0] == line
        assert set(found.guarantees) == set(lines)
        places = {each: explain(found).index(f"epsilon {each.epsilon:g}") for each in lines}
        assert min(places, key=places.__getitem__) == line
    assert asked_first(privacy, None) == privacy


def test_classes_have_their_names_and_figures_fit_the_balance(visits: Path) -> None:
    run = read_run(visits)
    final = run.summary["final"]
    read = Page(page([run]))
    assert run.class_names == list(NAMES)
    for name in NAMES:
        assert (
            read.text("th").count(name) == 3
        )  # in the scores of classes, and in a row and a column of the matrix
    bold = read.text("b")
    assert f"{final['auc']:.4f}" in bold
    assert (
        f"{100 * final['accuracy']:.2f} %" not in bold
        or final["accuracy"] == final["balanced_accuracy"]
    )
    told = read.text()
    assert (
        f"always predicting the most frequent class: {100 * final['most_frequent']:.2f} %" in told
    )
    assert f"calibration error {final['calibration_error']:.4f}" in told


@pytest.fixture(scope="module")
def swept() -> Any:
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(40, 2)), np.arange(40) % 8 // 7) for _ in range(4)]
    data = Dataset.from_clients(rows)  # without a test set, part of each client's rows is held out
    settings = {"rounds": 1, "model": "logistic", "standardise": False, "num_clients": 4}
    return fedldp.sweep("quickstart", grid={"epsilon": [1, 2]}, dataset=data, workers=1, **settings)


@pytest.mark.slow
def test_a_sweep_on_private_rows_says_that_choosing_is_a_release(swept: Any) -> None:
    choosing = words.line(CHOOSING)
    assert choosing in swept.notes()
    told = swept.summary()["warnings"]
    assert choosing in [each["text"] for each in told]
    assert [each["kind"] for each in told] == [each.kind for each in swept.warnings()]
    assert DOUBTFUL_RUNS.is_in(swept.warnings())
    text = swept.to_csv()
    assert f"# {choosing}\n" in text
    data = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(list(csv.DictReader(io.StringIO("\n".join(data))))) == 2
    assert escape(choosing) in swept._repr_html_()
    assert {tuple(run["guarantee"]) for run in swept.runs} == {("unit", "adversary", "delta")}


@pytest.mark.slow
def test_a_dotted_key_leaves_the_rest_of_its_table(
    visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(visits.parent)
    changed = resolve("visits.toml", ["target.epsilon=3", "scale_columns.age=[0, 99]"])
    whole = resolve("visits.toml")
    assert changed.target == whole.target.changed(epsilon=3.0)  # type: ignore[union-attr]
    assert changed.scale_columns == whole.scale_columns | {"age": [0.0, 99.0]}
    replaced = resolve("visits.toml", ['target={unit="record", epsilon=1.0}', "person_column="])
    assert replaced.target is not None
    assert replaced.target.unit == "record"
    found = fedldp.sweep("visits.toml", grid={"target.epsilon": [1, 4]}, rounds=1, workers=1)
    assert [run["guarantee"]["unit"] for run in found.runs] == ["person", "person"]
    assert [run["epsilon"] <= at for run, at in zip(found.runs, (1, 4), strict=True)] == [True] * 2
    assert found.shown()[0][:3] == ["target.epsilon", "AUC", "balanced accuracy"]
    other = fedldp.sweep("visits.toml", rounds=1, workers=1, guarantee="client-run:server")
    assert [run["epsilon"] for run in other.runs] == [None]


def test_a_missing_matplotlib_is_reported_before_training(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = fedldp_command("run", *SHORT, "--out", "run")
    assert done.status == 0, done.err
    assert done.err.index("no chart   Matplotlib is not installed") < done.err.index("round 1/1")
    assert "fedldp report run, which draws the chart" in done.err
    assert "no chart" in fedldp_command("report", "run").err
