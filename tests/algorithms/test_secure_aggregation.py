"""Secure aggregation as a system: it gives the mean of the remaining clients, and shows nothing
else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from terms import secret_keys

import fedldp
from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.secure_aggregation import secure_aggregation
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import Shown
from fedldp.core.errors import RunError
from fedldp.data import Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Ask, Draw, ServerRole
from fedldp.protocol.wire import (
    Broadcast,
    Incoming,
    Refusal,
    Report,
    RoundRequest,
    pack_request,
    read_reply_to,
)
from fedldp.secure_sum.client import Phase
from fedldp.secure_sum.messages import KEYS_BYTES, SEALED_BYTES, SumKind, pack, unpack
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import problem_of
from fedldp.testing.cases import CPU, RUN, runtime_of
from fedldp.testing.clients import Roles, sender_of

CLIENTS = range(7)


def config(**settings: Any) -> RunConfig:
    made = fedldp.recipe(
        "secure-aggregation-digits", **{"num_clients": len(CLIENTS), "dropout": 0.0, **settings}
    )
    assert isinstance(made, secure_aggregation)
    return made


def roles_of(made: RunConfig) -> Roles:
    return Roles(made, problem_of(made, None))


def test_a_round_without_a_sum_moves_nothing() -> None:
    roles = roles_of(config())
    size = roles.layout.size
    nothing = Report(round=1, size=size, payload=b"", chunk=size, weight=0.0)
    after, metrics = roles.aggregate([nothing])
    assert metrics == {"clients_in_sum": 0}
    np.testing.assert_array_equal(after.weights, roles.first.weights)


class CuriousServer(Algorithm):
    """The server asks a client that does not take part, so was not charged."""

    def server(self, shown: Shown | None = None) -> ServerRole:
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


# What a client remembers, created anew for every request: it knows only what is on disk


N = 4
NOBODYS = Examples(np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64))
Told = dict[Phase, Broadcast]


@pytest.fixture(scope="module")
def roles() -> Roles:
    return roles_of(config(num_clients=N))


def rows(told: Broadcast, name: str, kind: SumKind, width: int) -> dict[int, bytes]:
    return unpack(kind, told.round, told.public[name].tobytes(), width)


def with_rows(told: Broadcast, name: str, kind: SumKind, found: dict[int, bytes]) -> Broadcast:
    """Return the broadcast with one of the server's messages replaced."""
    message = np.frombuffer(pack(kind, told.round, found), np.uint8)
    return replace(told, public={**told.public, name: message})


def without(told: Broadcast, name: str, client: int) -> Broadcast:
    """Return the broadcast with one client missing from one of the server's messages."""
    kind, width = {
        "sum_keys": (SumKind.ALL_KEYS, KEYS_BYTES),
        "sum_shares": (SumKind.OWN_SHARES, SEALED_BYTES),
        "sum_survivors": (SumKind.ALL_SURVIVORS, 0),
    }[name]
    found = rows(told, name, kind, width)
    del found[client]
    return with_rows(told, name, kind, found)


class Sites:
    """Clients with their own runtimes: keys from a secret, and a ledger in memory."""

    def __init__(self, roles: Roles, folder: Path) -> None:
        self.roles, self.folder = roles, folder
        self.ledger = MemoryLedger()
        self.errors: list[Exception] = []

    def start(self, index: int) -> ClientRuntime:
        config, problem = self.roles.config, self.roles.problem
        return runtime_of(
            config, problem, config.algorithm(problem).client(index, CPU), secret_keys(index),
            self.folder / str(index), self.ledger, index, NOBODYS,
            self.errors.append,
        )  # fmt: skip

    def answer(self, index: int, phase: int, broadcast: Broadcast) -> Report | Refusal:
        request = RoundRequest(run=RUN, phase=phase, broadcast=broadcast)
        found = read_reply_to(request, self.start(index).answer(pack_request(request)))
        assert isinstance(found, Report | Refusal)
        return found

    def talk(self, round: int, last: Phase = Phase.UNMASK) -> Told:
        """Hold a round's dialogue up to the phase ``last``; return what client 0 was told."""
        told: Told = {}

        def ask(
            phase: int, broadcast: Broadcast, clients: Sequence[int], own: Any
        ) -> Iterator[Report]:
            request = RoundRequest(run=RUN, phase=phase, broadcast=broadcast, own=own)
            told[Phase(phase)] = request.to(0).broadcast
            for index in clients if phase <= last else ():
                found = self.answer(index, phase, request.to(index).broadcast)
                assert isinstance(found, Report)
                yield found

        dialogue = self.roles.server.dialogue
        assert dialogue is not None
        start = replace(self.roles.broadcast, round=round)
        list(dialogue(ask, start, range(N), draws_of_seed(0)(round)))
        return told


# One phase


def test_the_clients_own_count_decides_the_phase_and_not_the_server(
    roles: Roles, tmp_path: Path
) -> None:
    """A server that asks for everything at once, or for the last phase first, gets one phase's
    answer."""
    told = Sites(roles, tmp_path).talk(1)
    new, same = Sites(roles, tmp_path / "new"), Sites(roles, tmp_path / "same")
    public = {name: array for each in told.values() for name, array in each.public.items()}
    all_at_once = replace(told[Phase.MASKED_INPUT], public=public)
    everything = new.answer(0, Phase.ADVERTISE, all_at_once)
    nothing = same.answer(0, Phase.ADVERTISE, told[Phase.ADVERTISE])
    assert isinstance(everything, Report)
    assert everything == nothing
    assert everything.payload[0] == SumKind.CLIENT_KEYS


