"""The grids and seeds that a user writes for a sweep, and the resulting runs."""

from __future__ import annotations

from typing import Any

import pytest

import fedldp
from fedldp.core.errors import ConfigError
from fedldp.simulation.settings import resolve
from fedldp.simulation.sweeps.grid import Design, jobs, read_grid, read_seeds, shown


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
        ("shuffle=true,false", [True, False]),
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
    ("texts", "line"),
    [
        (["epsilon"], "grid epsilon: write it as KEY=V1,V2"),
        (["epsilon="], "grid epsilon=: write it as KEY"),
        (["=1"], "grid =1: write it as KEY"),
        (["epsilon=1,,2"], "grid epsilon=1,,2: a value is empty"),
        (["range_radius=[1,2"], "a bracket is not closed"),
        (["model='a,b"], "a quote is not closed"),
        (["epsilon=1", "epsilon=2"], "epsilon occurs twice"),
    ],
)
def test_a_bad_grid_is_refused(texts: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_grid(texts)
    assert line in str(error.value)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0-4", [0, 1, 2, 3, 4]), ("0,2,5", [0, 2, 5]), ("7", [7]), ("1-2, 9", [1, 2, 9])],
)
def test_seeds_are_read(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "4-1", "-1", "1,", "0-99999999999", "1.5", "0--1"])
def test_malformed_seeds_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write them as 0-4"):
        read_seeds(text)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        ({"grid": {"epsilo": [1]}}, "epsilo is not a setting of ldp_fl"),
        ({"settings": {"epsilo": 1}}, "epsilo is not a setting of ldp_fl"),
        ({"grid": {"seed": [1]}}, "seed: give a sweep's seeds"),
        ({"grid": {"epsilon": [1]}, "settings": {"epsilon": 1}}, "epsilon: .* leave one out"),
        ({"grid": {"epsilon": []}}, "there are no values"),
        ({"grid": {"rounds": [1] * 100_001}}, "100,001 runs"),
        ({"seeds": []}, "give one or more different integers"),
        ({"seeds": [1, 1]}, "one or more different integers"),
        ({"seeds": [-1]}, "integers from 0"),
    ],
)
def test_a_wrong_design_is_refused_at_once(made: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        design(**made)


def test_every_combination_runs_with_the_configuration_of_run() -> None:
    found = jobs(
        design(grid={"epsilon": [1, 2], "mechanism": ["laplace", "sign"]}, settings={"rounds": 3},
               seeds=[0, 4]),
        None,
    )  # fmt: skip
    assert len(found) == len({job.folder for job in found}) == 8
    for job in found:
        cell = [f"{key}={job.settings[key]}" for key in ("epsilon", "mechanism")]
        assert job.config == resolve("quickstart", [*cell, "rounds=3", f"seed={job.seed}"])


def test_a_recipe_without_a_setting_runs_once_without_it() -> None:
    swept = design("quickstart", "fedavg-quickstart", grid={"epsilon": [1, 2]})
    assert [dict(job.settings) for job in jobs(swept, None)] == [
        {"recipe": "quickstart", "epsilon": 1},
        {"recipe": "quickstart", "epsilon": 2},
        {"recipe": "fedavg-quickstart"},
    ]
    assert swept.lacking() == {"fedavg-quickstart": ["epsilon"]}


def test_a_wider_grid_has_the_folders_of_the_narrow_one() -> None:
    narrow = {job.folder for job in jobs(design(grid={"epsilon": [1]}), None)}
    wide = {job.folder for job in jobs(design(grid={"epsilon": [2, 1]}, seeds=[0, 1]), None)}
    assert narrow < wide


def test_a_refused_combination_says_why_and_others_stay() -> None:
    first, second = jobs(design(grid={"clients_per_round": [50, 1000]}), None)
    assert first.refused is None
    assert second.config is None
    assert second.refused is not None
    assert "clients_per_round = 1000" in second.refused


def test_if_all_combinations_are_refused_so_is_the_sweep() -> None:
    with pytest.raises(ConfigError, match="rounds = 0"):
        jobs(design(grid={"epsilon": [1, 2]}, settings={"rounds": 0}), None)


def test_the_same_configuration_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"epsilon=1 .* epsilon=1.0 .* are the same"):
        jobs(design(grid={"epsilon": [1, 1.0]}), None)
