"""An agent that is killed between any two steps of an answer, also by a power cut; its syncs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from power_cuts import STEPS

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SUM = {"channel": "sum", "witness": True}


Cases = list[dict[str, Any]]
Run = Callable[[Cases], Cases]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return what runs cases in another process, with a library that keeps what was synced.

    For each case it returns what is wrong after it, and the syncs.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler, so synced.c cannot be built")
    library = tmp_path_factory.mktemp("synced") / "synced.so"
    build = ("-O1", "-shared", "-fPIC", "-o", library, HERE / "synced.c", "-ldl")
    subprocess.run([compiler, *build], check=True)
    env = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    process = subprocess.Popen(
        [sys.executable, HERE / "power_cuts.py"],
        env={**env, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    to, back = process.stdin, process.stdout
    assert to is not None
    assert back is not None

    def run(cases: Cases) -> Cases:
        found = []
        for case in cases:
            to.write(json.dumps(case) + "\n")
            found.append(json.loads(back.readline()))
        return found

    with process:
        yield run


@pytest.mark.parametrize(("cut", "number"), [(False, 3), (True, 1), (True, 3), (True, 4)])
def test_a_kill_between_any_two_steps_releases_nothing_twice_and_nothing_uncharged(
    run: Run, cut: bool, number: int
) -> None:
    cases = [{"step": step, "number": number, "cut": cut, **SUM} for step in STEPS]
    amiss = {case["step"]: found["amiss"] for case, found in zip(cases, run(cases), strict=True)}
    assert {place: each for place, each in amiss.items() if each} == {}


def test_without_a_sync_at_each_commit_a_power_cut_loses_releases(run: Run) -> None:
    """The control: the harness above finds what a weaker setting loses."""
    case = {"step": "left", "number": 5, "cut": True, "synchronous": "NORMAL", **SUM}
    (found,) = run([case])
    assert any("left, but is not charged" in each for each in found["amiss"])
    assert any(each.startswith("the mark has release") for each in found["amiss"])


def test_a_server_syncs_as_often_whatever_the_number_of_sites(run: Run) -> None:
    """Once before each phase, and twice for the checkpoint; every 16th round, for the metrics."""
    cases = [
        {"channel": channel, "sites": sites, "rounds": rounds}
        for channel, sites, rounds in (
            ("named", 3, 18),
            ("named", 5, 4),
            ("sum", 3, 4),
            ("sum", 5, 4),
        )
    ]
    found = [each["syncs"] for each in run(cases)]
    # The last round is followed by the files of the end.
    assert found[0][:14] + found[0][15:-1] == [3] * 15
    assert found[0][14] in (4, 5)
    assert found[1][:-1] == [3] * 2
    assert found[2][:-1] == found[3][:-1] == [6] * 2


@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_power_cut_at_the_server_between_any_two_steps_changes_nothing(
    run: Run, channel: str
) -> None:
    steps = range(8, 70 if channel == "sum" else 40, 5)  # before and after, in turns
    cases = [{"channel": channel, "server_step": step} for step in steps]
    amiss = {
        case["server_step"]: each["amiss"] for case, each in zip(cases, run(cases), strict=True)
    }
    assert {step: each for step, each in amiss.items() if each} == {}


def test_a_round_costs_a_sync_a_phase_and_the_mark_two_more_where_something_is_released(
    run: Run,
) -> None:
    whole = {"step": "", "number": 0, "cut": False}
    cases = [
        {"channel": channel, "witness": witness, **whole}
        for channel in ("named", "sum")
        for witness in (False, True)
    ]
    found = run(cases)
    assert [each["amiss"] for each in found] == [[]] * 4
    # The first round also notes what is drawn once.
    assert [each["syncs"][-1] for each in found] == [3, 4, 8, 10]
