"""Every mistake on the command line gives one line, exit status 2, and no run folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import SHORT, check_run, check_statement, document

from fedldp.data.sources import SOURCES


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLDP_DATA", raising=False)


def test_the_smallest_delta_has_a_statement(fedldp_command: Any) -> None:
    for delta in ("0", "1e-300"):
        outcome = fedldp_command("account", "nbafl-digits", "--delta", delta, "--json")
        check_statement(document(outcome.out))


def test_an_optional_setting_can_be_unset(fedldp_command: Any) -> None:
    fixed, median = (
        document(fedldp_command("account", "central-dp-digits", *more, "--json").out)
        for more in ((), ("--set", "clip="))
    )
    assert fixed["claim"] is None
    assert median["claim"] is not None


def test_json_and_print_config_do_not_mix(fedldp_command: Any) -> None:
    outcome = fedldp_command("run", "--print-config", "--json")
    if outcome.status == 0:
        document(outcome.out)
    else:
        outcome.assert_refused()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused(fedldp_command: Any) -> None:
    assert "cuda" in fedldp_command("run", *SHORT, "--device", "cuda").assert_refused()


def test_a_binary_toml_file_is_refused_in_one_line(fedldp_command: Any) -> None:
    Path("it.toml").write_bytes(b"\xff\xfe\x00")
    fedldp_command("run", "it.toml").assert_refused()
    Path("folder.toml").mkdir()
    fedldp_command("run", "folder.toml").assert_refused()


@pytest.mark.parametrize("name", ["mnist", "fmnist", "cifar10", "svhn", "covertype"])
def test_a_missing_data_set_names_file_folder_and_address(
    fedldp_command: Any, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "data"
    line = fedldp_command(
        "run", "fedavg-quickstart", "--set", f"dataset={name}", "--set", "standardise=false",
        "--data-dir", folder, "--workers", 1,
    ).assert_refused()  # fmt: skip
    source = SOURCES[name]
    assert str(folder / source.folder) in line
    assert any(file.name in line for file in source.files) or "archive" in line
    assert "http://" in line or "https://" in line
    assert f"fedldp data fetch {name}" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", ["quickstart", "fedavg-quickstart"])
def test_a_users_own_csv_is_trained_on(fedldp_command: Any, tmp_path: Path, recipe: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    rows = [f"{a},{b},{c},{'yes' if a > 0 else 'no'}" for a, b, c in x]
    (tmp_path / "mine.csv").write_text("a,b,c,answer\n" + "\n".join(rows) + "\n")
    outcome = fedldp_command(
        "run", recipe, *SHORT, "--set", "dataset=mine.csv", "--set", "label_column=answer",
        "--set", "standardise=false", "--rounds", 3, "--json",
    )  # fmt: skip
    assert outcome.status == 0, outcome.err
    check_run(document(outcome.out), 3)
    if recipe == "fedavg-quickstart":
        assert document(outcome.out)["final"]["accuracy"] > 0.6


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_place_that_cannot_be_written_to_is_refused_in_one_line(
    fedldp_command: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/run", "/proc/run", "/dev/null/run"):
        fedldp_command("run", *SHORT, "--out", place).assert_refused()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
