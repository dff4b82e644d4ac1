"""The grids and seeds that a user writes for a sweep, and the resulting runs."""

from __future__ import annotations

from typing import Any

import pytest

import fedldp
from fedldp.experiments.runs import read_seeds
from fedldp.experiments.sweeping.sweeps import Design, read_grid, runs_of, shown
from fedldp.simulation.settings import resolve


def design(*recipes: str, grid: dict[str, list[Any]] | None = None, **more: Any) -> Design:
    bases = {name: fedldp.recipe(name) for name in recipes or ["quickstart"]}
    return Design(**{"bases": bases, "settings": {}, "grid": grid or {}, "seeds": [0], **more})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("epsilon=1,2.5,4", [1, 2.5, 4]),
        ("partition=iid,shards:2", ["iid", "shards:2"]),
        ("range_radius=[0.1,0.2], [0.3]", [[0.1, 0.2], [0.3]]),
        ("model='a,b',\"c\"", ["a,b", "c"]),
        ("target={unit='client-run', epsilon=8},{epsilon=1}",
         [{"unit": "client-run", "epsilon": 8}, {"epsilon": 1}]),
        ("standardise=true,false", [True, False]),
    ],
)  # fmt: skip
def test_values_are_read_as_set_reads_them(text: str, values: list[Any]) -> None:
    (found,) = read_grid([text]).values()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize("value", [1, -2.5, True, [1, 2], ["a,b", [3]], "iid", "shards:2", 1e-7])
def test_shown_values_are_read_back(value: Any) -> None:
    assert read_grid([f"key={shown(value)},{shown(value)}"]) == {"key": [value, value]}


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-4", [0, 1, 2, 3, 4]), ("0,2,5", [0, 2, 5]), ("7", [7]), ("1-2, 9", [1, 2, 9])],
)
def test_seeds_are_read(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


def test_every_combination_runs_with_the_configuration_of_run() -> None:
    found = runs_of(
        design(grid={"epsilon": [1, 2], "mechanism": ["laplace", "sign"]}, settings={"rounds": 3},
               seeds=[0, 4]),
        None,
        None,
    )  # fmt: skip
    assert (
        len(found) == len({run.place for run in found}) == len({run.digest for run in found}) == 8
    )
    for run in found:
        settings, seed = run.labels["settings"], run.labels["seed"]
        cell = [f"{key}={settings[key]}" for key in ("epsilon", "mechanism")]
        assert run.config == resolve("quickstart", [*cell, "rounds=3", f"seed={seed}"])


def test_a_recipe_without_a_setting_runs_once_without_it() -> None:
    swept = design("quickstart", "fedavg-quickstart", grid={"epsilon": [1, 2]})
    assert [run.labels["settings"] for run in runs_of(swept, None, None)] == [
        {"recipe": "quickstart", "epsilon": 1},
        {"recipe": "quickstart", "epsilon": 2},
        {"recipe": "fedavg-quickstart"},
    ]
    assert swept.lacking() == {"fedavg-quickstart": ["epsilon"]}
