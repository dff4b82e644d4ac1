"""`fedldp deploy demo` as a user types it: what it prints, how it ends, and what it leaves
behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from real_processes import eventually

pytestmark = pytest.mark.slow

PATIENCE = 1200
SMALL = ("--set", "num_examples=150", "--set", "local_epochs=1", "--rounds", "2")
Start = Callable[..., Any]


def of_folder(folder: Path) -> list[str]:
    """Return the command lines of the processes that mention a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if os.fsencode(folder) in line + (entry / "environ").read_bytes():
                found.append(line.decode("utf-8", "replace"))
    return found


def nothing_is_left(folder: Path) -> None:
    eventually(lambda: not of_folder(folder), "the end of all processes", 20)
    assert list(folder.glob("fedldp-*")) == []


def test_a_demo_with_all_processes_killed_gives_the_weights_of_its_simulation(
    fedldp_process: Start, tmp_path: Path
) -> None:
    command = fedldp_process(
        *("deploy", "demo", "--sites", 2, "--channel", "sum", *SMALL, "--kill", "--json"),
        folder=tmp_path,
    )
    out, _ = command.process.communicate(timeout=PATIENCE)
    assert command.process.returncode == 0, command.errors()
    document = json.loads(out)
    assert document["equal_to_simulation"] is True
    adversaries = {each["adversary"] for each in document["privacy"]["guarantees"]}
    assert adversaries == {"server", "summing-server"}
    assert [(each["site"], each["entries"]) for each in document["ledgers"]] == [
        ("site-0", 2),
        ("site-1", 2),
    ]
    events = document["events"]
    assert events == [line for line in command.errors().splitlines() if line in events]
    assert "the server saw no site give two different answers to one request" in events
    assert {"killed agent-0", "killed server"} <= set(events)
    nothing_is_left(tmp_path)


def table(folder: Path) -> Path:
    """Return a table of 600 people of three classes at two sites."""
    generator = np.random.default_rng(1)
    rows = ["site,who,age,crea,label"]
    for who in range(600):
        age, crea = round(generator.uniform(20, 100), 1), round(generator.normal(), 3)
        label = int(0.03 * (age - 60) + crea + generator.logistic() > 0.5)
        if crea > 0.6:
            label = 2
        rows.append(f"{'ab'[who % 2]},{who},{age},{crea},{label}")
    path = folder / "visits.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_people_are_measured_and_asked_over_https_as_in_the_simulation(
    fedldp_process: Start, tmp_path: Path
) -> None:
    """Weights and private figures are equal, bit for bit, also by site."""
    settings = {
        "system": "person_dp_sgd", "dataset": str(table(tmp_path)),
        "client_column": "site", "person_column": "who", "model": "linear", "features": "unit-norm",
        "clip": 0.44, "learning_rate": 4.0, "epsilon": 20.0,
        "measure_share": 0.1, "evaluation_share": 0.3, "num_clients": 2, "rounds": 6,
        "scale_columns": {"age": [0.0, 120.0], "crea": [-4.0, 4.0]},
    }  # fmt: skip
    (tmp_path / "own.toml").write_text(tomli_w.dumps(settings))
    terms = ("--sites", 2, "--channel", "named", "--rounds", 6, "--json")
    command = fedldp_process("deploy", "demo", "own.toml", *terms, folder=tmp_path)
    out, _ = command.process.communicate(timeout=PATIENCE)
    assert command.process.returncode == 0, command.errors()
    document = json.loads(out)
    assert document["equal_to_simulation"] is True
    assert document["largest_difference"] == 0
    measured = [each["question"] for each in document["answers"] if each["round"] == 1]
    assert measured == [f"share of class {label}" for label in range(3)]
    (auc,) = (each for each in document["answers"] if each["question"] == "AUC")
    assert auc["round"] == 6
    by_site = {
        each["question"] for each in document["answers"] if "AUC, client" in each["question"]
    }
    assert by_site == {f"AUC, client {k}" for k in range(2)}
    assert auc["seen"]
    low, high = auc["interval"]
    assert 0 < low < auc["value"] < high < 1
    assert [ledger["entries"] for ledger in document["ledgers"]] == [6] * 2
    nothing_is_left(tmp_path)


def test_ctrl_c_ends_all_processes_of_the_demo(fedldp_process: Start, tmp_path: Path) -> None:
    """Interrupts a run after its server has sent a request."""
    long = ("deploy", "demo", "--sites", 2, *SMALL[:4], "--rounds", "500")
    command = fedldp_process(*long, folder=tmp_path)
    command.wait_until(lambda: list(tmp_path.glob("fedldp-*/server/journal")) != [])
    assert len(of_folder(tmp_path)) >= 4
    command.interrupt()
    try:
        command.process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        pytest.fail(command.errors())
    assert command.process.returncode not in (0, 2)
    assert "Traceback" not in command.errors()
    nothing_is_left(tmp_path)
