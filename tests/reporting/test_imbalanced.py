"""If most test rows are of one class, AUC and balanced accuracy come first."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import Page

import fedldp
from fedldp.data import Dataset
from fedldp.reporting.html import page
from fedldp.reporting.text import Terminal
from fedldp.simulation.engine import Result
from fedldp.simulation.result import read_run


def run_on(place: Path, share: float) -> Result:
    """Return a run on a table in which ``share`` of the rows are of class 0."""
    rng = np.random.default_rng(0)

    def rows(count: int) -> tuple[Any, Any]:
        labels = (np.arange(count) % 100 >= 100 * share).astype(np.int64)
        return rng.normal(size=(count, 2)) + labels[:, None], labels

    data = Dataset.from_clients([rows(100) for _ in range(4)], test=rows(200))
    config = fedldp.recipe(
        "fedavg-quickstart", rounds=2, model="logistic", standardise=False, learning_rate=0.2
    )
    return fedldp.run(config, dataset=data, out=place)


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_on(tmp_path_factory.mktemp("rare") / "run", 0.87)


def printed(result: Result) -> list[str]:
    text = io.StringIO()
    Terminal(file=text, width=200).print_result(result.summary(), "the test set", {}, None)
    return text.getvalue().splitlines()


def test_a_runs_last_lines_begin_with_auc(rare: Result, tmp_path: Path) -> None:
    final = rare.summary()["final"]
    assert final["most_frequent"] == 0.87
    lines = printed(rare)
    first = next(i for i, line in enumerate(lines) if line.startswith("AUC"))
    assert lines[first] == (
        f"AUC        {final['auc']:.4f} on the test set, balanced accuracy "
        f"{100 * final['balanced_accuracy']:.2f} %"
    )
    assert "87.00 % of the test set is one class, so always predicting" in lines[first + 1]
    assert any(line.startswith("accuracy") for line in lines[first:])
    assert f": AUC {final['auc']:.4f}, balanced accuracy" in repr(rare)
    usual = run_on(tmp_path / "usual", 0.5)
    words = [line.split(" ")[0] for line in printed(usual)]
    assert words.index("accuracy") < words.index("AUC")  # here AUC comes after the accuracy
    assert f"predicting the most frequent class: {100 * usual.most_frequent:.2f} %" in "\n".join(
        printed(usual)
    )
    assert "AUC" not in repr(usual)


def test_a_page_begins_with_auc(rare: Result, runs: dict[str, Path]) -> None:
    assert rare.run_dir is not None
    final = rare.summary()["final"]
    one, usual = read_run(rare.run_dir), read_run(runs["fedavg-quickstart"])
    text = Page(page([one])).text()
    balanced = f"{100 * final['balanced_accuracy']:.2f} %"
    shares = f"AUC {final['auc']:.4f} , balanced accuracy {balanced}"
    assert shares in text
    assert "AUC, accuracy and loss by round" in text
    assert text.index(shares) < text.index(f"accuracy {100 * final['accuracy']:.2f} %")
    both = Page(page([usual, one])).text()
    assert "in the test set of run 2, most examples belong to one class" in both
    alone = Page(page([usual])).text()
    assert "AUC, accuracy" not in alone
    assert "Scores AUC" in alone  # next to the accuracy


def test_a_threshold_changes_predictions_but_no_ranking(
    rare: Result, fedldp_command: Any, tmp_path: Path
) -> None:
    rng, labels = np.random.default_rng(1), (np.arange(200) % 100 >= 87).astype(np.int64)
    features = (rng.normal(size=(200, 2)) + labels[:, None]).astype(np.float32)
    new = tmp_path / "new.npz"
    np.savez(new, features=features, labels=labels)
    outcomes = {}
    for threshold in (None, 0.13):
        given = () if threshold is None else ("--threshold", threshold)
        done = fedldp_command("evaluate", rare.run_dir, *given, "--data", new, "--json")
        assert done.status == 0, done.err
        outcomes[threshold] = json.loads(done.out)
        assert outcomes[threshold]["threshold"] == threshold
    plain, moved = outcomes[None], outcomes[0.13]
    for name in ("auc", "average_precision", "brier"):
        assert moved[name] == plain[name]
    assert moved["balanced_accuracy"] > plain["balanced_accuracy"]
    assert moved["accuracy"] < plain["accuracy"]
    right = sum(moved["confusion"][k][k] for k in (0, 1)) / moved["examples"]
    assert moved["accuracy"] == pytest.approx(right)
    shown = fedldp_command("evaluate", rare.run_dir, "--threshold", 0.13, "--data", new).out
    assert "threshold  1 is predicted if its probability is at least 0.13" in shown


def test_a_threshold_needs_two_classes(
    rare: Result, runs: dict[str, Path], fedldp_command: Any
) -> None:
    for threshold in (0, 1, 1.5, "nan"):
        done = fedldp_command("evaluate", rare.run_dir, "--threshold", threshold)
        assert done.status == 2
        assert "give a probability above 0 and below 1" in done.err
    done = fedldp_command("evaluate", runs["quickstart"], "--threshold", 0.5)
    assert done.status == 2
    assert "10 classes, and a threshold needs two" in done.err
