"""What a folder knows of a user's own: copies of code with its imports, and an HMAC of data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.core.errors import DataMissing, RunError
from fedldp.experiments import own
from fedldp.experiments.comparing.compared import CompareExperiment
from fedldp.experiments.engine import Means, verify
from fedldp.experiments.store import RunStore
from fedldp.experiments.sweeping.sweeps import SweepExperiment
from fedldp.simulation.settings import resolve

SHORT: dict[str, Any] = {"workers": 1, "rounds": 1, "num_clients": 4, "local_epochs": 1}
OWN = """
from fedldp.mechanisms.privunit import PrivUnit
from dataclasses import dataclass
from helping.more import NAME

@dataclass(frozen=True)
class Mine(PrivUnit):
    pass
"""


def rows(changed: int = 0) -> fedldp.Dataset:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(80, 4)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.int64)
    labels[:changed] = 1 - labels[:changed]
    return fedldp.Dataset.from_arrays(features, labels)


def swept(out: Path, data: fedldp.Dataset, **more: Any) -> fedldp.Sweep:
    given = {"grid": {"learning_rate": [0.1]}, "model": "logistic", "standardise": False}
    return fedldp.sweep("fedavg-quickstart", out=out, dataset=data, **{**SHORT, **given, **more})


@pytest.mark.slow
def test_changed_data_are_noticed_and_their_digest_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    swept(out, rows())
    assert swept(out, rows()).failed == []
    with pytest.raises(RunError, match="its data have changed since"):
        swept(out, rows(changed=1))
    with pytest.raises(RunError, match="its data have changed since"):
        swept(out, rows(changed=1), same_data=True)
    data = own.sum_of(rows())
    assert data is not None
    kept = json.loads((out / "sweep.json").read_text())["data"]
    assert kept == own.sealed(data)
    assert data.hex() not in (out / "sweep.json").read_text()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    with pytest.raises(RunError, match="nobody can tell whether its data are still the same"):
        swept(out, rows())
    swept(out, rows(), same_data=True)
    assert json.loads((out / "sweep.json").read_text())["data"] != kept
    (key,) = (tmp_path / "another").rglob("*.key")
    assert key.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("left", [0, 31])
def test_a_key_that_is_not_whole_makes_no_hmac(
    left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HMAC with an empty key would be a digest that confirms a guess of what the data are."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    own.sealed(b"data")
    (key,) = tmp_path.rglob("*.key")
    assert list(key.parent.iterdir()) == [key]
    key.write_bytes(key.read_bytes()[:left])
    with pytest.raises(RunError, match=r"data\.key: it is damaged"):
        own.sealed(b"data")


def test_a_key_that_another_process_makes_meanwhile_is_the_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    others = own.sealed(b"data")
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert own.sealed(b"data") == others


def test_public_data_need_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    fedldp.sweep("fedavg-digits", out=tmp_path / "out", **SHORT)
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["data"] is None
    assert not (tmp_path / "none").exists()


def test_own_code_is_copied_with_what_it_imports_and_an_edit_repeats_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("helping").mkdir()
    Path("helping/__init__.py").write_text("")
    Path("helping/more.py").write_text("from . import other\nNAME = 'mine'\n")
    Path("helping/other.py").write_text("import json\n")
    Path("helping/unused.py").write_text("")
    Path("own_and_more.py").write_text(OWN)
    config = resolve(
        "composed-digits",
        ["channel=named", "mechanism=own_and_more:Mine", "bound=norm", "untrusted_clients=0"],
    )
    files = own.code_files(config)
    names = {"own_and_more.py", "helping/__init__.py", "helping/more.py", "helping/other.py"}
    assert set(files) == names
    given: dict[str, Any] = {"grid": {"epsilon": [16]}, "standardise": False, **SHORT}
    first = fedldp.sweep(config, out="out", **given)
    (copied,) = Path("out/own").iterdir()
    assert {each.relative_to(copied).as_posix() for each in copied.rglob("*.py")} == names
    assert copied.name == own.code_of(config)
    Path("helping/other.py").write_text("import json, re\n")
    again = fedldp.sweep(config, out="out", **given)
    assert again.runs[0]["run_dir"] != first.runs[0]["run_dir"]
    assert len(list(Path("out/own").iterdir())) == 2
    more = "1 more run in the folder used the same rows"  # whose losses add up, whatever made them
    assert not any(more in note for note in first.notes())
    assert any(more in note for note in again.notes())
    assert not any(more in n for n in fedldp.sweep(config, out="other", **given).notes())


@pytest.fixture
def of_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a sweep on a table; it was made in ``out`` of the current folder."""
    (tmp_path / "one").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    draw = np.random.default_rng(0)
    text = "".join(f"{a:.2f},{b:.2f},{int(a > b)}\n" for a, b in draw.uniform(size=(60, 2)))
    Path("t.csv").write_text("x,y,label\n" + text)
    given = {"dataset": "t.csv", "model": "logistic", "standardise": False, **SHORT}
    fedldp.sweep("fedavg-quickstart", out="out", **given)
    return given