def test_a_client_keeps_a_rounds_secrets_on_its_disk_and_elsewhere_draws_fresh_ones(
    roles: Roles, tmp_path: Path
) -> None:
    """So a disk that is restored from a copy of an earlier round does not repeat masks."""

    def advertised(round: int, folder: str, seed: int = 0) -> bytes:
        sender = sender_of(1, 2, round=round, seed=seed, folder=tmp_path / folder)
        digest = np.zeros(32, np.uint8)
        told = replace(roles.broadcast, round=round, public={"sum_told": digest})
        return roles.encode(None, told, sender).payload

    def keys(round: int, folder: str, seed: int = 0) -> bytes:
        return unpack(SumKind.CLIENT_KEYS, round, advertised(round, folder, seed), KEYS_BYTES)[2]

    first = keys(1, "own")
    assert keys(1, "own", seed=1) == first  # whatever random numbers follow a restart
    assert len({first, keys(1, "restored", seed=1), keys(2, "own")}) == 3


def test_a_client_that_lost_a_rounds_secrets_does_not_continue(
    roles: Roles, tmp_path: Path
) -> None:
    sites = Sites(roles, tmp_path)
    told = sites.talk(1, Phase.ADVERTISE)[Phase.SHARE_KEYS]
    for path in (tmp_path / "0").rglob("sum-secret.safetensors"):
        path.unlink()
    assert isinstance(sites.answer(0, Phase.SHARE_KEYS, told), Refusal)
    assert "its secrets are lost" in str(sites.errors[-1])


# The earlier requests


def test_each_message_is_sent_once_and_the_weights_only_when_clients_train(
    roles: Roles, tmp_path: Path
) -> None:
    told = Sites(roles, tmp_path).talk(1)
    assert [sorted(told[phase].public) for phase in Phase] == [
        ["sum_told"], ["sum_keys"], ["sum_shares"], ["sum_survivors"],
    ]  # fmt: skip
    sizes = [told[phase].weights.size for phase in Phase]
    assert sizes == [0, 0, roles.layout.size, 0]
    boxes = told[Phase.MASKED_INPUT].public["sum_shares"].size
    assert boxes == len(pack(SumKind.OWN_SHARES, 1, dict.fromkeys(range(N), bytes(SEALED_BYTES))))


@pytest.mark.parametrize(
    ("last", "name"),
    [(Phase.ADVERTISE, "sum_told"), (Phase.SHARE_KEYS, "sum_keys"),
     (Phase.MASKED_INPUT, "sum_shares"), (Phase.UNMASK, "sum_survivors")],
)  # fmt: skip
def test_a_different_request_after_a_restart_is_refused(
    last: Phase, name: str, roles: Roles, tmp_path: Path
) -> None:
    """What the client was told is on its disk even if its answer never reached the ledger."""
    sites = Sites(roles, tmp_path)
    told = sites.talk(1, last)[last]
    sites.ledger = MemoryLedger()
    other = (
        replace(told, public={name: told.public[name] ^ np.uint8(1)})
        if name == "sum_told"
        else without(told, name, 3)
    )
    assert isinstance(sites.answer(0, last, other), Refusal)
    assert f"{name[4:]}: another answer was given before" in str(sites.errors[-1])
    assert isinstance(sites.answer(0, last, told), Report)


def test_weights_that_differ_from_the_announced_digest_are_refused(
    roles: Roles, tmp_path: Path
) -> None:
    """So a server that sends clients different weights gets no sum of their answers."""
    told = Sites(roles, tmp_path / "whole").talk(1)[Phase.MASKED_INPUT]
    sites = Sites(roles, tmp_path)
    sites.talk(1, Phase.SHARE_KEYS)
    other = replace(told, weights=told.weights + np.float32(1))
    more = replace(told, public={**told.public, "x": told.weights})
    for lie in (other, more):
        assert isinstance(sites.answer(0, Phase.MASKED_INPUT, lie), Refusal)
        assert "told: another answer was given before" in str(sites.errors[-1])
    assert isinstance(sites.answer(0, Phase.MASKED_INPUT, told), Report)


@pytest.mark.parametrize(
    ("lost", "phase"),
    [("told", Phase.SHARE_KEYS), ("told", Phase.UNMASK), ("keys", Phase.MASKED_INPUT),
     ("keys", Phase.UNMASK), ("shares", Phase.UNMASK)],
)  # fmt: skip
def test_a_client_that_lost_the_servers_messages_drops_out(
    lost: str, phase: Phase, roles: Roles, tmp_path: Path
) -> None:
    sites = Sites(roles, tmp_path)
    told = sites.talk(1, Phase(phase - 1))[phase]
    for path in (tmp_path / "0").rglob(f"sum-{lost}.safetensors"):
        path.unlink()
    again = {**told.public, f"sum_{lost}": told.public.get("sum_survivors", told.weights)}
    for public in (told.public, again):  # it accepts no other instead
        assert isinstance(sites.answer(0, phase, replace(told, public=public)), Refusal)
        assert f"what the client stored ({lost}) is lost" in str(sites.errors[-1])
