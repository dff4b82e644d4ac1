"""Secure aggregation as a system: the mean of those who stayed, and nothing else in sight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from clients import client_of

import fedldp
from fedldp.data import Examples, load_dataset
from fedldp.errors import ConfigError, RunError
from fedldp.simulation.plan import problem_of
from fedldp.systems import System
from fedldp.systems.secure_aggregation import Phase
from fedldp.wire import Broadcast, Report, Sensitive

CLIENTS = range(7)


def config(**settings: Any) -> Any:
    return fedldp.recipe(
        "secure-aggregation-digits", **{"num_clients": len(CLIENTS), "dropout": 0.0, **settings}
    )


def weights_of(client: int, size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(client).uniform(-1, 1, size).astype(np.float32)


class Wire:
    """What passes between the server and clients with given weights."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.seen: dict[Phase, dict[int, bytes]] = {phase: {} for phase in Phase}

    def exchange(self, broadcast: Broadcast, clients: Any) -> Iterator[Report]:
        nothing = Examples(np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64))
        phase = Phase(int(broadcast.public["phase"][0]))
        for index in clients:
            own = weights_of(index, self.system.layout.size if phase is Phase.MASKED_INPUT else 0)
            client = client_of(nothing, index, round=broadcast.round)
            report = self.system.encoder(Sensitive(own), broadcast, client)
            self.seen[phase][index] = report.payload
            yield report


def one_round(**settings: Any) -> tuple[Wire, Broadcast, list[Report]]:
    made = config(**settings)
    wire = Wire(made.build(problem_of(made, None), device=torch.device("cpu")))
    start = wire.system.initial()
    assert wire.system.gather is not None
    reports: list[Any] = list(wire.system.gather(wire.exchange, start, CLIENTS))
    return wire, wire.system.server_step(start, reports), reports


def expected(wire: Wire, clients: Any) -> np.ndarray[Any, Any]:
    return np.mean([weights_of(c, wire.system.layout.size) for c in clients], axis=0)


def test_the_mean_is_that_of_all_clients_to_the_rounding_of_the_codes() -> None:
    wire, after, _ = one_round()
    np.testing.assert_allclose(after.weights, expected(wire, CLIENTS), atol=8 / 2**23)
    assert after.notes == {"clients_in_sum": 7}


@pytest.mark.parametrize("seed", range(6))
def test_the_mean_is_that_of_those_who_sent_their_input(seed: int) -> None:
    wire, after, _ = one_round(dropout=0.25, threshold=4, seed=seed)
    stayed = wire.seen[Phase.MASKED_INPUT].keys()
    np.testing.assert_allclose(after.weights, expected(wire, stayed), atol=8 / 2**23)
    assert after.notes == {"clients_in_sum": len(stayed)}
    assert len(wire.seen[Phase.UNMASK]) >= 4


def test_some_of_these_seeds_lose_clients_before_and_after_their_input() -> None:
    lost = set()
    for seed in range(6):
        wire, _, _ = one_round(dropout=0.25, threshold=4, seed=seed)
        for before, phase in zip(Phase, list(Phase)[1:], strict=False):
            if wire.seen[before].keys() - wire.seen[phase].keys():
                lost.add(phase)
    assert lost == {Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASK}


