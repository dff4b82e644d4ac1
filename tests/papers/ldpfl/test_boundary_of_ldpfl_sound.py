"""Sound LDPFL: one example changes one input of the mechanism, and nothing else that leaves.

With a mechanism's output held fixed, a client must send the same for all data. Then everything the
server learns about the data comes through the mechanism that the statement counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedldp.accounting.events import Memoized, PerRecord, PureReport, SelfComposed
from fedldp.accounting.guarantees import IDEALISED, ONCE
from fedldp.accounting.prices import cost
from fedldp.algorithms.preset import Settings
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import Stream
from fedldp.data import Examples, partition
from fedldp.mechanisms.privunit import PrivUnit
from fedldp.papers.ldpfl.preset_sound import ldpfl_sound
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import SHARED, plan, problem_of
from fedldp.testing.clients import Roles, client_of, lines, trained
from fedldp.testing.data import SMALL, images, with_another


def sound(**changes: Any) -> Settings:
    settings = {**SMALL, "model": "linear", "epsilon": 8.0, **changes}
    return ldpfl_sound(**settings)


class Watched:
    """PrivUnit that records its input, and randomises zeros instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[NDArray[Any]] = []
        original = PrivUnit.encode

        def encode(mechanism: PrivUnit, values: NDArray[Any], stream: Stream) -> bytes:
            self.given.append(values.copy())
            return original(mechanism, np.zeros_like(values), stream)

        monkeypatch.setattr(PrivUnit, "encode", encode)


def all_rounds(config: Settings, examples: Examples, folder: Path) -> list[bytes]:
    roles = Roles(config)
    first, payloads = roles.broadcast, []
    for round in range(1, config.rounds + 1):
        client = client_of(examples, round=round, folder=folder)
        told = Broadcast(round=round, weights=first.weights + np.float32(round))
        payloads.append(roles.report(told, client).payload)
    return payloads


@pytest.mark.parametrize(
    ("batch_size", "model"), [(1, "linear"), (3, "mlp"), (1000, "own_models:dropout")]
)
def test_one_example_moves_one_input_of_the_mechanism_and_nothing_else(
    model: str, batch_size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = sound(model=model, batch_size=batch_size)
    seen, sent = [], []
    for run, examples in enumerate((images(20), with_another(images(20), 7))):
        with monkeypatch.context() as patch:
            watched = Watched(patch)
            sent.append(all_rounds(config, examples, tmp_path / str(run)))
        seen.append(watched.given)
    assert sent[0] == sent[1]
    assert len(seen[0]) == len(seen[1]) == 20, "every example is randomised exactly once"
    moved = [not np.array_equal(a, b) for a, b in zip(*seen, strict=True)]
    assert sum(moved) == 1


def test_a_repeated_request_draws_nothing_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    roles, watched = Roles(sound()), Watched(monkeypatch)
    first = roles.broadcast
    client = client_of(images(20), folder=tmp_path)
    once = roles.report(first, client).payload
    randomised = len(watched.given)
    other = Broadcast(round=1, weights=first.weights + 1)
    assert roles.report(other, client).payload == once
    assert len(watched.given) == randomised


@pytest.mark.parametrize("round", [-1, 0, 5])
def test_a_round_outside_the_run_cannot_use_an_example_twice(
    round: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As an index from the end, round 0 would be the last round under a second name."""
    roles, watched = Roles(sound()), Watched(monkeypatch)
    told = Broadcast(round=round, weights=roles.first.weights)
    with pytest.raises(RunError, match=f"round {round}: .* rounds 1 to 4"):
        roles.report(told, client_of(images(20), round=round, folder=tmp_path))
    assert not watched.given


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_client_with_fewer_examples_than_rounds_still_reports(count: int, tmp_path: Path) -> None:
    lengths = {len(payload) for payload in all_rounds(sound(), images(count), tmp_path)}
    assert lengths == {4 * Roles(sound()).layout.size}


def test_with_equal_draws_the_lines_are_those_of_that_many_examples() -> None:
    """As with equal shares, the number is then public, and every client has exactly that many."""
    config = sound(num_clients=5, partition="drawn:7", mechanism="laplace")
    problem = problem_of(config, None)
    event = config.algorithm(problem).encoder(0).event()
    assert isinstance(event, PerRecord)
    assert isinstance(event.client, Memoized)
    assert event.client.drawn == SelfComposed(each=PureReport(epsilon=8.0), count=7)
    parts = partition(images(60).labels, 5, "drawn:7", np.random.default_rng(0))
    assert {len(part) for part in parts} == {7}
    found = plan(config, problem).privacy
    for unit in ("client-round", "client-run"):
        pure, approximate = (line for line in found["guarantees"] if line["unit"] == unit)
        assert pure["epsilon"] == pytest.approx(7 * 8.0, rel=1e-12)
        assert approximate["epsilon"] <= pure["epsilon"]
    assert SHARED in found["warnings"]


@pytest.mark.parametrize("num_clients", [1, 3, 7, 9, 11])
def test_no_client_of_an_iid_partition_has_more_examples_than_are_charged(
    num_clients: int,
) -> None:
    event = Roles(sound(num_clients=num_clients, mechanism="laplace")).encoder().event()
    assert isinstance(event, PerRecord)
    assert isinstance(event.client, Memoized)
    assert isinstance(event.client.drawn, SelfComposed)
    each, count = event.client.drawn.each, event.client.drawn.count
    assert each == PureReport(epsilon=8.0)
    for seed in range(5):
        parts = partition(np.zeros(60, np.int64), num_clients, "iid", np.random.default_rng(seed))
        for part in parts:
            assert count >= len(part)
            assert cost(event.client, "pure") >= 8.0 * len(part)


def test_privunit_is_idealised_in_every_line_and_piecewise_in_none() -> None:
    for unit in ("record", "client-round", "client-run"):
        for line in lines(sound(), unit):
            assert {IDEALISED, ONCE} <= set(line["assumptions"])
        for line in lines(sound(mechanism="piecewise"), unit):
            assert IDEALISED not in line["assumptions"]
            assert ONCE in line["assumptions"]


@pytest.mark.parametrize("clip", [1e-9, 1e9])
def test_no_gradient_is_refused_for_its_size(clip: float, tmp_path: Path) -> None:
    roles = Roles(sound(clip=clip))
    told = Broadcast(round=1, weights=roles.first.weights * np.float32(1e6))
    assert roles.report(told, client_of(images(20), folder=tmp_path)).payload


def test_a_model_that_cannot_take_single_examples_is_refused_in_one_line(tmp_path: Path) -> None:
    roles = Roles(sound(model="own_models:branching"))
    with pytest.raises(ConfigError, match=r"torch\.func cannot differentiate it") as refused:
        roles.report(roles.broadcast, client_of(images(8), folder=tmp_path))
    assert "\n" not in str(refused.value)


def test_no_broadcast_makes_sound_ldpfl_refuse_a_single_example(tmp_path: Path) -> None:
    roles = Roles(sound(num_clients=4, rounds=1, learning_rate=1.0, epsilon=1.0))
    # An image without slopes has features of 0, so a finite gradient at any weights.
    flat = np.full((6, 1, 8, 8), 0.5, np.float32)
    one = flat.copy()
    one[3, 0, 2:6, 2:4] = 0
    huge = Broadcast(round=1, weights=np.full(roles.layout.size, 3e38, np.float32))
    for i, features in enumerate((flat, one)):
        client = client_of(Examples(features, np.arange(6)), folder=tmp_path / f"disk-{i}")
        assert np.isfinite(trained(roles.local_update, huge, client)).all()
