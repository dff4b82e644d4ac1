"""Runs that fail or are ended by a signal: messages, kept files, and remaining processes."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import assert_same_run, metrics, quick

import fedldp
from fedldp.core.errors import RunError
from fedldp.protocol.wire import RoundRequest
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.executors import Executor
from fedldp.simulation.workers import WorkerLost, Workers

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A run that fails


def test_weights_too_large_in_a_later_round_keep_the_earlier_ones(
    tmp_path: Path, fedldp_command: Any
) -> None:
    outcome = fedldp_command(
        "run", "fedavg-quickstart", "--set", "num_clients=3", "--set", "model=mlp",
        "--set", "learning_rate=1e4", "--set", "batch_size=10000", "--set", "local_epochs=1",
        "--workers", 1, "--rounds", 9, "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.status == 2
    last = outcome.err.splitlines()[-1]
    kept = metrics(tmp_path / "run")
    assert len(kept) >= 1
    assert last.startswith(
        f"error: round {len(kept) + 1}: a number to publish is larger than 1e+09"
    )
    saved = RunFolder(tmp_path / "run").read_checkpoint()
    assert saved is not None
    assert saved[0].round == len(kept) + 1
    assert np.isfinite(saved[0].weights).all()
    again = fedldp_command("run", "--resume", tmp_path / "run", "--workers", 1)
    assert again.status == 2
    assert again.err.splitlines()[-1] == last
    assert metrics(tmp_path / "run") == kept


@pytest.mark.slow
def test_a_users_own_folder_survives_a_failed_run(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(fedldp.FedldpError):
        fedldp.run(quick(model="mlp", learning_rate=1e30), out=tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_folder_that_vanishes_during_a_run_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        simulate(
            quick(), out=tmp_path / "run", after_round=lambda _: shutil.rmtree(tmp_path / "run")
        )


@pytest.mark.parametrize("after", [0, 2])
def test_dead_workers_are_not_mistaken_for_absent_clients(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    answers = Executor.answers

    def dying(self: Executor, message: RoundRequest, clients: Sequence[int]) -> Iterator[Any]:
        yield from itertools.islice(answers(self, message, clients), after)
        raise RunError("a worker process died")

    monkeypatch.setattr(Executor, "answers", dying)
    with pytest.raises(RunError, match=r"^a worker process died$"):
        fedldp.run(quick())


# Signals, as a user sends them


LONG = ("--rounds", 500, "--set", "num_clients=40", "--set", "local_epochs=1")


def rounds_done(command: Any) -> int:
    return int(command.errors().count("\nround "))


THIRTY = {"rounds": 30, "num_clients": 8, "local_epochs": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of thirty rounds that was not killed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    simulate(fedldp.recipe("quickstart", **THIRTY), recipe="quickstart", out=folder)
    return folder


@pytest.mark.slow
@on_linux
def test_a_killed_run_resumes_to_the_same_weights(
    tmp_path: Path, fedldp_process: Any, whole: Path
) -> None:
    """Killed at some moment; ``test_resume.py`` tests every point between two files."""
    chance = random.Random(1)
    settings = [part for name, value in THIRTY.items() for part in ("--set", f"{name}={value}")]
    command = fedldp_process("run", *settings, "--workers", 1, "--out", "killed")
    least = chance.randrange(1, 10)
    command.wait_until(lambda: rounds_done(command) >= least)
    time.sleep(chance.random() * 0.1)  # some moment within a round
    os.kill(command.process.pid, signal.SIGKILL)
    assert command.end().status == -signal.SIGKILL
    saved = RunFolder(tmp_path / "killed").read_checkpoint()
    assert saved is not None
    assert least <= len(saved[1]) < THIRTY["rounds"]
    fedldp.resume(tmp_path / "killed")
    for partial in (tmp_path / "killed").glob("*.partial"):
        partial.unlink()
    assert_same_run(tmp_path / "killed", whole)


@pytest.mark.slow
@on_linux
def test_an_interrupt_keeps_the_rounds_and_says_how_to_continue(
    tmp_path: Path, fedldp_process: Any
) -> None:
    command = fedldp_process("run", *LONG, "--workers", 2, "--out", "run")
    command.wait_until(lambda: rounds_done(command) >= 2)
    assert len(command.family()) >= 2  # the command and a worker
    assert command.shared_data()
    before = command.errors().splitlines()
    command.interrupt()
    outcome = command.end()
    assert outcome.status == 130
    assert outcome.out == ""
    new = [line for line in outcome.err.splitlines()[len(before) :]
           if not line.startswith("round ")]  # fmt: skip
    assert new == ["interrupted; continue with: fedldp run --resume run"], outcome.err
    assert "Traceback" not in outcome.err
    assert RunFolder(tmp_path / "run").read_checkpoint() is not None
    command.assert_no_one_is_left()
    assert command.shared_data() == []


@pytest.mark.slow
@on_linux
def test_a_killed_run_leaves_no_worker_and_no_data(fedldp_process: Any) -> None:
    """``test_locks.py`` has the data of workers that are killed too."""
    command = fedldp_process("run", *LONG, "--workers", 2, "--out", "run")
    command.wait_until(lambda: rounds_done(command) >= 1)
    assert len(command.family()) >= 2
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    command.assert_no_one_is_left()
    assert command.shared_data() == []


class Several(Exception):
    """An error that pickle writes, but cannot read again."""

    def __init__(self, what: str, many: int) -> None:
        super().__init__(f"{what} of {many}")


class Unwritable(Exception):
    """An error that pickle cannot write."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def failing() -> Callable[[str], None]:
    def fail(how: str) -> None:
        raise {"several": Several("one", 3), "unwritable": Unwritable("one of 3")}[how]

    return fail


@pytest.mark.slow
@pytest.mark.parametrize("how", ["several", "unwritable"])
def test_an_error_that_no_other_process_can_read_is_told_by_its_text(how: str) -> None:
    workers = Workers(1, failing)
    try:
        for _ in range(2):  # the process has not died of the first
            with pytest.raises(RunError, match=rf"(?i){how}: one of 3") as found:
                workers.submit(how).result(60)
            assert not isinstance(found.value, WorkerLost)
            assert "in fail" in found.value.__notes__[0]
    finally:
        workers.close()