def test_what_a_client_sends_shows_nothing_of_its_weights() -> None:
    wire, _, reports = one_round()
    setup = wire.system.encoder.setup  # type: ignore[attr-defined]
    for client, message in wire.seen[Phase.MASKED_INPUT].items():
        code = setup.encode(weights_of(client, setup.size))
        masked = np.frombuffer(message[-code.nbytes :], setup.dtype)
        assert not (masked == code).any()
        # Uniform words: their bits are fair, and say nothing of the code's.
        bits = np.unpackbits(masked.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
        correlation = np.corrcoef(masked.astype(float), code.astype(np.int32).astype(float))[0, 1]
        assert abs(correlation) < 5 / np.sqrt(code.size)
    (report,) = reports
    assert report.client is None


def test_a_run_equals_plain_averaging_but_for_the_codes_rounding() -> None:
    summed = fedldp.run(config(rounds=2))
    shared = {key: getattr(config(rounds=2), key) for key in ("num_clients", "rounds")}
    plain = fedldp.run(fedldp.recipe("fedavg-quickstart", weighting="uniform", **shared))
    for name, weights in plain.weights.items():
        np.testing.assert_allclose(summed.weights[name], weights, atol=1e-5)


def test_the_statement_says_that_the_sum_is_unprotected() -> None:
    privacy = fedldp.run(config(rounds=1)).privacy
    assert {line["kind"] for line in privacy["guarantees"]} == {"none"}
    assert "exact sum" in privacy["guarantees"][0]["method"]


@cache
def without_a_sum(last: Phase) -> tuple[Wire, Broadcast]:
    """Return a round of which so many leave that too few are there for the phase ``last``."""
    made = config(dropout=0.28)
    system = made.build(problem_of(made, None), device=torch.device("cpu"))
    assert system.gather is not None
    for number in range(1, 200):
        wire, start = Wire(system), replace(system.initial(), round=number)
        reports: list[Any] = list(system.gather(wire.exchange, start, CLIENTS))
        here = [len(wire.seen[phase]) for phase in Phase]
        if here[last] < 5 <= here[last - 1]:
            assert [(report.payload, report.weight) for report in reports] == [(b"", 0.0)]
            return wire, system.server_step(start, reports)
    raise AssertionError("no round loses the sum there")


@pytest.mark.parametrize("last", [Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASK])
def test_a_round_with_too_few_clients_left_has_no_sum_and_moves_nothing(last: Phase) -> None:
    wire, after = without_a_sum(last)
    assert after.notes == {"clients_in_sum": 0}
    np.testing.assert_array_equal(after.weights, wire.system.initial().weights)
    for phase in Phase:  # nobody was asked for more
        assert phase <= last or not wire.seen[phase]


def test_nothing_of_a_round_without_a_sum_comes_again() -> None:
    wire, after = without_a_sum(Phase.UNMASK)
    first = wire.seen[Phase.ADVERTISE]
    assert wire.system.gather is not None
    again = Wire(wire.system)
    list(wire.system.gather(again.exchange, after, CLIENTS))
    for client, keys in again.seen[Phase.ADVERTISE].items():
        for start in (13, 45):  # after kind, round and number: two keys of 32 bytes
            assert keys[start : start + 32] not in first[client]


def test_the_server_never_sees_shares_of_both_secrets_of_a_client() -> None:
    """Among those that were asked who is left, all were told the same, and answered once."""
    wire, _ = without_a_sum(Phase.UNMASK)
    answers = wire.seen[Phase.UNMASK].values()
    sharers = wire.seen[Phase.SHARE_KEYS]
    assert 0 < len(answers) < 5
    assert {len(answer) for answer in answers} == {13 + 16 * len(sharers)}


def test_a_run_goes_on_after_a_round_without_a_sum() -> None:
    first, second, third = fedldp.run(config(dropout=0.28, rounds=3, seed=1, local_epochs=1)).rounds
    assert first.notes["clients_in_sum"] >= 5
    assert second.notes["clients_in_sum"] == 0
    assert third.notes["clients_in_sum"] >= 5
    assert first.loss == second.loss > third.loss


def test_what_is_no_lack_of_clients_still_ends_the_run() -> None:
    wire, _, _ = one_round()
    system = wire.system

    def altered(broadcast: Broadcast, clients: Any) -> Iterator[Report]:
        for report in wire.exchange(broadcast, clients):
            yield replace(report, payload=report.payload[:-1])

    assert system.gather is not None
    with pytest.raises(RunError, match="malformed"):
        list(system.gather(altered, system.initial(), CLIENTS))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"threshold": 3}, "threshold = 3"),
        ({"threshold": 8}, "threshold = 8"),
        ({"code_bits": 63}, "^code_bits = 63"),
        ({"code_bits": 1}, "^code_bits = 1:"),
        ({"clip": 1e20}, "clip = 1e"),
        ({"num_clients": 1}, "^num_clients = 1: .* give 2 or more"),
        ({"clients_per_round": 1}, "^clients_per_round = 1: .* give 2 or more"),
        ({"dropout": 1.0}, "dropout = 1.0"),
        ({"dropout": 0.35}, r"^dropout = 0.35: .* threshold = 5 .* at most 0.285, or a lower"),
        ({"dropout": 0.45, "threshold": 4}, r"^dropout = 0.45: .* of at most 0.428$"),
    ],
)
def test_settings_that_make_no_sum_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        fedldp.run(config(**settings))


def test_weights_beyond_the_clip_are_clipped() -> None:
    wire, after, _ = one_round(clip=0.5)
    assert np.abs(after.weights).max() <= 0.5
    clipped = np.mean(
        [np.clip(weights_of(c, wire.system.layout.size), -0.5, 0.5) for c in CLIENTS], axis=0
    )
    np.testing.assert_allclose(after.weights, clipped, atol=1e-6)


def test_it_runs_on_the_embedded_data_to_a_good_model() -> None:
    result = fedldp.run(fedldp.recipe("secure-aggregation-digits", rounds=3))
    assert result.accuracy > 0.85
    assert any(record.notes["clients_in_sum"] < 10 for record in result.rounds)
    assert len(load_dataset("digits").test) == 360
