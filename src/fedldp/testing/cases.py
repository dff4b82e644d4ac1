"""Client runtimes of any system, in this process or in one that is sent only a client's terms.

A site gets as text what a client of a real run is told, and makes its runtime from it. The requests
come from a conversation of the system's own server with its clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.accounting.accountants import real_arithmetic_only
from fedldp.accounting.events import (
    Event,
    InClear,
    PerRecord,
)
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.randomness import Stream
from fedldp.data import Dataset, Examples, Shares, load_dataset
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Ledgers
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.keys import Keys, SimulationKeys, draws_of_seed
from fedldp.protocol.roles import ClientRole
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, pack_request, read_reply_to
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import problem_of
from fedldp.simulation.population import Population

RUN = "run"
SEED = 987654321
ROUNDS = 3
CPU = torch.device("cpu")
COUNT = 12
"""The number of examples of one client: small, so that training is quick."""


@dataclass(frozen=True)
class FixedKeys:
    """Keys whose streams depend only on their purpose, not on what was drawn before.

    Attributes:
        index: the client's index.
        simulated: whether mechanisms are to treat the streams as a simulation's.
    """

    index: int
    simulated: bool

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        return self.kept(f"{round}, {phase}, {purpose}")

    def kept(self, purpose: str) -> Stream:
        key = hashlib.sha256(f"client {self.index}, {purpose}".encode()).digest()
        return Stream(key, simulated=self.simulated)


def runtime_of(
    config: RunConfig,
    problem: Problem,
    role: ClientRole,
    keys: Keys,
    folder: Path,
    ledger: Ledgers,
    index: int,
    examples: Examples,
    failed: Callable[[Exception], None] | None = None,
) -> ClientRuntime:
    """Return a client's runtime over one folder."""
    policy = Policy(
        run=RUN,
        rounds=config.rounds,
        phases=config.composition.channel.phases,
        trains_in=config.composition.channel.trains_in,
        layout=config.layout(problem),
    )
    return ClientRuntime.of_one(
        index=index,
        examples=examples,
        role=role,
        policy=policy,
        keys=keys,
        store=FolderStore(folder / "store", RUN),
        ledgers=ledger,
        failed=failed,
    )


@dataclass(frozen=True)
class Conversation:
    """The requests that one client got in some rounds, and its answers.

    Attributes:
        index: the client's index.
        requests: the requests, packed, in order.
        answers: the answers, packed.
    """

    index: int
    requests: list[bytes]
    answers: list[bytes]


@dataclass(frozen=True)
class Case:
    """One configuration with its data, its server and its clients.

    Attributes:
        config: the server's configuration, with what is drawn before the run.
        problem: the shape of the data.
        examples: the examples of all clients together.
    """

    config: RunConfig
    problem: Problem
    examples: Examples

    @classmethod
    def of(cls, config: RunConfig) -> Case:
        train = load_dataset("digits", standardise=config.standardise).train
        few = train.taken(slice(5 * COUNT))
        problem = problem_of(config, None)
        if (
            config.algorithm(problem).most_examples() is not None
        ):  # every client then has an equal share
            problem = replace(problem, num_examples=COUNT * config.num_clients)
        return cls(config.with_schedule(draws_of_seed(SEED)), problem, few)

    def places(self, client: int) -> NDArray[np.int64]:
        """Return which examples a client has; some clients have the same, which does not matter."""
        return np.arange(COUNT) + client * COUNT % len(self.examples)

    def own(self, client: int) -> Examples:
        places = self.places(client)
        return self.examples.taken(places)

    def role(self, client: int) -> ClientRole:
        return self.config.algorithm(self.problem).client(client, CPU)

    def start(
        self,
        client: int,
        keys: Keys,
        folder: Path,
        *,
        ledger: Ledgers | None = None,
        role: ClientRole | None = None,
        examples: Examples | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> ClientRuntime:
        """Return a client's runtime; its ledger is in memory if none is given."""
        return runtime_of(
            self.config,
            self.problem,
            self.role(client) if role is None else role,
            keys,
            folder,
            MemoryLedger() if ledger is None else ledger,
            client,
            self.own(client) if examples is None else examples,
            failed,
        )

    def talk(
        self,
        keys: Callable[[int], Keys],
        folder: Path,
        change: Callable[[Broadcast], Broadcast] = lambda broadcast: broadcast,
    ) -> Conversation:
        """Let the server talk with clients for two rounds, and return one client's conversation.

        If a round is a dialogue, the client took part in it to the end.

        Args:
            keys: the keys of each client.
            folder: the folder for the clients' stores.
            change: changes each round's broadcast.
        """
        server, draws = self.config.algorithm(self.problem).server(), draws_of_seed(SEED)
        state = server.initial(draws(0))
        runtimes: dict[int, ClientRuntime] = {}
        said: dict[int, Conversation] = {}

        def ask(
            phase: int, broadcast: Broadcast, clients: Iterable[int], own: Any = None
        ) -> Iterator[Report]:
            request = RoundRequest(run=RUN, phase=phase, broadcast=broadcast, own=own or {})
            for client in clients:
                message = pack_request(request.to(client))
                if client not in runtimes:
                    runtimes[client] = self.start(client, keys(client), folder / str(client))
                talk = said.setdefault(client, Conversation(client, [], []))
                talk.requests.append(message)
                talk.answers.append(runtimes[client].answer(message))
                found = read_reply_to(request, talk.answers[-1])
                if isinstance(found, Report):
                    yield found

        for round in (1, 2):
            broadcast = change(server.publish(state))
            if server.dialogue is None:
                list(ask(0, broadcast, [participants(self.config, 1, draws)[-1]]))
            else:
                there = participants(self.config, round, draws)
                list(server.dialogue(ask, broadcast, there, draws(round)))
            state = state.next(state.weights * np.float32(0.75))
        return max(reversed(said.values()), key=lambda talk: len(talk.requests))


def simulation_keys(client: int) -> SimulationKeys:
    """Return the keys of a client of the simulation with the seed ``SEED``."""
    return SimulationKeys(SEED, client)


def events_of(config: RunConfig) -> list[Event]:
    """Return the events that the last client's answers in a round release, by phase."""
    encoder = config.algorithm(problem_of(config, None)).encoder(config.num_clients - 1)
    return [encoder.event(phase) for phase in range(config.composition.channel.phases)]


def in_clear(event: Event) -> set[str]:
    """Return the kinds of what is sent in clear if a client's whole input is replaced."""
    if isinstance(event, PerRecord):
        return in_clear(event.client)
    return {each.kind for each in event.sent} if isinstance(event, InClear) else set()


def deploys(config: RunConfig) -> bool:
    """Return whether a real client can run it: simulated noise in real numbers is not for them."""
    return not any(map(real_arithmetic_only, events_of(config)))


def population_of(case: Case, folder: Path) -> Population:
    """Return all clients of a case, as a simulation holds them."""
    few = Dataset("digits", case.examples, case.examples, case.problem.num_classes)
    return Population(
        config=case.config,
        problem=case.problem,
        dataset=few,
        members=Shares.of([case.places(client) for client in range(case.config.num_clients)]),
        device=CPU,
        folder=folder,
        run=RUN,
    )
