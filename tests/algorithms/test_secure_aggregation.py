"""Secure aggregation as a system: it gives the mean of the remaining clients, and shows nothing
else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.secure_aggregation import secure_aggregation
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import RunError
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Ask, Draw, ServerRole, State
from fedldp.protocol.wire import Broadcast, Incoming, Report
from fedldp.secure_sum.client_role import Phase
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import problem_of
from fedldp.testing.clients import Roles, sender_of

CLIENTS = range(7)


def config(**settings: Any) -> RunConfig:
    made = fedldp.recipe(
        "secure-aggregation-digits", **{"num_clients": len(CLIENTS), "dropout": 0.0, **settings}
    )
    assert isinstance(made, secure_aggregation)
    return made


def weights_of(client: int, size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(client).uniform(-1, 1, size).astype(np.float32)


class Wire:
    """The messages between the server and clients with given weights.

    Clients are created anew for every request, as after a restart; their files are in ``folder``.
    """

    def __init__(self, roles: Roles, folder: Path) -> None:
        self.roles, self.folder = roles, folder
        self.seen: dict[Phase, dict[int, bytes]] = {phase: {} for phase in Phase}
        self.told: dict[Phase, Broadcast] = {}

    def ask(
        self, phase: int, broadcast: Broadcast, clients: Sequence[int], own: Any = None
    ) -> Iterator[Report]:
        self.told[Phase(phase)] = broadcast
        for index in clients:
            public = {**broadcast.public, **(own or {}).get(index, {})}
            report = self.answer(index, phase, replace(broadcast, public=public))
            self.seen[Phase(phase)][index] = report.payload
            yield report

    def answer(self, index: int, phase: int, broadcast: Broadcast) -> Report:
        own = weights_of(index, self.roles.layout.size if phase == Phase.MASKED_INPUT else 0)
        sender = sender_of(
            1, index, round=broadcast.round, phase=phase, folder=self.folder / str(index)
        )
        return self.roles.encode(own, broadcast, sender)

    def reports(self, state: State, ask: Ask | None = None) -> list[Any]:
        dialogue = self.roles.server.dialogue
        assert dialogue is not None
        draw = draws_of_seed(self.roles.config.seed)(state.round)
        broadcast = self.roles.server.publish(state)
        return list(dialogue(self.ask if ask is None else ask, broadcast, CLIENTS, draw))


@dataclass
class Outcome:
    """A round: all messages, the next state, the system's own metrics, and the inputs of the
    sum."""

    wire: Wire
    after: State
    metrics: dict[str, float]
    reports: list[Any]


def roles_of(made: RunConfig) -> Roles:
    return Roles(made, problem_of(made, None))


def one_round(folder: Path, **settings: Any) -> Outcome:
    roles = roles_of(config(**settings))
    wire = Wire(roles, folder)
    reports = wire.reports(roles.first)
    return Outcome(wire, *roles.aggregate(reports), reports)


def expected(wire: Wire, clients: Any) -> np.ndarray[Any, Any]:
    return np.mean([weights_of(c, wire.roles.layout.size) for c in clients], axis=0)


@pytest.mark.parametrize("seed", range(5))  # with 5, too few stay for a sum
def test_the_mean_is_that_of_the_clients_who_sent_their_input(seed: int, tmp_path: Path) -> None:
    found = one_round(tmp_path, dropout=0.25, seed=seed)
    stayed = found.wire.seen[Phase.MASKED_INPUT].keys()
    np.testing.assert_allclose(found.after.weights, expected(found.wire, stayed), atol=8 / 2**23)
    assert found.metrics == {"clients_in_sum": len(stayed)}
    assert len(found.wire.seen[Phase.UNMASK]) >= 5


@pytest.fixture(scope="module")
def without_a_sum(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Phase], Outcome]:
    """Return the result of a round that loses too many clients in a phase."""
    roles = roles_of(config(dropout=0.28))

    @cache
    def found(last: Phase) -> Outcome:
        for number in range(1, 200):
            wire = Wire(roles, tmp_path_factory.mktemp("clients"))
            start = replace(roles.first, round=number)
            reports = wire.reports(start)
            here = [len(wire.seen[phase]) for phase in Phase]
            if here[last] < 5 <= here[last - 1]:
                assert [(report.payload, report.weight) for report in reports] == [(b"", 0.0)]
                return Outcome(wire, *roles.aggregate(reports, start), reports)
        raise AssertionError("no round loses the sum there")

    return found


@pytest.mark.slow
@pytest.mark.parametrize("last", [Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASK])
def test_a_round_with_too_few_clients_left_has_no_sum_and_moves_nothing(
    last: Phase, without_a_sum: Callable[[Phase], Outcome]
) -> None:
    found = without_a_sum(last)
    assert found.metrics == {"clients_in_sum": 0}
    np.testing.assert_array_equal(found.after.weights, found.wire.roles.first.weights)
    for phase in Phase:  # nobody was asked for more
        assert phase <= last or not found.wire.seen[phase]


@pytest.mark.slow
def test_a_round_without_a_sum_leaves_nothing_that_is_sent_again(
    without_a_sum: Callable[[Phase], Outcome],
) -> None:
    found = without_a_sum(Phase.UNMASK)
    first = found.wire.seen[Phase.ADVERTISE]
    again = Wire(found.wire.roles, found.wire.folder)
    again.reports(found.after)
    for client, keys in again.seen[Phase.ADVERTISE].items():
        for start in (13, 45):  # after kind, round and number: two keys of 32 bytes
            assert keys[start : start + 32] not in first[client]


class CuriousServer(Algorithm):
    """The server asks a client that does not take part, so was not charged."""

    def server(self) -> ServerRole:
        def dialogue(
            ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw
        ) -> Incoming:
            (other, *_) = set(range(self.config.num_clients)) - set(clients)
            return ask(0, broadcast, [*clients, other])

        return replace(super().server(), dialogue=dialogue)


class Curious(secure_aggregation):
    def algorithm(self, problem: Problem) -> Algorithm:
        return CuriousServer(self, self.composition, problem)


def test_only_clients_that_were_charged_can_be_asked() -> None:
    made = Curious(**config(clients_per_round=3).model_dump())
    with pytest.raises(RunError, match=r"round 1: a client that does not take part was asked"):
        simulate(made)
