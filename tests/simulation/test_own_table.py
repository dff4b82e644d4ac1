"""Runs on a user's own rows: scores, counts, and folders of earlier versions."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import cut

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.formatting import rounded_count
from fedldp.core.kinds import HELD_OUT
from fedldp.reporting import words
from fedldp.reporting.card import write_card
from fedldp.simulation.evaluating import evaluate, predict
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.result import read_run

TRAIN, TEST = 75, 15
"""Numbers that appear nowhere else in a run's files."""


def table(path: Path, sizes: tuple[int, ...], seed: int = 0) -> Path:
    """Write a table of clients with the given numbers of rows."""
    rng = np.random.default_rng(seed)
    rows = [
        f"{'client' + str(client)},{x:.3f},{y:.3f},{int(x > 0.5)}\n"
        for client, size in enumerate(sizes)
        for x, y in rng.uniform(size=(size, 2))
    ]
    path.write_text("who,first,second,label\n" + "".join(rows))
    return path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "own.csv", (30, 29, 21, 4, 3, 3))
    table(tmp_path / "later.csv", (20,), seed=1)
    return tmp_path


def own(**settings: Any) -> fedldp.algorithms.config.RunConfig:
    base = {"dataset": "own.csv", "client_column": "who", "num_clients": 6, "rounds": 2}
    return fedldp.recipe(
        "quickstart", model="logistic", channel="named", standardise=False, **{**base, **settings}
    )


