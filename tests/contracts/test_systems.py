"""Every system of the package keeps the contracts of ``RunConfig`` and of its two roles.

Systems are tested with their recipes on digits, which need no data folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gate import golden, statements
from pydantic import ValidationError
from samples import first_of_each, one_of_a_kind
from tables import table_of
from workers import forked_workers

import fedldp
from fedldp.accounting.events import Event, NoRelease
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.person_dp_sgd import person_dp_sgd
from fedldp.algorithms.recipes import recipes
from fedldp.algorithms.systems import systems
from fedldp.core.errors import ConfigError, RunError
from fedldp.papers.priority.parts import first_layer_of
from fedldp.papers.priority.preset import priority
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Update
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, Vector
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of, state
from fedldp.simulation.settings import from_mapping, read_toml, to_toml
from fedldp.testing.clients import Roles, sender_of
from fedldp.training.person_gradients import NORM, SUMS

CONFIGS = {name: recipe.config for name, recipe in sorted(recipes().items())}
KINDS = one_of_a_kind(CONFIGS)
"""For all recipes, ``tests/gate`` records the configuration, what a client is told, and the
statement."""
ON_DIGITS = one_of_a_kind(
    {n: config for n, config in CONFIGS.items() if config.dataset == "digits"}
)
every_system = pytest.mark.parametrize("cls", systems().values(), ids=systems())
every_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
every_digits_recipe = pytest.mark.parametrize(
    "config", first_of_each(ON_DIGITS, lambda config: config.system)
)
FIRST = {config.system: config for config in reversed(ON_DIGITS.values())}
ROUNDS = 3


def shortened(config: RunConfig) -> RunConfig:
    epochs = {name: getattr(config, name) for name in type(config).model_fields if "epochs" in name}
    few = {name: min(2, value) for name, value in epochs.items() if value is not None}
    return config.changed(rounds=ROUNDS, **few)


def roles_of(config: RunConfig) -> Roles:
    short = shortened(config)
    return Roles(short.with_schedule(draws_of_seed(short.seed)), problem_of(short, None))


def test_every_system_has_a_recipe_on_digits() -> None:
    assert {config.system for config in ON_DIGITS.values()} == set(systems())


# The configuration


@pytest.mark.sampled(30)
@every_kind
def test_a_configuration_is_frozen_and_is_read_back_from_toml_and_json(
    config: RunConfig, tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        config.rounds = 3  # type: ignore[misc]
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert read_toml(path) == config
    assert from_mapping(json.loads(json.dumps(config.model_dump()))) == config


@every_system
def test_every_setting_is_described(cls: type[RunConfig]) -> None:
    for name, field in cls.model_fields.items():
        assert field.description or name == "system", name


@every_system
def test_no_limit_of_a_setting_is_given_twice(cls: type[RunConfig]) -> None:
    """Of two limits of the same kind, the type's would silently win over the field's own."""
    for name, field in cls.model_fields.items():
        kinds = [type(limit) for limit in field.metadata]
        assert len(set(kinds)) == len(kinds), name


@every_digits_recipe
def test_more_clients_in_a_round_than_in_the_run_are_refused(config: RunConfig) -> None:
    problem = problem_of(config, None)
    with pytest.raises(ConfigError, match="clients_per_round = "):
        plan(config.changed(clients_per_round=config.num_clients + 1), problem)


# The statement


def check_statement(privacy: dict[str, Any]) -> None:
    assert set(privacy) == {"schema_version", "claim", "guarantees", "warnings"}
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


def test_every_statement_names_its_lines() -> None:
    """Reads the recorded statements; ``tests/gate`` makes each again, without any data."""
    for system, names in statements.by_system().items():
        documents = golden.read(statements.path_of(system))["recipes"]
        assert set(documents) == set(names)
        for document in documents.values():
            check_statement(document["statement"])


@every_digits_recipe
def test_later_rounds_never_make_earlier_releases_cost_less(config: RunConfig) -> None:
    longer = config.changed(rounds=5)
    problem = problem_of(longer, None)
    releases = plan(longer, problem).releases

    def lines(rounds: int) -> dict[tuple[Any, ...], float]:
        until = releases.before(rounds + 1)
        return {
            tuple(line[key] for key in ("unit", "adversary", "kind")): line["epsilon"] or math.inf
            for line in state(longer, problem, until)["guarantees"]
        }

    few, many = lines(2), lines(5)
    assert set(few) == set(many)
    for key, epsilon in few.items():
        assert many[key] >= epsilon * (1 - 1e-9), key


# The run


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {}


def result_of(config: RunConfig, results: dict[str, Any], folder: Path) -> Any:
    """Return the short run of a configuration, shared by the tests of this file."""
    key = to_toml(config)
    if key not in results:
        results[key] = simulate(shortened(config), out=folder / "run")
    return results[key]


@pytest.mark.sampled(5)
@every_digits_recipe
def test_a_system_runs_and_its_ledgers_agree_with_its_statement(
    config: RunConfig, results: dict[str, Any], tmp_path: Path
) -> None:
    result = result_of(config, results, tmp_path)
    assert len(result.rounds) == ROUNDS
    assert 0 <= result.accuracy <= 1
    assert all(record.uplink_bits_per_client >= 0 for record in result.rounds)
    planned = plan(shortened(config), problem_of(config, None))
    (run,) = (each["run"] for each in result.ledger.to_record()["runs"])
    released = result.ledger.releases(run)
    by_round, by_plan = table_of(released), table_of(planned.releases)
    for round, found in by_round.items():
        assert found.items() <= by_plan[round].items()
    if not getattr(
        config, "dropout", 0
    ):  # a client that drops out before it releases anything pays nothing
        assert released == planned.releases
    assert state(planned.scheduled, planned.problem, released) == result.privacy
    assert planned.privacy == result.privacy


@pytest.mark.slow  # for three systems, tests/simulation/test_engine.py shows it by default
@pytest.mark.parametrize("config", FIRST.values(), ids=FIRST)
def test_any_number_of_workers_gives_the_same_bits(
    config: RunConfig, results: dict[str, Any], tmp_path: Path
) -> None:
    alone = result_of(config, results, tmp_path)
    with forked_workers():
        spread = simulate(shortened(config), workers=2)
    for name, weights in alone.weights.items():
        np.testing.assert_array_equal(weights, spread.weights[name])
    for one, other in zip(alone.rounds, spread.rounds, strict=True):
        assert (one.accuracy, one.loss, one.uplink_bits_per_client, one.metrics) == (
            other.accuracy, other.loss, other.uplink_bits_per_client, other.metrics
        )  # fmt: skip


@pytest.mark.sampled(5)
@every_digits_recipe
def test_an_interrupted_run_continues_as_if_it_had_not_been(
    config: RunConfig, results: dict[str, Any], tmp_path: Path
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


# The two roles


@pytest.mark.sampled(30)
@every_kind
def test_an_encoder_states_an_event_for_every_phase(config: RunConfig) -> None:
    """One event of a round covers everything computed from examples; a statement counts no
    other."""
    roles, phases = roles_of(config), config.composition.channel.phases
    for group in roles.config.encoder_groups():
        for client in {group[0], group[-1]}:
            encoder = roles.encoder(client)
            events = [encoder.event(phase) for phase in range(phases)]
            assert all(isinstance(event, Event) for event in events)
            assert len([event for event in events if not isinstance(event, NoRelease)]) == 1
            first = roles.encoder(group[0])
            assert [first.event(phase) for phase in range(phases)] == events


@pytest.mark.sampled(30)
@every_kind
def test_a_client_is_told_enough_for_its_own_event_and_no_more(config: RunConfig) -> None:
    roles = roles_of(config)
    for client in (0, config.num_clients - 1):
        told = roles.config.for_client(client)
        assert (told.seed, told.client_budget, told.target) == (0, None, None)
        own, whole = (
            each.algorithm(roles.problem).encoder(client) for each in (told, roles.config)
        )
        for phase in range(config.composition.channel.phases):
            assert own.event(phase) == whole.event(phase)


def reports_of(roles: Roles, update: Any, folder: Path) -> list[Report]:
    """Return what clients report in the first round if their training gives ``update``."""
    config, sent = roles.config, list[Report]()

    def ask(
        phase: int, broadcast: Broadcast, clients: Sequence[int], own: Any = None
    ) -> Iterator[Report]:
        request = RoundRequest(run="run", phase=phase, broadcast=broadcast, own=own or {})
        for client in clients:
            told = request.to(client).broadcast
            sender = sender_of(
                20, client, seed=config.seed, phase=phase, folder=folder / str(client)
            )
            sent.append(roles.encode(update, told, sender))
            yield sent[-1]

    dialogue = roles.server.dialogue
    if dialogue is None:
        list(ask(0, roles.broadcast, [0]))
    else:
        draw = draws_of_seed(config.seed)(1)
        list(dialogue(ask, roles.broadcast, range(config.round_size), draw))
    return sent


def trained(roles: Roles, weights: Vector) -> Any:
    """Return what the system's local update would return with these weights."""
    if isinstance(roles.config, priority):
        features = first_layer_of(roles.config, roles.problem).num_features
        return Update(rows=weights[None], aux={"importance": np.zeros((1, features))})
    if (
        getattr(roles.config, "local_update", None) == "statistics"
    ):  # statistics are sent beside the weights
        release = roles.encoder(0).release
        found = np.full((1, release.bound.chart.size), weights.sum(), np.float64)
        return Update(rows=weights[None], aux={release.sends: found})
    if isinstance(roles.config, person_dp_sgd):  # sums of people, in grid steps
        sums = np.rint(NORM * (weights.astype(np.float64) - roles.broadcast.weights))
        return Update(rows=weights[None], aux={SUMS: sums[None]})
    return weights


