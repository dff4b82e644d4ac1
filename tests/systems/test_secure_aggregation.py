"""Secure aggregation as a system: the mean of those who stayed, and nothing else in sight."""

from __future__ import annotations

from collections.abc import Iterator
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
            report = self.system.encoder(Sensitive(own), broadcast, client_of(nothing, index))
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


def test_too_few_clients_to_the_end_is_refused_in_one_line() -> None:
    with pytest.raises(RunError, match="fewer than threshold = 5") as caught:
        fedldp.run(config(dropout=0.9))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"threshold": 3}, "threshold = 3"),
        ({"threshold": 8}, "threshold = 8"),
        ({"code_bits": 63}, "bits = 63"),
        ({"clip": 1e20}, "clip = 1e"),
        ({"num_clients": 1}, "num_clients = 1"),
        ({"dropout": 1.0}, "dropout = 1.0"),
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
