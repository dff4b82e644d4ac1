"""Runs that are cut short and resumed: as if they had never been cut, or one line why not."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import FILES, assert_same_run, cut, metrics, quick
from safetensors import safe_open
from safetensors.numpy import load_file, save

import fedldp
from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.reporting.record import Round, RunFolder
from fedldp.simulation.engine import simulate
from fedldp.wire import Broadcast

SETTINGS = {
    "plain": {},
    "adaptive": {"ranges": "adaptive", "clients_per_round": 4},
    "budgets": {"epsilon": [1.0, 8.0, 2.0, 4.0, 1.0, 8.0], "shuffle": False},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing cut short."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    simulate(quick(), recipe="quickstart", out=folder)
    assert {path.name for path in folder.iterdir()} == FILES
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# Resuming in this process


@pytest.mark.parametrize("after", [1, 3, 4])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_resumed_run_equals_the_whole_one(
    tmp_path: Path, settings: dict[str, Any], after: int
) -> None:
    config = quick(**settings)
    simulate(config, recipe="quickstart", out=tmp_path / "whole")
    cut(config, tmp_path / "cut", after)
    assert [m["round"] for m in metrics(tmp_path / "cut")] == list(range(1, after + 1))
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    fedldp.resume(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_run_can_be_cut_and_resumed_twice(tmp_path: Path, finished: Path) -> None:
    cut(quick(), tmp_path / "run", 1)

    def stop(record: Round) -> None:
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(quick(), recipe="quickstart", resume=RunFolder(tmp_path / "run"), after_round=stop)
    fedldp.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", finished)


def test_resuming_a_finished_run_trains_nothing(copy: Path, finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    result = fedldp.resume(copy)
    assert len(result.rounds) == 4
    after = {path.name: path.read_bytes() for path in copy.iterdir()}
    for name in ("config.json", "metrics.jsonl", "privacy.json", "model.safetensors"):
        assert after[name] == before[name], name
    found, expected = (RunFolder(folder).read_checkpoint() for folder in (copy, finished))
    assert found is not None
    assert expected is not None
    assert found[1] == expected[1]  # times too: nothing was done again
    assert found[0].weights.tobytes() == expected[0].weights.tobytes()


def test_the_summary_says_where_the_run_lies(copy: Path) -> None:
    fedldp.resume(copy)
    assert json.loads((copy / "summary.json").read_text())["run_dir"] == str(copy)


def test_a_checkpoint_holds_arrays_however_they_lie_in_memory(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    public = {"transposed": square.T, "every second": square[::2], "count": np.array(3)}
    broadcast = Broadcast(round=1, weights=square.reshape(-1)[::-1], public=public)
    folder.write_round(broadcast, [], MemoryLedger())
    saved = folder.read_checkpoint()
    assert saved is not None
    np.testing.assert_array_equal(saved[0].weights, broadcast.weights)
    for name, value in public.items():
        np.testing.assert_array_equal(saved[0].public[name], value)


def test_the_final_weights_are_those_of_the_result(tmp_path: Path) -> None:
    result = fedldp.run(quick(), out=tmp_path / "run")
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert stored.keys() == result.weights.keys()
    assert all(np.array_equal(stored[name], result.weights[name]) for name in stored)


# Killed between two files: every state that the order of writing allows


END = ("model.safetensors", "summary.json", "report.html")


def remove(*names: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return act


def shorten_metrics(folder: Path) -> None:
    for name in END:
        (folder / name).unlink(missing_ok=True)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]))


def leave_partial_files(folder: Path) -> None:
    for name in ("checkpoint", "metrics.jsonl", "summary.json"):
        (folder / f"{name}.partial").write_bytes(b"half of it")


STATES: dict[str, Callable[[Path], None]] = {
    "before the end": remove(*END),
    "within the end": remove("report.html"),
    "a torn model": lambda f: (f / "model.safetensors").write_bytes(b"torn"),
    "last metrics missing": shorten_metrics,
    "first metrics missing": remove(*END, "metrics.jsonl"),
    "only the configuration": remove(
        *END, "metrics.jsonl", "checkpoint", "privacy.json", "environment.json"
    ),
    "configuration and environment": remove(*END, "metrics.jsonl", "checkpoint", "privacy.json"),
    "no round": remove(*END, "metrics.jsonl", "checkpoint"),
    "partial files": leave_partial_files,
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_a_run_killed_between_two_files_is_resumed(
    copy: Path, finished: Path, state: Callable[[Path], None]
) -> None:
    state(copy)
    fedldp.resume(copy)
    for partial in copy.glob("*.partial"):
        partial.unlink()  # harmless remains
    assert_same_run(copy, finished)


def test_a_run_killed_between_two_files_on_the_way_is_resumed(
    tmp_path: Path, finished: Path
) -> None:
    cut(quick(), tmp_path / "run", 2)
    shorten_metrics(tmp_path / "run")
    fedldp.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", finished)


# Damage


def checkpoint_with(path: Path, metadata: dict[str, str] | None = None, **tensors: Any) -> None:
    """Write a checkpoint again with some of its content changed."""
    with safe_open(path, framework="numpy") as file:
        old = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        known = file.metadata()
    path.write_bytes(save({**old, **tensors}, {**known, **(metadata or {})}))


def rewritten(metadata: dict[str, str] | None = None, **tensors: Any) -> Callable[[Path], None]:
    return lambda path: checkpoint_with(path, metadata, **tensors)


def written(content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content(path.read_bytes()))


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": written(lambda old: b""),
    "cut in its header": written(lambda old: old[:50]),
    "cut in its tensors": written(lambda old: old[:-3]),
    "longer": written(lambda old: old + b"\0"),
    "noise": written(lambda old: random.Random(0).randbytes(2000)),
    "zeros": written(lambda old: bytes(len(old))),
    "a folder": become_a_folder,
    "another file": written(lambda old: save({"weights": np.zeros(650, np.float32)})),
    "too few weights": rewritten(weights=np.zeros(649, np.float32)),
    "too many weights": rewritten(weights=np.zeros(651, np.float32)),
    "weights in two axes": rewritten(weights=np.zeros((65, 10), np.float32)),
    "weights of another type": rewritten(weights=np.zeros(650, np.int64)),
    "weights NaN": rewritten(weights=np.full(650, np.nan, np.float32)),
    "radii zero": rewritten(radii=np.zeros(2)),
    "no round": rewritten({"round": "two"}),
    "a round beyond": rewritten({"round": "99", "rounds": "[]"}),
    "fewer records than rounds": rewritten({"rounds": "[]"}),
    "records of nothing": rewritten({"rounds": "[{}]"}),
    "records no list": rewritten({"rounds": "3"}),
    "sizes of another model": rewritten({"sizes": "[1, 2]"}),
    "sizes no list": rewritten({"sizes": "7"}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_one_line(
    copy: Path, fedldp_command: Any, damage: Callable[[Path], object]
) -> None:
    damage(copy / "checkpoint")
    before = sorted(path.name for path in copy.iterdir())
    line = fedldp_command("run", "--resume", copy, "--workers", 1).assert_refused()
    assert "checkpoint" in line
    assert sorted(path.name for path in copy.iterdir()) == before  # nothing removed


CONFIGS = ["", "[]", "3", "null", "{}", '{"recipe": null}', '{"config": {}}',
           '{"recipe": null, "config": 3}', '{"recipe": null, "config": {"system": ["x"]}}',
           '{"recipe": null, "config": {"system": "ldp_fl"}}', "\x00", '{"recipe": "quick'
           ]  # fmt: skip


@pytest.mark.parametrize("content", CONFIGS)
def test_a_damaged_configuration_is_one_line(copy: Path, fedldp_command: Any, content: str) -> None:
    (copy / "config.json").write_text(content)
    fedldp_command("run", "--resume", copy, "--workers", 1).assert_refused()
    assert (copy / "checkpoint").exists()


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path, fedldp_command: Any) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "thesis.txt"):
        fedldp_command("run", "--resume", place).assert_refused()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_run_on_data_of_ones_own_is_not_resumed_on_others(
    tmp_path: Path, fedldp_command: Any
) -> None:
    digits = fedldp.data.load_dataset("digits")
    mine = fedldp.Dataset.from_arrays(
        digits.train.features[::-1] * 0.5, digits.train.labels[::-1],
        test_features=digits.test.features, test_labels=digits.test.labels, name="mine",
    )  # fmt: skip
    config = quick(standardise=False)
    whole = fedldp.run(config, dataset=mine)

    def stop(record: Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, dataset=mine, out=tmp_path / "run", after_round=stop)
    fedldp_command("run", "--resume", tmp_path / "run", "--workers", 1).assert_refused()
    with pytest.raises(fedldp.FedldpError):
        fedldp.resume(tmp_path / "run")
    resumed = fedldp.resume(tmp_path / "run", dataset=mine)
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weights)
