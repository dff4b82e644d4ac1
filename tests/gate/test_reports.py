"""Runs send and keep what is recorded; see "The gate" in contributing.md."""

from __future__ import annotations

import copy
from collections.abc import Callable
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


def _changed(change: Callable[[dict[str, Any]], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    document = recorded("ldp_fl")["runs"]["ldp_fl-budget"]
    other = copy.deepcopy(document)
    change(other)
    return document, other


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["exchanges"][0].update(each="x"),
        lambda run: run["exchanges"][2].update(question="x"),
        lambda run: run["rounds"][1]["digests"].update(weights="x"),
        lambda run: run["agreement"]["sum"].update(rest="x"),
    ],
)
def test_a_changed_bit_is_found_with_the_same_arithmetic(change: Any) -> None:
    one, other = _changed(change)
    assert (
        len(list(reports.changes({"arithmetic": "", "": one}, {"arithmetic": "", "": other}))) == 1
    )
    assert list(reports.changes({"arithmetic": "", "": one}, {"arithmetic": "x", "": other})) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["exchanges"][2]["refused"].pop("over-budget"),
        lambda run: run["exchanges"][0]["bytes"].update({"173": "0-49"}),
        lambda run: run["exchanges"].pop(),
        lambda run: run["rounds"][1]["norms"].update(weights=9.5),
        lambda run: run["rounds"][2].update(accuracy=0.01),
        lambda run: run["released"][0]["rounds"].update({"3": "1"}),
        lambda run: run["planned"][0]["event"].update(epsilon=2.0),
        lambda run: run["statement"]["warnings"].append({"kind": "more", "values": {}}),
        lambda run: run.update(run="simulation-0"),
    ],
)
def test_larger_changes_are_found_with_any_arithmetic(change: Any) -> None:
    one, other = _changed(change)
    for arithmetic in ("", "x"):
        found = {"arithmetic": arithmetic, "": other}
        assert len(list(reports.changes({"arithmetic": "", "": one}, found))) == 1
