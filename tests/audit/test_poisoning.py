"""Lying clients: without them a run is unchanged; their reports are accepted, their influence
bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.central_dp import central_dp
from fedldp.algorithms.problem import Problem
from fedldp.audit.poisoning import FirstStep, Forger, accuracy_of, influence, made_of
from fedldp.core.bounding import LARGEST_WEIGHT
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.channels import ReportChecker
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.wire import RoundRequest
from fedldp.simulation.inputs import Inputs
from fedldp.testing.clients import Roles, sender_of

DIGITS = Problem((1, 8, 8), 10, 1437)
GOLDEN: dict[str, Any] = {
    "num_clients": 20, "rounds": 3, "local_epochs": 5, "batch_size": 5, "learning_rate": 0.1,
    "standardise": False, "epsilon": 2.0, "range_radius": 0.3,
}  # fmt: skip


def inputs_of(config: RunConfig) -> Inputs:
    return Inputs.of(config, None, None)


# Runs


@pytest.mark.slow
def test_without_lies_the_run_is_the_golden_one() -> None:
    config = fedldp.recipe("quickstart", **GOLDEN)
    accuracy, stopped = accuracy_of(config, inputs_of(config), "report", ())
    assert stopped == ""
    assert accuracy == fedldp.run(config).rounds[-1].accuracy
    assert accuracy == pytest.approx(0.8472, abs=0.02)  # of tests/golden/test_short_runs.py


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "attack"),
    [
        ("fedavg-digits", "report"),
        ("ldp-fl-digits", "random"),
        ("fedavg-digits", "update"),
        ("ldp-fl-digits", "labels"),
    ],
)
def test_lies_cost_accuracy_and_more_so_if_updates_are_unbounded(name: str, attack: Any) -> None:
    config = fedldp.recipe(name, num_clients=10, rounds=2, num_examples=500)
    inputs = inputs_of(config)
    honest, _ = accuracy_of(config, inputs, None, ())
    lying, stopped = accuracy_of(config, inputs, attack, (0, 5, 6))
    if attack == "report" or (name == "fedavg-digits" and attack != "labels"):
        assert lying < 0.4 < honest
    assert (lying < honest + 0.1, stopped) == (True, "")


# Reports


@pytest.mark.parametrize("name", ["fedavg-digits", "quickstart", "distributed-gaussian-digits"])
def test_a_deployed_server_accepts_forged_reports(name: str) -> None:
    config = fedldp.recipe(name)
    config = config.with_schedule(draws_of_seed(config.seed))
    roles = Roles(config, DIGITS)
    agreement = SimpleNamespace(
        channel="named", config=config, problem=DIGITS, has_own_budgets=False
    )
    draws = draws_of_seed(0)
    checks = ReportChecker(cast(Agreement, agreement), roles.server, draws, roles.first)
    request = RoundRequest(run="run", phase=0, broadcast=roles.broadcast)
    client = 0
    encoder = roles.encoder(client)
    honest = roles.encode(None, roles.broadcast, sender_of(9, client))
    towards = np.random.default_rng(0).normal(size=650)
    forged = Forger(encoder, 0.5, 64).forge(honest, towards, sender_of(9, client), 1)
    assert forged.payload != honest.payload
    checks.check(request, forged, client)  # raises if it refuses


def test_a_mechanism_without_a_known_format_is_attacked_by_its_best_report() -> None:
    config = fedldp.recipe("ldp-fl-digits", mechanism="piecewise", epsilon=8.0)
    roles = Roles(config, DIGITS)
    encoder, towards = roles.encoder(), np.ones(650)
    mechanism = made_of(encoder)
    honest = roles.encode(None, roles.broadcast, sender_of(9, 0))
    forger = Forger(encoder, 0.5, 64)
    assert mechanism is not None

    def reach(payload: bytes) -> float:
        aggregate = mechanism.aggregate(650)  # type: ignore[union-attr]
        aggregate.add(payload)
        return float(aggregate.mean() @ towards)

    best = reach(forger.forge(honest, towards, sender_of(9, 0), 1).payload)
    stream = sender_of(9, 1).fresh("mechanism")
    usual = [reach(mechanism.encode(towards, stream)) for _ in range(8)]
    assert best > float(np.mean(usual))


# Influence


def test_no_report_of_bits_has_more_influence_than_the_encoding_allows() -> None:
    config = fedldp.recipe("ldp-fl-digits", ranges="fixed", range_radius=0.2, num_clients=20)
    bound = 2 * 0.2 * TwoPoint(1.0).scale / 20
    found = influence(config, DIGITS)
    assert found.figures["clients"] == 20
    assert found.advantage == pytest.approx(bound, rel=1e-5)
    assert found.figures["norm"] == pytest.approx(bound * np.sqrt(650), rel=1e-5)
    assert found.figures["amplification"] == pytest.approx(TwoPoint(1.0).scale)
    step = FirstStep(config, DIGITS)
    generator = np.random.default_rng(1)
    honest = step.after(0, step.forged(0, np.ones(650)))
    for _ in range(20):
        other = step.after(0, step.forged(0, generator.normal(size=650)))
        assert np.abs(other - honest).max() <= found.advantage * (1 + 1e-6)


def test_a_server_that_clips_bounds_the_influence_of_plain_floats() -> None:
    config = fedldp.recipe("central-dp-digits")
    assert isinstance(config, central_dp)
    assert config.clip is not None
    found = influence(config, DIGITS)
    assert found.figures["norm"] == pytest.approx(2 * config.clip / config.round_size, rel=1e-3)
    assert influence(fedldp.recipe("fedavg-digits"), DIGITS).advantage > LARGEST_WEIGHT / 200