def arrays(rows: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    features = rng.uniform(size=(rows, 4)).astype(np.float32)
    return features, (features[:, 0] > 0.5).astype(np.int64)


def test_counts_that_the_owner_is_told_say_so_and_are_in_no_file(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = ["a"] * 53 + ["b"] * 37  # of which "b" is not declared
    rows = (place / "own.csv").read_text().splitlines()
    lines = [f"{row},{kind}" for row, kind in zip(rows, ["kind", *kinds], strict=True)]
    (place / "own.csv").write_text("\n".join(lines))
    declared = {"categories": {"kind": ["a", "x"]}, "other_columns": {"kind": "x"}}
    fedldp.run(own(**declared), out=place / "run")
    write_card(read_run(place / "run"), scores=True)
    told = [record.getMessage() for record in caplog.records if "37 cells" in record.getMessage()]
    assert told
    assert all("told only here" in each for each in told)
    files = [each for each in (place / "run").rglob("*") if each.is_file()]
    assert len(files) > 8
    for each in files:
        text = each.read_bytes()
        assert b"none of its categories" not in text, each
        assert b"37 cells" not in text, each


# Scores


def test_one_held_out_label_changes_the_accuracy_and_no_release() -> None:
    def ran(turned: bool) -> Any:
        data = fedldp.Dataset.from_arrays(*arrays())
        data.test.labels[0] ^= turned
        return fedldp.run("quickstart", dataset=data, rounds=1, num_clients=4, model="logistic")

    one, other = ran(False), ran(True)
    for name, weights in one.weights.items():
        assert weights.tobytes() == other.weights[name].tobytes()
    assert one.accuracy != other.accuracy
    assert HELD_OUT in one.privacy.warnings


def test_the_statement_says_that_scores_use_private_rows(place: Path) -> None:
    for settings, there in (({}, True), ({"test_file": "later.csv"}, False)):
        assert (HELD_OUT in fedldp.account(own(**settings)).warnings) is there
        result = fedldp.run(own(**settings), out=place / f"run-{there}")
        assert (HELD_OUT in result.privacy.warnings) is there
        for name in ("privacy.json", "summary.json"):
            found = json.loads((place / f"run-{there}" / name).read_text())
            kept = Statement.from_json(found.get("privacy", found))
            assert (HELD_OUT in kept.warnings) is there, name
        page = (place / f"run-{there}" / "report.html").read_text()
        assert (words.line(HELD_OUT) in html.unescape(page)) is there
        assert ("exact functions of private rows: see the warning" in page) is there
        assert (words.shown(HELD_OUT) in evaluate(place / f"run-{there}")["warnings"]) is there
        measured = evaluate(place / f"run-{there}")
        exact = [sum(row) for row in result.confusion.tolist()]
        assert [each["examples"] for each in measured["classes"]] == list(map(rounded_count, exact))
        assert [sum(row) for row in measured["confusion"]] == pytest.approx([1, 1], abs=0.011)
        matrix = page.partition("Confusion matrix")[2].partition("</table>")[0]
        assert matrix.count(" %</td>") == 4
    assert "the exact number of rows of each class" in words.line(HELD_OUT)
    # Somebody who gives other rows knows whose they are.
    of_others = evaluate(place / "run-True", place / "later.csv")["warnings"]
    assert words.shown(HELD_OUT) not in of_others


def test_a_shift_is_scored_as_it_is_predicted(place: Path) -> None:
    trained = fedldp.run(own(), out=place / "run").trained()
    labels = [int(line[-1]) for line in (place / "later.csv").read_text().splitlines()[1:]]
    for shift in (-3.0, 0.4, 3.0):
        rows = predict(trained, place / "later.csv", threshold=0.6, shift=shift)
        right = [int(row["class"]) == label for row, label in zip(rows, labels, strict=True)]
        found = fedldp.evaluate("run", "later.csv", threshold=0.6, shift=shift)
        assert (found["accuracy"], found["shift"]) == (np.mean(right), shift)
        assert found["answers"] == []  # which would be about the run's own people
    with pytest.raises(ConfigError, match=r"^shift = 60: give a number above -50 and below 50$"):
        fedldp.evaluate("run", shift=60)


@pytest.mark.slow
def test_all_ways_to_give_rows_are_recognised(place: Path) -> None:
    features, labels = arrays()
    half = (features[:30], labels[:30]), (features[30:], labels[30:])
    np.savez("own.npz", features=features, labels=labels)
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = pytest.importorskip("pyarrow").table({"x": features[:, 0], "label": labels})
    parquet.write_table(columns, "own.parquet")
    made = fedldp.Dataset.from_arrays
    tested = made(features, labels, test=(features, labels))
    given: list[tuple[Any, bool]] = [
        ("own.npz", True), ("own.parquet", True),
        (made(features, labels), True), (tested, False),
        (fedldp.Dataset.from_clients(half), True),
        (fedldp.Dataset.from_clients(half, test=half[0]), False),
    ]  # fmt: skip
    settings: dict[str, Any] = {"num_clients": 2, "model": "logistic", "rounds": 1}
    for dataset, there in given:
        found = fedldp.account("quickstart", dataset=dataset, **settings)
        assert (HELD_OUT in found.warnings) is there
    found = fedldp.account("quickstart", dataset="own.npz", test="own.npz", **settings)
    assert HELD_OUT not in found.warnings
    csv = own(client_column=None, ignore_columns=["who"])
    assert HELD_OUT in fedldp.account(csv).warnings
    pair = fedldp.run("quickstart", dataset=(features, labels), **settings)
    assert HELD_OUT in pair.privacy.warnings


def test_public_data_get_no_warning() -> None:
    # A fifth of the digits is also split off, but everybody has these rows.
    assert HELD_OUT not in fedldp.account("quickstart").warnings
    given = fedldp.data.load_dataset("digits")
    assert HELD_OUT not in fedldp.account("quickstart", dataset=given).warnings


def test_a_sweep_has_the_warning_next_to_its_table(place: Path) -> None:
    def notes(**settings: Any) -> list[str]:
        return fedldp.sweep(own(**settings), rounds=1, workers=1).notes()

    assert words.line(HELD_OUT) in notes()
    assert words.line(HELD_OUT) not in notes(test_file="later.csv")


# Counts


def test_a_finished_folder_contains_no_exact_count_of_rows(place: Path) -> None:
    result = fedldp.run(own(), out=place / "run")
    data = fedldp.data.load_dataset("own.csv", columns=own().columns)
    assert (len(data.train), len(data.test)) == (TRAIN, TEST)
    schema = json.loads((place / "run" / "schema.json").read_text())
    assert (schema["num_examples"], schema["rounded"]) == (None, True)
    assert not (place / "run" / "own_data.json").exists()
    for name in ("config.json", "schema.json", "environment.json", "privacy.json"):
        text = re.sub(r'"date".*', "", (place / "run" / name).read_text())
        assert not re.search(rf"\b({TRAIN}|{TEST}|{TRAIN + TEST})\b", text), name
    found = json.loads((place / "run" / "config.json").read_text())["own_data"]
    assert found == "own.csv: up to 100 rows for training and 20 for testing, of shape (2,)"
    tested = {"accuracy": 0.0, "auc": None, "balanced_accuracy": None}
    (doubt,) = Inputs.of(own(), None, None).doubts(tested, None)  # and none about clients' rows
    assert (doubt.values["examples"], doubt.values["rounded"]) == (20, True)
    # The result was computed with all of these rows.
    assert result.privacy == fedldp.account(own())


def test_public_data_keep_their_counts(place: Path) -> None:
    fedldp.run("quickstart", rounds=1, out=place / "run")
    schema = json.loads((place / "run" / "schema.json").read_text())
    assert (schema["num_examples"], schema["rounded"]) == (1437, False)
    assert json.loads((place / "run" / "config.json").read_text())["own_data"] is None


def test_a_resumed_run_must_have_exactly_the_same_rows(place: Path) -> None:
    cut(own(), place / "run", 1)
    table(place / "own.csv", (30, 29, 22, 4, 3, 3))  # one row more, but the same rounded count
    with pytest.raises(RunError, match="had different data"):
        fedldp.resume(place / "run")
    table(place / "own.csv", (30, 29, 21, 4, 3, 3))
    resumed = fedldp.resume(place / "run")
    whole = fedldp.run(own())
    for name, weights in whole.weights.items():
        assert weights.tobytes() == resumed.weights[name].tobytes()
    assert not (place / "run" / "own_data.json").exists()
    assert fedldp.resume(place / "run").run == resumed.run == whole.run
    assert fedldp.load(place / "run").run == whole.run
