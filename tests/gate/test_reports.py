"""Runs send and keep what is recorded; see "The gate" in contributing.md."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest

from fedldp.algorithms.systems import systems
from gate import golden, reports

BY_SYSTEM = reports.by_system()


@cache
def recorded(system: str) -> dict[str, Any]:
    return golden.read(reports.path_of(system))


def test_every_system_and_every_run_is_recorded_and_nothing_else() -> None:
    assert set(BY_SYSTEM) == set(systems())
    assert {path.stem for path in reports.REPORTS.glob("*.json")} == set(BY_SYSTEM)
    for system, names in BY_SYSTEM.items():
        assert sorted(recorded(system)["runs"]) == names
        assert {run["config"]["system"] for run in recorded(system)["runs"].values()} == {system}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (at > 0))
        for names in BY_SYSTEM.values()
        for at, name in enumerate(names)
    ],
)
def test_a_run_is_as_recorded(name: str) -> None:
    document = recorded(name.partition("-")[0])
    found = reports.changes(
        {"arithmetic": document["arithmetic"], name: document["runs"][name]},
        {"arithmetic": golden.training(), name: reports.of_run(name)},
    )
    assert list(found) == []


@pytest.mark.parametrize(
    ("change", "anywhere"),
    [
        (lambda run: run["exchanges"][0].update(each="x"), False),
        (lambda run: run["exchanges"][2].update(question="x"), False),
        (lambda run: run["rounds"][1]["digests"].update(weights="x"), False),
        (lambda run: run["agreement"]["sum"].update(rest="x"), False),
        (lambda run: run["exchanges"][2]["refused"].pop("over-budget"), True),
        (lambda run: run["exchanges"][0]["bytes"].update({"173": "0-49"}), True),
        (lambda run: run["exchanges"].pop(), True),
        (lambda run: run["rounds"][1]["norms"].update(weights=9.5), True),
        (lambda run: run["rounds"][2].update(accuracy=0.01), True),
        (lambda run: run["released"][0]["rounds"].update({"3": "1"}), True),
        (lambda run: run["planned"][0]["event"].update(epsilon=2.0), True),
        (lambda run: run["statement"]["warnings"].append({"kind": "more", "values": {}}), True),
        (lambda run: run.update(run="simulation-0"), True),
    ],
)
def test_a_change_is_found_and_a_large_one_with_any_arithmetic(change: Any, anywhere: bool) -> None:
    one = recorded("ldp_fl")["runs"]["ldp_fl-budget"]
    other = copy.deepcopy(one)
    change(other)
    for arithmetic, number in (("", 1), ("x", int(anywhere))):
        found = {"arithmetic": arithmetic, "": other}
        assert len(list(reports.changes({"arithmetic": "", "": one}, found))) == number