def assert_nothing_is_run_again(out: Path, given: dict[str, Any]) -> None:
    assert fedldp.sweep("fedavg-quickstart", out=out, **given).failed == []
    assert len((out / "results.jsonl").read_text().splitlines()) == 1


def test_a_folder_and_its_table_move_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_table: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.move(tmp_path / "one", tmp_path / "two")
    assert_nothing_is_run_again(Path("two/out"), {**of_table, "dataset": "two/t.csv"})


def test_a_folder_that_moved_without_its_table_is_continued_where_the_table_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_table: dict[str, Any]
) -> None:
    moved = tmp_path / "moved" / "deep"
    moved.parent.mkdir()
    shutil.move("out", moved)
    assert list(verify(SweepExperiment.found(moved, Means()), moved)) == []
    assert_nothing_is_run_again(moved, of_table)
    monkeypatch.chdir(moved.parent)
    elsewhere = shutil.move(moved, tmp_path / "elsewhere")
    with pytest.raises(DataMissing, match=r"there is no file .*t\.csv here, or in "):
        SweepExperiment.found(Path(elsewhere), Means())


def test_tables_in_two_folders_are_the_same_seen_from_either(
    monkeypatch: pytest.MonkeyPatch, of_table: dict[str, Any]
) -> None:
    """The order of their paths differs: data/t.csv, test.csv; and ../test.csv, t.csv."""
    Path("data").mkdir()
    shutil.copy("t.csv", "data/t.csv")
    text = Path("t.csv").read_text().splitlines()
    Path("test.csv").write_text("\n".join(text[:20]))
    given = {**of_table, "dataset": "data/t.csv", "test_file": "test.csv"}
    fedldp.sweep("fedavg-quickstart", out="two", **given)
    compared = {"epsilon": 16, "tries": 1, "seeds": [0], "guarantee": "client-run:server"}
    renamed = {"test": "test.csv", "dataset": "data/t.csv", "out": "three"}
    fedldp.compare(["nbafl-digits"], model="logistic", **compared, **SHORT, **renamed)
    monkeypatch.chdir("data")
    folder, other = Path("../two"), Path("../three")
    assert list(verify(SweepExperiment.found(folder, Means()), folder)) == []
    assert list(verify(CompareExperiment.found(other, Means()), other)) == []
    assert_nothing_is_run_again(folder, {**given, "dataset": "t.csv", "test_file": "../test.csv"})
    with Path("../test.csv").open("a") as file:
        file.write("\n" + text[30])
    for found in (SweepExperiment.found(folder, Means()), CompareExperiment.found(other, Means())):
        (changed,) = verify(found, folder if found.kind == "sweep" else other)
        assert "its data have changed since" in changed


def test_no_run_is_kept_whose_table_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, of_table: dict[str, Any]
) -> None:
    text, real = Path("t.csv").read_text(), RunStore.add

    def add(store: RunStore, row: Any) -> Any:
        Path("t.csv").write_text(text.replace("1\n", "0\n", 5))
        return real(store, row)

    monkeypatch.setattr(RunStore, "add", add)
    given = {**of_table, "seeds": [0, 1, 2], "out": "two"}
    with pytest.raises(RunError, match="a table changed while the runs were made"):
        fedldp.sweep("fedavg-quickstart", **given)
    assert len(Path("two/results.jsonl").read_text().splitlines()) == 1
    with pytest.raises(RunError, match="its data have changed since"):
        fedldp.sweep("fedavg-quickstart", **given)


def test_code_has_one_digest_before_it_is_loaded_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "not_yet_loaded.py").write_text(
        "from torch.nn import Linear\ndef model(shape, classes):\n    return Linear(64, classes)\n"
    )
    config = fedldp.recipe("fedavg-quickstart", model="not_yet_loaded:model")
    before = own.code_of(config)
    assert before
    __import__("not_yet_loaded")
    assert own.code_of(config) == before
