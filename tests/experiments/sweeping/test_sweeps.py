"""Sweeps from Python: in one process and in several, continued, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import without_times

import fedldp
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import RunError
from fedldp.experiments import engine
from fedldp.experiments.making import Maker
from fedldp.experiments.sweeping import sweeps
from fedldp.simulation import workers

SHORT = {"rounds": 2, "num_clients": 5, "local_epochs": 1}


def swept(out: Path | None, **more: Any) -> fedldp.Sweep:
    given = {"grid": {"epsilon": [1, 2]}, "seeds": range(2), "workers": 1, **SHORT, **more}
    return fedldp.sweep("quickstart", out=out, **given)


@pytest.mark.slow
def test_several_processes_give_the_bits_of_one_and_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "cores", lambda: 2)
    one, two = swept(tmp_path / "one"), swept(tmp_path / "two", workers=2)
    assert without_times(one) == without_times(two)
    for run in one.runs:
        folder = Path(run["run_dir"])
        other = tmp_path / "two" / folder.name
        for name in ("model.safetensors", "config.json", "privacy.json"):
            assert (folder / name).read_bytes() == (other / name).read_bytes()
    alone = fedldp.run(fedldp.recipe("quickstart", epsilon=2, seed=1, **SHORT))
    last = two.runs[-1]
    assert (last["settings"]["epsilon"], last["seed"]) == (2, 1)
    assert (last["accuracy"], last["loss"]) == (alone.accuracy, alone.rounds[-1].loss)
    found = fedldp.resume(Path(last["run_dir"])).weights
    assert all(np.array_equal(found[name], alone.weights[name]) for name in alone.weights)


@pytest.mark.slow
def test_a_finished_run_is_not_run_again_and_a_wider_grid_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "sweep"
    first = swept(out, grid={"epsilon": [1]})
    done: list[str] = []
    real = Maker.make
    monkeypatch.setattr(
        Maker, "make", lambda self, run, place: done.append(place.name) or real(self, run, place)
    )
    assert swept(out, grid={"epsilon": [1]}).runs == first.runs
    assert done == []
    wide = swept(out, grid={"epsilon": [2, 1]}, seeds=[0, 1, 2])
    assert len(done) == 4
    assert len(wide.runs) == 6
    assert all(run in wide.runs for run in first.runs)
    assert json.loads((out / "results.json").read_text()) == wide.summary()
    assert (out / "results.csv").read_text() == wide.to_csv()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"grid": {"epsilon": [1]}}, "also has epsilon=2"),
        ({"grid": {"mechanism": ["sign"]}}, "varies epsilon"),
        ({"seeds": [0]}, "also has seeds=1"),
        ({"rounds": 3}, r"differs in its settings \(rounds=2"),
        ({"device": "auto"}, "differs in its device"),
    ],
)
def test_a_different_sweep_does_not_continue_in_the_folder(
    tmp_path: Path, change: dict[str, Any], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Maker, "attempt", lambda self, run, place: RunError("not here"))
    assert len(swept(tmp_path / "sweep").failed) == 4
    with pytest.raises(RunError, match=line):
        swept(tmp_path / "sweep", **change)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="it exists already"):
        swept(tmp_path)
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        swept(tmp_path)


@pytest.mark.slow
def test_two_processes_cannot_work_on_one_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: object) -> RunError:
        with pytest.raises(RunError, match="another process is working"):
            swept(tmp_path / "sweep")
        return RunError("seen")

    monkeypatch.setattr(Maker, "attempt", again)
    assert {failure["reason"] for failure in swept(tmp_path / "sweep").failed} == {"seen"}


def test_a_process_that_dies_fails_only_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "cores", lambda: 2)
    monkeypatch.setattr(workers, "_PROGRAM", "import os; os._exit(1)")
    found = swept(tmp_path / "sweep", workers=2)
    assert {failure["reason"] for failure in found.failed} == {workers.DIED}
    assert len(found.failed) == 4


def test_own_data_and_configurations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.random((60, 4), dtype=np.float32), np.arange(60) % 2
    data = fedldp.Dataset.from_arrays(features, labels)
    config = fedldp.recipe("fedavg-quickstart", model="logistic", standardise=False, **SHORT)
    found = fedldp.sweep(
        config, grid={"learning_rate": np.array([0.1, 0.2])}, dataset=data, workers=1,
        out=tmp_path / "sweep",
    )  # fmt: skip
    assert [row["settings"]["learning_rate"] for row in found.table] == [0.1, 0.2]
    with pytest.raises(RunError, match=r"differs in its settings \(dataset=custom"):
        fedldp.sweep(config, grid={"learning_rate": [0.1, 0.2]}, out=tmp_path / "sweep")


def test_runs_without_a_guarantee_are_counted_and_one_that_failed_with_them() -> None:
    found = fedldp.sweep(
        "fedavg-digits", grid={"rounds": [1], "learning_rate": [0.3, 1e30]}, workers=1
    )
    assert len(found.failed) == 1
    (together,) = found.together
    assert (together.runs, together.unprotected, together.proven.epsilon) == (0, 2, None)


@pytest.mark.parametrize("other", ["./rows.csv", "more/../rows.csv"])
def test_rows_are_one_set_however_their_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more").mkdir()
    config = find_recipe("quickstart").config
    of = [
        sweeps._rows_of(config.changed(dataset=name), None)
        for name in ("rows.csv", other, "others.csv")
    ]
    assert of[0] == of[1] != of[2]
    data = fedldp.Dataset.from_arrays(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
    names = {sweeps._rows_of(config.changed(dataset=name), data) for name in ("digits", "mnist")}
    assert len(names) == 1