@every_digits_recipe
def test_failed_training_is_answered_like_training_without_a_change(
    config: RunConfig, tmp_path: Path
) -> None:
    """A refusal or NaN would reveal something about the examples, so a public value is
    randomised."""
    roles = roles_of(config)
    public = reports_of(roles, trained(roles, roles.broadcast.weights), tmp_path / "public")
    # The weights differ, because for several labels only the differences between weights are sent.
    other = np.linspace(0.05, 0.2, roles.layout.size, dtype=np.float32)
    assert reports_of(roles, trained(roles, other), tmp_path / "other") != public
    for value in (np.nan, np.inf, -np.inf):
        bad = other.copy()
        bad[-1] = value
        found = reports_of(roles, trained(roles, bad), tmp_path / str(value))
        assert found == public
    assert reports_of(roles, None, tmp_path / "none") == public


@every_digits_recipe
def test_the_server_refuses_a_round_without_reports(config: RunConfig) -> None:
    with pytest.raises(RunError):
        roles_of(config).aggregate([])


@every_digits_recipe
def test_reports_have_the_size_they_state(config: RunConfig, tmp_path: Path) -> None:
    roles = roles_of(config)
    weights = np.full(roles.layout.size, 0.01, np.float32)
    reports = reports_of(roles, trained(roles, weights), tmp_path)
    assert reports
    for report in reports:
        assert isinstance(report, Report)
        assert report.round == 1
        assert report.uplink_bits >= 8 * len(report.payload) > 0


@every_digits_recipe
def test_a_restarted_server_has_the_same_first_state(config: RunConfig) -> None:
    """It also has the same first broadcast, so a resumed run continues unchanged."""
    one, other = roles_of(config), roles_of(config)
    assert one.first.round == other.first.round == one.broadcast.round == 1
    np.testing.assert_array_equal(one.first.weights, one.broadcast.weights)
    np.testing.assert_array_equal(one.broadcast.weights, other.broadcast.weights)
    assert one.broadcast.public.keys() == other.broadcast.public.keys()
    for name, value in one.broadcast.public.items():
        np.testing.assert_array_equal(value, other.broadcast.public[name])
