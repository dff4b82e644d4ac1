"""fedldp sweep as a user types it: JSON, the table, refusals, and interruptions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import assert_same_run

import fedldp
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import cores

pytestmark = pytest.mark.usefixtures("folder_of_its_own")

SHORT = ("--workers", 1, "--set", "rounds=1", "--set", "num_clients=5", "--set", "local_epochs=1")


@pytest.mark.slow
def test_a_sweep_prints_a_table_and_exits_with_status_2_if_one_run_is_refused(
    fedldp_command: Any,
) -> None:
    given = ("quickstart", "--grid", "clients_per_round=2,99", *SHORT)
    outcome = fedldp_command("sweep", *given, "--out", "here")
    assert outcome.status == 2
    assert "clients_per_round = 99: there are only num_clients = 5; give at most that" in (
        outcome.out
    )
    assert "refused    quickstart clients_per_round=99 seed 0: " in outcome.err
    assert "failed     1 of 2" in outcome.err
    assert "Traceback" not in outcome.err
    again = fedldp_command("sweep", "--resume", "here", "--workers", 1)
    assert again.status == 2
    assert "1 finished before" in again.err
    assert again.out == outcome.out


def test_without_matplotlib_one_line_says_so_and_the_table_is_printed(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = fedldp_command("sweep", *SHORT)
    assert outcome.status == 0
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("no chart")]
    assert "pip install 'fedldp[report]'" in line
    assert "accuracy" in outcome.out


def begun(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("sweep/*/checkpoint")))


@pytest.mark.slow
@pytest.mark.skipif(cores() < 2, reason="needs two processors")
def test_an_interrupted_sweep_leaves_no_process_and_can_be_continued(
    fedldp_process: Any, fedldp_command: Any, tmp_path: Path
) -> None:
    settings = {"num_clients": 5, "local_epochs": 1, "rounds": 40}
    given = [f"--set={key}={value}" for key, value in settings.items()]
    command = fedldp_process("sweep", "--seeds", "0-1", "--workers", 2, "--out", "sweep", *given)
    command.wait_until(lambda: begun(tmp_path) == 2)
    assert len(command.family()) == 3
    command.interrupt()
    outcome = command.end()
    command.assert_no_one_is_left()
    assert outcome.status == 130
    assert "interrupted; continue with: fedldp sweep --resume sweep" in outcome.err
    again = fedldp_command("sweep", "--resume", "sweep", "--workers", 1, "--json")
    assert again.status == 0, again.err
    for run in json.loads(again.out)["runs"]:
        whole = tmp_path / f"whole-{run['seed']}"
        config = fedldp.recipe("quickstart", seed=run["seed"], **settings)
        simulate(config, recipe="quickstart", out=whole)
        assert_same_run(tmp_path / run["run_dir"], whole)
