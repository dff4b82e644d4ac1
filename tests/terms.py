"""Clients of a run that are told only what a real one is told, and keep the same secrets."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Ledgers
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import Keys, SecretKeys, SimulationKeys, draws_of_seed
from fedldp.protocol.wire import Broadcast, RoundRequest, pack_request
from fedldp.simulation.population import Population
from fedldp.simulation.settings import from_mapping, to_toml
from fedldp.testing.cases import CPU, ROUNDS, RUN, SEED, Case, runtime_of
from fedldp.training.tensors import one_thread

PLENTY = Budget("zcdp", 1e15)
"""A budget that covers every event with a finite price."""


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


def of_recipe(name: str, **changes: Any) -> Case:
    """Return a recipe of the digits with one epoch in each of ``ROUNDS`` rounds."""
    config = find_recipe(name).config
    epochs = [each for each in type(config).model_fields if each.endswith("epochs")]
    few = {"rounds": ROUNDS, "seed": SEED, **dict.fromkeys(epochs, 1)}
    return Case.of(config.changed(**{**few, **changes}))


def answered(population: Population, message: bytes, index: int, ledger: MemoryLedger) -> bytes:
    """Return the answer of one client of a simulation; it trains on its own, not in a batch."""
    runtime = replace(population.runtime(ledger), group=1)
    ((_, (answer,)),) = runtime.answers(message, [index])
    return bytes(answer)


def with_another(examples: Examples, place: int) -> Examples:
    """Return the neighbour whose example at ``place``, with its label, is another one."""
    features, labels = examples.features.copy(), examples.labels.copy()
    features[place] = -0.5 * features[place][:, ::-1]
    labels[place] = (labels[place] + 1) % 10
    return Examples(features, labels)


def first_broadcast(case: Case) -> Broadcast:
    """Return the broadcast of a case's first round."""
    server = case.config.algorithm(case.problem).server()
    return server.publish(server.initial(draws_of_seed(SEED)(0)))
