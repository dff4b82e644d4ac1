"""Clients and roles made by hand, for tests of a single part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.data import Examples
from fedldp.protocol.client_store import FolderStore, MemoryStore
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import (
    Batch,
    Client,
    Encoder,
    LocalUpdate,
    Sender,
    Senders,
    ServerRole,
    State,
    Update,
)
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Broadcast, Incoming, Layout, Report, Sensitive
from fedldp.simulation.plan import plan
from fedldp.testing.data import PROBLEM


def _store(folder: Path | None) -> FolderStore | MemoryStore:
    """Return a store in a folder, or one in memory if there is no folder."""
    return MemoryStore() if folder is None else FolderStore(folder, "run")


def client_of(
    examples: Examples,
    index: int = 0,
    *,
    seed: int = 0,
    round: int = 1,
    folder: Path | None = None,
) -> Client:
    """Return client ``index`` as a simulation with this seed would make it in ``round``."""
    keys = SimulationKeys(seed, index)
    return Client(
        index=index,
        examples=examples,
        fresh=partial(keys.fresh, round, 0),
        kept=keys.kept,
        store=_store(folder),
    )


def trained(local_update: LocalUpdate, broadcast: Broadcast, client: Client) -> Any:
    """Return one client's weights after its local update, shape (d,)."""
    return local_update(broadcast, Batch.of_one(client)).open().rows[0]


def trained_apart(local_update: LocalUpdate, broadcast: Broadcast, clients: Batch) -> Update:
    """Return the updates of several clients, each trained alone."""
    found = [local_update(broadcast, Batch.of_one(client)).open() for client in clients]
    rows = np.concatenate([each.rows for each in found])
    aux = {n: np.concatenate([each.aux[n] for each in found]) for n in found[0].aux}
    return Update(rows=rows, aux=aux)


def clients_of(
    examples: Examples,
    sizes: Sequence[int],
    *,
    seed: int = 0,
    round: int = 1,
    folder: Path | None = None,
) -> Batch:
    """Return clients 0, 1, ... as a batch; each has the given number of consecutive examples."""
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])

    def alone(place: int) -> Client:
        own = examples.taken(rows[place])
        apart = folder and folder / str(place)
        return client_of(own, place, seed=seed, round=round, folder=apart)

    keys = [SimulationKeys(seed, index) for index in range(len(sizes))]
    return Batch(
        indices=range(len(sizes)),
        examples=examples,
        rows=rows,
        fresh=lambda purpose: [own.fresh(round, 0, purpose) for own in keys],
        kept=lambda purpose: [own.kept(purpose) for own in keys],
        alone=alone,
    )


def sender_of(
    num_examples: int = 0,
    index: int = 0,
    *,
    seed: int = 0,
    round: int = 1,
    phase: int = 0,
    folder: Path | None = None,
) -> Sender:
    """Return the same client as its encoder sees it."""
    keys = SimulationKeys(seed, index)
    return Sender(
        index=index,
        num_examples=Sensitive(num_examples),
        fresh=partial(keys.fresh, round, phase),
        kept=keys.kept,
        store=_store(folder),
        phase=phase,
    )


def senders_of(num_examples: Sequence[int], *, seed: int = 0, round: int = 1) -> Senders:
    """Return clients 0, 1, ... as their encoder sees them."""
    keys = [SimulationKeys(seed, index) for index in range(len(num_examples))]
    return Senders(
        indices=range(len(num_examples)),
        num_examples=Sensitive(np.asarray(num_examples, np.int64)),
        fresh=lambda purpose: [own.fresh(round, 0, purpose) for own in keys],
        kept=lambda purpose: [own.kept(purpose) for own in keys],
        store=lambda place: MemoryStore(),
    )


@dataclass(frozen=True)
class Roles:
    """The client role and the server role of a system.

    Attributes:
        config: the configuration.
        problem: the shape of the data.
    """

    config: RunConfig
    problem: Problem = PROBLEM

    @cached_property
    def layout(self) -> Layout:
        return self.config.layout(self.problem)

    @cached_property
    def local_update(self) -> LocalUpdate:
        return self.config.algorithm(self.problem).local_update(torch.device("cpu"))

    @cached_property
    def server(self) -> ServerRole:
        return self.config.algorithm(self.problem).server()

    @cached_property
    def first(self) -> State:
        """The server's state before the first round."""
        return self.server.initial(draws_of_seed(self.config.seed)(0))

    @cached_property
    def broadcast(self) -> Broadcast:
        """The first broadcast."""
        return self.server.publish(self.first)

    def encoder(self, client: int = 0) -> Encoder:
        return self.config.algorithm(self.problem).encoder(client)

    def encode(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        """Return the report that the sender's encoder makes from an update."""
        return alone(self.encoder(sender.index), Sensitive(update), broadcast, sender)

    def report(self, broadcast: Broadcast, client: Client) -> Report:
        """Return the report of a client, which trains and then encodes."""
        sender = Sender(
            index=client.index,
            num_examples=Sensitive(len(client.examples)),
            fresh=client.fresh,
            kept=client.kept,
            store=client.store,
        )
        update = self.local_update(broadcast, Batch.of_one(client))
        return alone(self.encoder(client.index), update, broadcast, sender)

    def aggregate(
        self, reports: Incoming, state: State | None = None
    ) -> tuple[State, dict[str, float]]:
        """Return the next state and the system's own metrics."""
        state = self.first if state is None else state
        draw = draws_of_seed(self.config.seed)(state.round)
        following, metrics = self.server.aggregate(state, reports, draw)
        return following, dict(metrics)


def lines(config: RunConfig, unit: str, problem: Problem = PROBLEM) -> list[Guarantee]:
    """Return the lines of a configuration's statement for a unit."""
    found = plan(config, problem).privacy.guarantees
    return [line for line in found if line.unit == unit]
