"""Client runtimes of any system, in this process or in one that is sent only a client's terms.

A site gets as text what a client of a real run is told, and makes its runtime from it. The requests
come from a conversation of the system's own server with its clients.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data import Dataset, Examples, Shares, load_dataset
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Ledgers
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.keys import Keys, SecretKeys, SimulationKeys, draws_of_seed
from fedldp.protocol.roles import ClientRole
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, pack_request, read_reply_to
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import problem_of
from fedldp.simulation.population import Population
from fedldp.simulation.settings import from_mapping, to_toml
from fedldp.training.tensors import one_thread

RUN = "run"
SEED = 987654321
ROUNDS = 3
CPU = torch.device("cpu")
PLENTY = Budget("zcdp", 1e15)
"""A budget that covers every event with a finite price."""

COUNT = 12
"""The number of examples of one client: small, so that training is quick."""


class Repeatable:
    """Entropy for tests: instances with the same label give the same bytes."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._asked = 0

    def __call__(self, count: int) -> bytes:
        self._asked += 1
        return hashlib.shake_256(f"{self._label}/{self._asked}".encode()).digest(count)


class TalkingKeys(SecretKeys):
    """The keys of a real client, except that every instance has the same secrets for a sum.

    Tests repeat requests that contain the other clients' answers to these secrets.
    """

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        if purpose == "secure sum":
            return Stream.derived(self.secret, purpose, str(round))
        return super().fresh(round, phase, purpose)


def secret_keys(index: int) -> SecretKeys:
    """Return the keys of a real client; a second instance gives the same fresh bytes."""
    secret = hashlib.sha256(f"client {index}".encode()).digest()
    return TalkingKeys(secret, RUN, Repeatable(f"client {index}"))


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


@dataclass(frozen=True, kw_only=True)
class ClientTerms:
    """All that a client's process gets: what it is told about a run, and its own examples.

    Attributes:
        config: the client's configuration, in TOML.
        problem: the shape of the data.
        index: the client's number.
        features: the features of its examples.
        labels: the labels of its examples.
        seed: the seed of a simulation, whose keys the client then has; None for its own keys.
    """

    config: str
    problem: Problem
    index: int
    features: Any = field(repr=False)
    labels: Any = field(repr=False)
    seed: int | None = None

    @classmethod
    def of(cls, config: RunConfig, problem: Problem, index: int, examples: Examples) -> ClientTerms:
        """Return what client ``index`` is told about a whole configuration."""
        return cls(
            config=to_toml(config.for_client(index)),
            problem=problem,
            index=index,
            features=examples.features,
            labels=examples.labels,
        )

    def runtime(self, folder: Path, ledger: Ledgers) -> ClientRuntime:
        """Return the runtime of a client that knows nothing else."""
        config = from_mapping(tomllib.loads(self.config))
        role = config.algorithm(self.problem).client(self.index, CPU)
        keys: Keys = secret_keys(self.index)
        if self.seed is not None:
            keys = SimulationKeys(self.seed, self.index)
        examples = Examples(self.features, self.labels)
        return runtime_of(config, self.problem, role, keys, folder, ledger, self.index, examples)


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


def asking(broadcast: Broadcast, round: int) -> bytes:
    """Return a packed request that asks in a round for the answer to a broadcast."""
    told = replace(broadcast, round=round)
    return pack_request(RoundRequest(run=RUN, phase=0, broadcast=told))


def at_site(told: ClientTerms, folder: Path, requests: Sequence[bytes], *, on_disk: bool) -> Any:
    """Answer requests in a separate process; if it refuses to start, return the refusal."""
    ledger: Ledgers = SqliteLedger(folder / "ledger", PLENTY) if on_disk else MemoryLedger()
    try:
        runtime = told.runtime(folder, ledger)
    except PrivacyError as error:
        return str(error)
    with one_thread():
        return [runtime.answer(request) for request in requests]


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

    @classmethod
    def of_recipe(cls, name: str, **changes: Any) -> Case:
        """Return a recipe of the digits with one epoch in each of ``ROUNDS`` rounds."""
        config = find_recipe(name).config
        epochs = [each for each in type(config).model_fields if each.endswith("epochs")]
        few = {"rounds": ROUNDS, "seed": SEED, **dict.fromkeys(epochs, 1)}
        return cls.of(config.changed(**{**few, **changes}))

    def places(self, client: int) -> NDArray[np.int64]:
        """Return which examples a client has; some clients have the same, which does not matter."""
        return np.arange(COUNT) + client * COUNT % len(self.examples)

    def own(self, client: int) -> Examples:
        places = self.places(client)
        return self.examples.taken(places)

    @cached_property
    def first_broadcast(self) -> Broadcast:
        """The broadcast of the first round."""
        server = self.config.algorithm(self.problem).server()
        return server.publish(server.initial(draws_of_seed(SEED)(0)))

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


def answered(population: Population, message: bytes, index: int, ledger: MemoryLedger) -> bytes:
    """Return the answer of one client of a simulation; it trains on its own, not in a batch."""
    runtime = replace(population.runtime(ledger), group=1)
    ((_, (answer,)),) = runtime.answers(message, [index])
    return bytes(answer)
