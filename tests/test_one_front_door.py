"""The arguments that name data, places and workers mean the same in every function of Python."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp

DOORS = [fedldp.run, fedldp.account, fedldp.sweep, fedldp.compare, fedldp.advise]
SMALL = {"rounds": 1, "model": "logistic", "num_clients": 3, "clients_per_round": None}


def rows(seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    features = draw.uniform(size=(count, 3)).astype(np.float32)
    return features, (features[:, 0] > 0.5).astype(np.int64)


@pytest.mark.parametrize("door", DOORS)
def test_each_function_takes_the_same_arguments(door: Callable[..., Any]) -> None:
    names = {"dataset", "test", "data_dir"}
    if door is not fedldp.account:  # which makes no runs
        names |= {"workers", "cluster", "out", "say"}
    assert names <= set(inspect.signature(door).parameters)


def each_result(dataset: Any, test: Any, said: list[str], **settings: Any) -> dict[str, Any]:
    """Return what each function that takes a recipe makes of the same data."""
    how: dict[str, Any] = {"dataset": dataset, "test": test, **SMALL, **settings}
    return {
        "run": fedldp.run("fedavg-quickstart", say=said.append, **how),
        "account": fedldp.account("fedavg-quickstart", **how),
        "sweep": fedldp.sweep("fedavg-quickstart", workers=1, say=said.append, **how),
        "compare": fedldp.compare(
            "quickstart", guarantee="client-run:server", epsilon=8, tries=2, seeds=[0],
            workers=1, say=said.append, **how,
        ),
    }  # fmt: skip


@pytest.mark.slow
def test_examples_to_test_on_mean_the_same_everywhere() -> None:
    said: list[str] = []
    data = [rows(seed) for seed in range(3)]
    found = each_result(data, rows(9, 40), said)
    run, sweep, compared = found["run"], found["sweep"], found["compare"]
    assert run.config.num_clients == 3
    assert sweep.runs[0]["accuracy"] == run.accuracy
    assert round(run.accuracy * 40) == pytest.approx(run.accuracy * 40)  # of 40 rows
    score = compared.rows[0]["mean"]
    assert round(score * 40) == pytest.approx(score * 40)
    assert found["account"] == run.privacy
    assert said[0].startswith("round 1/1  accuracy")


@pytest.mark.slow
def test_the_path_of_a_second_table_means_the_same_everywhere(tmp_path: Path) -> None:
    for name, seed, count in (("t", 0, 90), ("later", 9, 40)):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["a", "b", "c", "label"])
            features, labels = rows(seed, count)
            table.writerows([*each, label] for each, label in zip(features, labels, strict=True))
    whole, later = tmp_path / "t.csv", str(tmp_path / "later.csv")
    found = each_result(whole, later, [])
    assert found["run"].config.test_file == later
    assert found["sweep"].runs[0]["accuracy"] == found["run"].accuracy
    score = found["compare"].rows[0]["mean"]
    assert round(score * 40) == pytest.approx(score * 40)


@pytest.mark.slow
def test_advice_on_data_given_in_python(tmp_path: Path) -> None:
    hospitals = [(*rows(seed, 120), np.arange(120) // 2 * 2) for seed in range(2)]
    found = fedldp.advise(
        dataset=hospitals, test=(*rows(9, 80), np.arange(80)), out=tmp_path / "out", epsilon=[8.0],
        tries=2, seeds=[0], workers=1, settings={"people": 20_000}, budget=2,
    )  # fmt: skip
    assert found.unit == "person"
    assert len(found.data.test) == 80
    assert found.request.delta_for("person") == 5e-6
