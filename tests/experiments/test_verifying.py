"""--resume and --verify: a folder has all that is needed to continue and to check it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import rows_in, write_rows

import fedldp
from fedldp.experiments.comparing.compared import CompareExperiment
from fedldp.experiments.engine import Means, verify
from fedldp.experiments.sweeping.sweeps import SweepExperiment
from fedldp.simulation.settings import from_mapping


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("folders")
    fedldp.compare(
        ["nbafl-digits"], guarantee="client-run:server", epsilon=16, tries=2, seeds=[0], rounds=1,
        local_epochs=1, num_clients=12, workers=1, out=place / "compare",
    )  # fmt: skip
    fedldp.sweep("fedavg-digits", grid={"rounds": [1, 2]}, workers=1, out=place / "sweep")
    return place


def copy(folders: Path, name: str, tmp_path: Path) -> Path:
    shutil.copytree(folders / name, tmp_path / name)
    return tmp_path / name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compare", "sweep"])
def test_a_folder_is_continued_with_its_own_settings(
    folders: Path, name: str, tmp_path: Path, fedldp_command: Any
) -> None:
    folder = copy(folders, name, tmp_path)
    whole = (folder / "results.json").read_text()
    rows = rows_in(folder)
    write_rows(folder, rows[:-1])
    if name == "sweep":
        shutil.rmtree(folder / rows[-1]["folder"])
    done = fedldp_command(name, "--resume", folder, "--workers", 1, "--json")
    assert done.status == 0, done.err
    assert len(rows_in(folder)) == len(rows)
    if name == "compare":
        assert json.loads(done.out) == json.loads(whole)
    assert "leave out" in fedldp_command(name, "--resume", folder, "--out", "other").err


def test_a_whole_folder_has_no_difference(
    folders: Path, tmp_path: Path, fedldp_command: Any
) -> None:
    for name in ("compare", "sweep"):
        done = fedldp_command(name, "--verify", folders / name, "--again", 1)
        assert (done.status, done.out) == (0, "nothing is missing, and nothing differs\n")


def test_a_run_for_numbers_is_made_again_too(tmp_path: Path) -> None:
    """Such a run has no accuracy: its R2 is compared."""
    draw = np.random.default_rng(0)
    rows = draw.uniform(-1, 1, (200, 2)).round(3)
    text = "".join(f"{a},{b},{10 + 5 * a:.2f},s{n % 2}\n" for n, (a, b) in enumerate(rows))
    (tmp_path / "t.csv").write_text(f"a,b,days,site\n{text}")
    settings = {
        "system": "person_dp_sgd", "model": "linear", "channel": "sum", "label_column": "days",
        "label_range": [0.0, 20.0], "client_column": "site", "epsilon": 8.0,
        "dataset": str(tmp_path / "t.csv"), "features": "unit-norm", "num_clients": 2, "rounds": 1,
        "clip": 0.3, "learning_rate": 4.0,
    }  # fmt: skip
    folder = tmp_path / "sweep"
    config = from_mapping(settings)
    found = fedldp.sweep(config, grid={"rounds": [2]}, workers=1, out=folder)
    assert found.first == "r2"
    assert found.table[0]["mean"] == found.runs[0]["metrics"]["r2"]
    assert list(verify(SweepExperiment.found(folder, Means()), folder, 1)) == []
    (place,) = folder.glob("*/summary.json")
    summary = json.loads(place.read_text())
    summary["final"]["r2"] += 0.5
    place.write_text(json.dumps(summary))
    (differs,) = verify(SweepExperiment.found(folder, Means()), folder, 1)
    assert "made again, its R2 differs by 0.5" in differs


def test_a_statement_above_its_label_is_named(
    folders: Path, tmp_path: Path, fedldp_command: Any
) -> None:
    folder = copy(folders, "compare", tmp_path)
    rows = rows_in(folder)
    for line in rows[-1]["privacy"]["guarantees"]:
        line["epsilon"] = 99.0
    write_rows(folder, rows)
    for how, status in (("--verify", 1), ("--resume", 2)):
        done = fedldp_command("compare", how, folder, "--workers", 1)
        assert done.status == status
        for part in (rows[-1]["digest"], "nbafl-digits", "99.0", "16", "remove the line"):
            assert part in done.out + done.err


def test_what_differs_is_named(folders: Path, tmp_path: Path, fedldp_command: Any) -> None:
    folder = copy(folders, "compare", tmp_path)
    rows = rows_in(folder)
    rows[0]["digest"] = "0" * 32
    rows[1]["versions"] = {**rows[1]["versions"], "torch": "1.0"}
    rows[-1]["proven"]["epsilon"] = 99.0
    rows[-1]["accuracy"] = 0.9999
    write_rows(folder, rows)
    found = "\n".join(verify(CompareExperiment.found(folder, Means()), folder, 3))
    assert f"run {'0' * 32}: it was made with other settings, code or data" in found
    assert "rows were made with torch 1.0; here is torch" in found
    assert "its label is 16; remove the line and repeat the run" in found
    assert f"run {rows[-1]['digest']}: made again, its accuracy differs by" in found
    done = fedldp_command("compare", "--verify", folder)
    assert done.status == 1
    folder = copy(folders, "sweep", tmp_path)
    rows = rows_in(folder)
    summary = folder / rows[0]["folder"] / "summary.json"
    found = json.loads(summary.read_text())
    found["final"]["accuracy"] += 0.25
    summary.write_text(json.dumps(found))
    (line,) = verify(SweepExperiment.found(folder, Means()), folder, 2)
    assert "its accuracy differs by 0.25, the most of 2 runs" in line
