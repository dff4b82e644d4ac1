"""Interrupted runs are resumed as if they had not been interrupted, or refused in one line."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import FILES, assert_same_run, cut, metrics, quick
from safetensors.numpy import save

import fedldp
from fedldp.core.locks import Held
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import DIGEST_BYTES
from fedldp.protocol.roles import State
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import pack_arrays, read_arrays
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was not interrupted."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    simulate(quick(), recipe="quickstart", out=folder)
    assert {path.name for path in folder.iterdir()} == FILES
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


# Resuming in this process


@pytest.mark.slow
def test_a_resumed_run_equals_the_whole_one(tmp_path: Path) -> None:
    """With ranges, participants and budgets that differ; for every system, its contract says so."""
    config = quick(
        ranges="adaptive", clients_per_round=4, epsilon=[1.0, 8.0, 2.0, 4.0, 1.0, 8.0],
        channel="named",
    )  # fmt: skip
    simulate(config, recipe="quickstart", out=tmp_path / "whole")
    cut(config, tmp_path / "cut", after=2)
    assert [each["round"] for each in metrics(tmp_path / "cut")] == [1, 2]
    assert not (tmp_path / "cut" / "model.safetensors").exists()
    fedldp.resume(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True], ids=["a new run", "a resumed run"])
def test_a_run_is_continued_by_one_process_at_a_time(
    tmp_path: Path, finished: Path, begun: bool
) -> None:
    """The second one leaves the folder as it is, and the first one goes on."""
    folder, refused = tmp_path / "run", list[str]()
    if begun:
        cut(quick(), folder, 1)

    def again(record: Round) -> None:
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(Held) as error:
            fedldp.resume(folder)
        refused.append(str(error.value))
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    resumed = RunFolder(folder) if begun else None
    out = None if begun else folder
    simulate(quick(), recipe="quickstart", resume=resumed, out=out, after_round=again)
    assert len(refused) == 4
    for line in refused:
        assert "\n" not in line
        assert f"resume = {folder}: " in line
        assert f"process {os.getpid()} on " in line
    assert_same_run(folder, finished)


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
    assert found[1] == expected[1]  # even times are equal, so nothing was done again
    assert found[0].weights.tobytes() == expected[0].weights.tobytes()


def test_a_model_that_is_tested_less_often_has_the_same_weights(
    tmp_path: Path, finished: Path
) -> None:
    tested = list[bool]()

    def note(record: Round) -> None:
        tested.append(record.accuracy is not None and record.auc is not None)
        if tested == [False, False]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(quick(), out=tmp_path / "run", evaluate_every=3, after_round=note)
    result = fedldp.resume(tmp_path / "run", evaluate_every=3, after_round=note)
    assert tested == [False, False, False, False, True, True]  # two rounds are told twice
    whole = fedldp.load(finished)
    assert result.accuracy == whole.accuracy
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(result.weights[name], weights)
    assert "AUC" in (tmp_path / "run" / "report.html").read_text()


# Files that each client keeps for later rounds


@pytest.mark.slow
def test_without_a_run_folder_no_files_of_clients_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate(fedldp.recipe("ldpfl-sound-digits", rounds=1))
    left = [path.name for path in tmp_path.iterdir() if "torch" not in path.name]  # torch's cache
    assert left == []


# Killed between two files, in every state that the order of writing allows


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


def lose_the_end_of_a_line(folder: Path) -> None:
    remove(*END)(folder)
    content = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(content[:-40])


def leave_partial_files(folder: Path) -> None:
    for name in ("checkpoint", "summary.json"):
        (folder / f"{name}.partial").write_bytes(b"half of it")


STATES: dict[str, Callable[[Path], None]] = {
    "before the end": remove(*END),
    "within the end": remove("report.html"),
    "a torn model": lambda f: (f / "model.safetensors").write_bytes(b"torn"),
    "last metrics missing": shorten_metrics,
    "a part of the last metrics": lose_the_end_of_a_line,
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
        partial.unlink()  # a harmless leftover
    assert_same_run(copy, finished)


# Damage


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def rewritten(**changes: Any) -> Callable[[Path], object]:
    """Return a function that writes a checkpoint anew, with other entries in its document."""

    def act(path: Path) -> None:
        arrays = dict(read_arrays(path.read_bytes()[:-DIGEST_BYTES]))
        document = json.loads(zlib.decompress(arrays["document"].tobytes())) | changes
        arrays["document"] = np.frombuffer(zlib.compress(json.dumps(document).encode()), np.uint8)
        content = pack_arrays(arrays)
        path.write_bytes(content + hashlib.sha256(content).digest())

    return act


def changed(place: float) -> Callable[[Path], object]:
    """Return a function that changes one bit of a file, at a part of its length."""

    def act(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        path.write_bytes(content)

    return act


def written(content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content(path.read_bytes()))


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut at its end": written(lambda old: old[:-3]),
    "empty": written(lambda old: b""),
    "a folder": become_a_folder,
    "another file": written(lambda old: save({"weights": np.zeros(650, np.float32)})),
    **{f"a bit at {place}": changed(place) for place in (0, 0.1, 0.5, 0.9, 1)},
    "of another version": rewritten(ledger={}),
    "a ledger of other rounds": rewritten(ledger={"events": [], "runs": []}),
    "another configuration": rewritten(config="0" * 64),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_refused_in_one_line(
    copy: Path, fedldp_command: Any, damage: Callable[[Path], object]
) -> None:
    damage(copy / "checkpoint")
    before = sorted(path.name for path in copy.iterdir())
    line = fedldp_command("run", "--resume", copy, "--workers", 1).assert_refused()
    assert "checkpoint" in line
    assert sorted(path.name for path in copy.iterdir()) == before  # nothing was removed


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        written(lambda old: old.replace(b'"round": 1', b'"round": 7')),
        written(lambda old: b"".join(old.splitlines(keepends=True)[:-2])),
    ],
    ids=["missing", "changed", "too few lines"],
)
def test_a_record_of_other_earlier_rounds_is_refused_in_one_line(
    copy: Path, fedldp_command: Any, damage: Callable[[Path], object]
) -> None:
    damage(copy / "metrics.jsonl")
    line = fedldp_command("run", "--resume", copy, "--workers", 1).assert_refused()
    assert "metrics.jsonl" in line
    assert "start the run again" in line


def test_a_round_writes_as_much_as_any_earlier_one(tmp_path: Path) -> None:
    """Counts bytes, also those of a folder that another process resumed."""
    path, rounds, written = tmp_path / "run", list[Round](), list[int]()
    path.mkdir()
    folder = RunFolder.create(path, {}, {})
    for number in range(100, 300):
        if number == 200:
            folder = RunFolder(path)
            saved = folder.read_checkpoint()
            assert saved is not None
            assert saved[1] == rounds
            folder.write_metrics(rounds)
        record = Round(round=number, clients=3, accuracy=0.5, loss=1.0, uplink_bits_per_client=8,
                       seconds=0.25)  # fmt: skip
        rounds.append(record)
        before = size_of(path / "metrics.jsonl")
        folder.write_round(
            State(round=number + 1, weights=np.zeros(4, np.float32)), rounds, MemoryLedger()
        )
        appended = size_of(path / "metrics.jsonl") - before
        written.append(appended + size_of(path / "checkpoint"))
    lines = (path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [asdict(r) for r in rounds]
    assert max(written) < min(written) + 128


@pytest.mark.parametrize("changes", [{"seed": 1}, {"epsilon": 0.5}], ids=str)
def test_a_run_is_not_continued_with_another_configuration(
    tmp_path: Path, fedldp_command: Any, changes: dict[str, Any]
) -> None:
    """Changing the seed half-way would give noise that was drawn before, or a false record."""
    cut(quick(), tmp_path / "run", 2)
    path, checkpoint = tmp_path / "run" / "config.json", tmp_path / "run" / "checkpoint"
    untouched, saved = path.read_text(), checkpoint.read_bytes()
    document = json.loads(untouched)
    document["config"] |= changes
    path.write_text(json.dumps(document, indent=2))
    line = fedldp_command("run", "--resume", tmp_path / "run", "--workers", 1).assert_refused()
    assert "it belongs to another configuration, so config.json" in line
    assert checkpoint.read_bytes() == saved
    path.write_text(untouched)
    fedldp_command("run", "--resume", tmp_path / "run", "--workers", 1)
    assert len(metrics(tmp_path / "run")) == 4


CONFIGS = ["", "[]", "3", "null", "{}", '{"recipe": null}', '{"config": {}}',
           '{"recipe": null, "config": 3}', '{"recipe": null, "config": {"system": ["x"]}}',
           '{"recipe": null, "config": {"system": "ldp_fl"}}', "\x00", '{"recipe": "quick'
           ]  # fmt: skip


@pytest.mark.parametrize("content", CONFIGS)
def test_a_damaged_configuration_is_refused_in_one_line(
    copy: Path, fedldp_command: Any, content: str
) -> None:
    (copy / "config.json").write_text(content)
    fedldp_command("run", "--resume", copy, "--workers", 1).assert_refused()
    assert (copy / "checkpoint").exists()


def test_a_run_on_a_users_data_is_not_resumed_on_other_data(
    tmp_path: Path, fedldp_command: Any
) -> None:
    digits = fedldp.data.load_dataset("digits")
    mine = fedldp.Dataset.from_arrays(
        digits.train.features[::-1] * 0.5, digits.train.labels[::-1],
        test=(digits.test.features, digits.test.labels), name="mine",
    )  # fmt: skip
    config = quick(standardise=False)
    whole = fedldp.run(config, dataset=mine)

    cut(config, tmp_path / "run", 1, recipe=None, dataset=mine)
    fedldp_command("run", "--resume", tmp_path / "run", "--workers", 1).assert_refused()
    with pytest.raises(fedldp.FedldpError):
        fedldp.resume(tmp_path / "run")
    resumed = fedldp.resume(tmp_path / "run", dataset=mine)
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weights)
