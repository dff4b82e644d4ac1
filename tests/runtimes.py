"""Client runtimes without a model, for tests of the runtime itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedldp.accounting.events import Event
from fedldp.accounting.prices import cost
from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.release import Encoder, Release
from fedldp.core.bounding import Ranges
from fedldp.data import Examples
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Ledgers
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.mechanisms import Mechanism
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.keys import SecretKeys, SimulationKeys
from fedldp.protocol.roles import ClientRole, Sender, Senders, Update
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import (
    Broadcast,
    Layout,
    Refusal,
    Report,
    Reports,
    RoundReply,
    RoundRequest,
    Sensitive,
    pack_request,
    read_reply,
)
from fedldp.testing.toys import MeanStep, ToyBits

RUN = "run"
SECRET = bytes(range(32))
LAYOUT = Layout(("w",), ((40,),))
"""Has enough weights that the same bits do not repeat by chance."""


def sending(mechanism: Mechanism) -> Encoder:
    """Return an encoder for changes of the weights."""
    bound = Unbounded(send="update")
    return Encoder(release=Release(bound=bound, mechanism=mechanism, size=LAYOUT.size))


ENCODER = sending(ToyBits(1.0))
PRICE = cost(ENCODER.event(), "pure")


def examples_of(value: float = 0.1, count: int = 3) -> Examples:
    """Return equal examples with the shape of ``LAYOUT``."""
    features = np.full((count, LAYOUT.size), value, np.float32)
    return Examples(features, np.zeros(count, np.int64))


def budget_for(releases: float) -> Budget:
    """Return a budget for a number of reports of ``ENCODER``."""
    return Budget("pure", releases * PRICE)


@dataclass
class Site:
    """A client's own folder, and the runtimes that it starts over it.

    Attributes:
        folder: holds its ledger and its store.
        real: whether it has keys from a secret and a ledger on disk, or those of a simulation.
        releases: the number of releases that its budget covers.
        examples: its own examples.
        local_update: the local update of its role.
        encoder: the encoder of its role.
        failed: see ``ClientRuntime``.
        rounds: see ``Policy``.
        phases: see ``Policy``.
        most_examples: see ``ClientRole``.
    """

    folder: Path
    real: bool = True
    releases: float = 1000
    examples: Examples = field(default_factory=examples_of)
    local_update: Any = field(default_factory=MeanStep)
    encoder: Any = ENCODER
    failed: Callable[[Exception], None] | None = None
    rounds: int = 5
    phases: int = 1
    most_examples: int | None = None

    def __post_init__(self) -> None:
        self.memory = MemoryLedger(budget_for(self.releases))

    def ledger(self) -> Ledgers:
        if self.real:
            return SqliteLedger(self.folder / "ledger", budget_for(self.releases))
        return self.memory

    def start(self) -> ClientRuntime:
        """Return a new runtime, as after a restart: only what is on disk is left."""
        given = {} if self.failed is None else {"failed": self.failed}
        return ClientRuntime.of_one(
            index=0,
            examples=self.examples,
            role=ClientRole(
                local_update=self.local_update,
                encoder=self.encoder,
                phases=self.phases,
                most_examples=self.most_examples,
            ),
            policy=Policy(run=RUN, rounds=self.rounds, phases=self.phases, layout=LAYOUT),
            keys=SecretKeys(SECRET, RUN) if self.real else SimulationKeys(0, 0),
            store=FolderStore(self.folder / "store", RUN),
            ledgers=self.ledger(),
            **given,
        )

    def ask(self, message: bytes) -> bytes:
        return self.start().answer(message)

    def entries(self) -> list[tuple[int, int, Event, str]]:
        """Return the round, phase, event and SHA-256 of everything that was released."""
        ledger = self.ledger()
        assert isinstance(ledger, SqliteLedger)
        return [(e.round, e.phase, e.event, e.payload_sha256) for e in ledger.releases()]


def packed_request(
    round: int = 1,
    phase: int = 0,
    *,
    run: str = RUN,
    weights: Any = 0.0,
    ranges: Ranges | None = None,
    public: Any = None,
) -> bytes:
    """Return a packed request; ``weights`` may be one number, for all weights."""
    vector = np.full(LAYOUT.size, weights, np.float32) if np.isscalar(weights) else weights
    broadcast = Broadcast(round=round, weights=vector, ranges=ranges, public=public or {})
    return pack_request(RoundRequest(run=run, phase=phase, broadcast=broadcast))


def reply_of(message: bytes) -> RoundReply:
    """Return a packed reply, read."""
    return read_reply(message)[2]


def refusal_of(message: bytes) -> Refusal:
    """Return a packed refusal, read."""
    found = reply_of(message)
    assert isinstance(found, Refusal), found
    return found


class EachAlone:
    """An encoder written for one client at a time."""

    def one(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        raise NotImplementedError

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        return each_alone(self.one, update, broadcast, senders)


@dataclass
class Watched(EachAlone):
    """The usual encoder, which first shows what it is given."""

    look: Callable[[Sensitive[Update], Broadcast, Sender], object]

    def event(self, phase: int = 0, round: int = 1) -> Event:
        return ENCODER.event(phase)

    def one(self, update: Sensitive[Any], broadcast: Broadcast, sender: Sender) -> Report:
        self.look(update, broadcast, sender)
        return alone(ENCODER, update, broadcast, sender)


@dataclass
class Stating(EachAlone):
    """An encoder that states a given event, and sends the same report for every input."""

    states: Event
    send: Callable[[Broadcast], Report] | None = None

    def event(self, phase: int = 0, round: int = 1) -> Event:
        return self.states

    def one(self, update: Sensitive[Any], broadcast: Broadcast, sender: Sender) -> Report:
        if self.send is not None:
            return self.send(broadcast)
        return Report(round=broadcast.round, size=3, payload=b"bytes", chunk=3)
