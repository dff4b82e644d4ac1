"""Every system that the package holds keeps the contract of ``SystemConfig`` and ``System``.

A system is tried with its recipes on digits, which need no data folder.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clients import client_of
from pydantic import ValidationError
from workers import forked_workers

import fedldp
from fedldp.data import load_dataset
from fedldp.errors import ConfigError, PrivacyError, RunError
from fedldp.recipes import recipes
from fedldp.settings import from_mapping, read_toml, to_toml
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of, state
from fedldp.systems import System, SystemConfig, systems
from fedldp.wire import Report, Sensitive

CONFIGS = {name: make() for name, make in sorted(recipes().items())}
ON_DIGITS = {name: config for name, config in CONFIGS.items() if config.dataset == "digits"}
every_recipe = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
every_digits_recipe = pytest.mark.parametrize("config", ON_DIGITS.values(), ids=ON_DIGITS)
ROUNDS = 3


def shortened(config: SystemConfig) -> SystemConfig:
    return config.changed(rounds=ROUNDS)


def built(config: SystemConfig) -> System:
    return config.build(problem_of(config, None), device=torch.device("cpu"))


def test_every_system_has_a_recipe_on_digits() -> None:
    assert {config.system for config in ON_DIGITS.values()} == set(systems())


# The configuration


@every_recipe
def test_it_is_frozen_and_comes_back_from_toml_and_json(
    config: SystemConfig, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        config.rounds = 3  # type: ignore[misc]
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert read_toml(path) == config
    assert from_mapping(json.loads(json.dumps(config.model_dump()))) == config


@every_recipe
def test_every_setting_is_described(config: SystemConfig) -> None:
    for name, field in type(config).model_fields.items():
        assert field.description or name == "system", name


@every_recipe
def test_no_limit_of_a_setting_is_given_twice(config: SystemConfig) -> None:
    """Of two limits of one kind the type's would win, unseen, over the field's own."""
    for name, field in type(config).model_fields.items():
        kinds = [type(limit) for limit in field.metadata]
        assert len(set(kinds)) == len(kinds), name


@every_recipe
def test_more_clients_in_a_round_than_there_are_is_refused(config: SystemConfig) -> None:
    problem = problem_of(config, None)
    with pytest.raises(ConfigError, match="clients_per_round = "):
        plan(config.changed(clients_per_round=config.num_clients + 1), problem)


# The statement


def check_statement(privacy: dict[str, Any]) -> None:
    assert set(privacy) == {"claim", "guarantees", "warnings"}
    assert privacy["guarantees"]
    for line in privacy["guarantees"]:
        if line["kind"] == "none":
            assert line["epsilon"] is None
            assert line["lower"] is None
        else:
            assert math.isfinite(line["epsilon"])
            assert line["epsilon"] >= 0
            assert line["assumptions"]
            assert line["lower"] is None or line["lower"] <= line["epsilon"]
        assert (line["kind"] == "approximate") == (line["delta"] > 0)
        assert line["method"]
        assert (line["unit"] == "record") == (line["neighbours"] == "replace-record")
    units = [(line["unit"], line["adversary"]) for line in privacy["guarantees"]]
    assert ("client-run", "server") in units
    assert any("this run itself protects nothing" in text for text in privacy["warnings"])


@every_recipe
def test_its_statement_needs_no_data_and_names_every_line(
    config: SystemConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEDLDP_DATA", str(tmp_path / "nothing here"))
    check_statement(plan(config, problem_of(config, None)).privacy)


@every_digits_recipe
def test_later_rounds_never_make_what_was_released_cost_less(config: SystemConfig) -> None:
    longer = config.changed(rounds=5)
    releases = plan(longer, problem_of(longer, None)).releases

    def lines(rounds: int) -> dict[tuple[Any, ...], float]:
        until = {round: releases[round] for round in range(1, rounds + 1)}
        return {
            tuple(line[key] for key in ("unit", "adversary", "kind")): line["epsilon"] or math.inf
            for line in state(longer, until)["guarantees"]
        }

    few, many = lines(2), lines(5)
    assert set(few) == set(many)
    for key, epsilon in few.items():
        assert many[key] >= epsilon * (1 - 1e-9), key


# The run


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {}


def result_of(config: SystemConfig, results: dict[str, Any], folder: Path) -> Any:
    """Return the short run of a configuration, which the tests here share."""
    key = to_toml(config)
    if key not in results:
        results[key] = simulate(shortened(config), out=folder / "run")
    return results[key]


@every_digits_recipe
def test_it_runs_and_its_ledgers_agree_with_its_statement(
    config: SystemConfig, results: dict[str, Any], tmp_path: Path
) -> None:
    result = result_of(config, results, tmp_path)
    assert len(result.rounds) == ROUNDS
    assert 0 <= result.accuracy <= 1
    assert all(record.uplink_bits_per_client >= 0 for record in result.rounds)
    assert state(result.config, result.ledger.releases()) == result.privacy
    planned = plan(shortened(config), problem_of(config, None))
    assert planned.privacy == result.privacy


@every_digits_recipe
def test_any_number_of_workers_gives_the_same_bits(
    config: SystemConfig, results: dict[str, Any], tmp_path: Path
) -> None:
    alone = result_of(config, results, tmp_path)
    with forked_workers():
        spread = simulate(shortened(config), workers=2)
    for name, weights in alone.weights.items():
        np.testing.assert_array_equal(weights, spread.weights[name])
    for one, other in zip(alone.rounds, spread.rounds, strict=True):
        assert (one.accuracy, one.loss, one.uplink_bits_per_client, one.notes) == (
            other.accuracy, other.loss, other.uplink_bits_per_client, other.notes
        )  # fmt: skip


@every_digits_recipe
def test_an_interrupted_run_continues_as_if_it_had_not_been(
    config: SystemConfig, results: dict[str, Any], tmp_path: Path
) -> None:
    whole = result_of(config, results, tmp_path)

    class Stop(Exception):
        pass

    def stop(record: Any) -> None:
        if record.round == 2:
            raise Stop

    with pytest.raises(Stop):
        simulate(shortened(config), out=tmp_path / "cut", after_round=stop)
    resumed = fedldp.resume(tmp_path / "cut")
    for name, weights in whole.weights.items():
        np.testing.assert_array_equal(weights, resumed.weights[name])
    assert resumed.privacy == whole.privacy


# The client's boundary


@every_digits_recipe
def test_nothing_is_released_of_weights_that_are_not_finite(config: SystemConfig) -> None:
    system = built(shortened(config))
    broadcast = system.initial()
    examples = load_dataset("digits").train
    bad = np.full(system.layout.size, 0.1, np.float32)
    for value in (np.nan, np.inf, -np.inf):
        bad[-1] = value
        with pytest.raises(PrivacyError):
            system.encoder(Sensitive(bad), broadcast, client_of(examples))


@every_digits_recipe
def test_the_server_refuses_a_round_without_reports(config: SystemConfig) -> None:
    system = built(shortened(config))
    with pytest.raises(RunError):
        system.server_step(system.initial(), [])


@every_digits_recipe
def test_reports_have_the_size_that_they_say(config: SystemConfig) -> None:
    system = built(shortened(config))
    weights = np.full(system.layout.size, 0.01, np.float32)
    examples = load_dataset("digits", standardise=config.standardise).train
    report = system.encoder(Sensitive(weights), system.initial(), client_of(examples))
    assert isinstance(report, Report)
    assert report.round == 1
    assert report.uplink_bits >= 8 * len(report.payload) > 0
