"""Runs in stretches, as tasks return them, in this process instead of a cluster."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from folders import cut, metrics

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.experiments import cluster
from fedldp.experiments.making import Maker
from fedldp.experiments.runs import PlannedRun
from fedldp.simulation.engine import simulate

SHORT = {"rounds": 3, "num_clients": 5, "local_epochs": 1}


class Here:
    """A cluster of one CPU, which pickles the input and output of its tasks."""

    def __init__(self) -> None:
        self.tasks = 0
        self.puts = 0
        self.ray = SimpleNamespace(wait=lambda found, timeout: (found[:1], found[1:]))
        self.close = lambda: None

    def made(self, address: str, make: Callable[..., Any], *given: object) -> Here:
        self.work = make(*pickle.loads(pickle.dumps(given)))
        return self

    @property
    def size(self) -> int:
        return 1

    def put(self, value: object) -> object:
        self.puts += 1
        return value

    def submit(self, *task: object) -> Callable[[], Any]:
        self.tasks += 1
        done = pickle.dumps(self.work(*pickle.loads(pickle.dumps(task))))
        return lambda: pickle.loads(done)

    def result(self, reference: Callable[[], Any]) -> Any:
        return reference()


def done_by(
    here: Here, runs: Mapping[Path, RunConfig], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str | None]:
    """Execute runs, and return why they failed, by the names of their folders."""
    monkeypatch.setattr(cluster, "Cluster", here.made)
    reasons: dict[str, str | None] = {}
    with closing(cluster.ClusterExecutor("auto", Maker())) as executor:
        for place, config in runs.items():
            labels = {"recipe": place.name}
            run = PlannedRun(digest=place.name, words="", labels=labels, config=config)
            executor.begin(run, place)
            while place.name not in reasons:
                for ended, result in executor.ended():
                    why = str(result) if isinstance(result, Exception) else None
                    reasons[ended.digest] = why
    return reasons


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        fedldp.recipe("quickstart", **SHORT),
        fedldp.recipe("secure-aggregation-digits", **SHORT),
    ],
    ids=["plain", "kept by clients"],
)
def test_stretches_of_one_round_give_the_whole_run(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "SECONDS", 0.0)
    here, place = Here(), tmp_path / "run"
    assert done_by(here, {place: config}, monkeypatch) == {"run": None}
    assert here.tasks == 3
    simulate(config, recipe="run", out=tmp_path / "whole")
    one, other = (files(tmp_path / name) for name in ("run", "whole"))
    assert one.keys() == other.keys()
    timed = {"environment.json", "metrics.jsonl", "checkpoint", "summary.json", "report.html"}
    assert all(one[name] == other[name] for name in one.keys() - timed)
    assert metrics(place) == metrics(tmp_path / "whole")
    assert json.loads(one["summary.json"])["run_dir"] == str(place)
    assert json.loads(one["environment.json"])["started_in"] == started_in(place)


@pytest.mark.slow
def test_a_damaged_summary_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS", 0.0)
    config, place = fedldp.recipe("quickstart", **SHORT), tmp_path / "run"
    cut(config, place, after=1)
    (place / "summary.json").write_text("{")
    here = Here()
    assert done_by(here, {place: config}, monkeypatch) == {"run": None}
    assert here.tasks == 2
    assert len(json.loads((place / "summary.json").read_text())["rounds"]) == 3


def test_a_run_that_fails_at_once_leaves_no_folder_and_others_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = fedldp.recipe("fedavg-quickstart", **SHORT, model="mlp", learning_rate=1e30)
    whole = fedldp.recipe("quickstart", **SHORT)
    here = Here()
    reasons = done_by(here, {tmp_path / "broken": broken, tmp_path / "run": whole}, monkeypatch)
    assert reasons["run"] is None
    assert "NaN" in str(reasons["broken"])
    assert not (tmp_path / "broken").exists()
    assert (tmp_path / "run" / "summary.json").exists()
    assert here.puts == 1  # the data of both runs


def files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder, by path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def started_in(place: Path) -> str:
    return os.path.relpath(Path.cwd(), place)
