"""All simulated clients: each a client runtime, with keys from the seed and a ledger in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.bounding import check_releasable
from fedldp.client.keys import SimulationKeys
from fedldp.client.policy import Policy
from fedldp.client.runtime import ClientRuntime, Pending
from fedldp.client.store import FolderStore
from fedldp.data import Dataset, Examples
from fedldp.errors import FedldpError
from fedldp.parts.batched_sgd import train_together
from fedldp.parts.local_sgd import PIECE, LocalSgd, evaluate, load_weights
from fedldp.parts.sides import Client, ClientSide, ClientStep, Encoder, Score, Tester
from fedldp.randomness import Stream
from fedldp.systems.base import Problem, SystemConfig
from fedldp.wire import Broadcast, Layout, Sensitive, read_question


@dataclass(frozen=True, eq=False)
class Population:
    """Simulated clients, and the test set that the simulation measures the model on.

    Attributes:
        config: the run's configuration.
        problem: the shape of the data.
        dataset: the data.
        members: for each client the indices of its training examples.
        device: where models are trained and evaluated.
        folder: where clients keep what they need in later rounds.
        lasting: whether that folder outlives the run.
        run: the run's name.
    """

    config: SystemConfig
    problem: Problem
    dataset: Dataset
    members: Sequence[NDArray[np.int64]]
    device: torch.device
    folder: Path
    lasting: bool
    run: str
    layout: Layout = field(init=False)
    _policy: Policy = field(init=False)
    _step: ClientStep[Any] = field(init=False)
    _tester: Tester | None = field(init=False)
    _model: torch.nn.Module = field(init=False)
    _encoders: dict[int, Encoder[Any]] = field(init=False)
    _most_examples: int | None = field(init=False)

    def __post_init__(self) -> None:
        config, problem = self.config, self.problem
        layout = config.layout(problem)
        policy = Policy(
            run=self.run, rounds=config.rounds, exchanges=config.exchanges, layout=layout
        )
        nothing = Stream(bytes(32), simulated=True)  # whatever weights: they are replaced
        found = {
            "layout": layout,
            "_policy": policy,
            "_step": config.client_step(problem, self.device),
            "_tester": config.tester(problem, self.device),
            "_model": config.module(problem, nothing).to(self.device),
            "_encoders": encoders(config, problem),
            "_most_examples": config.most_examples(problem),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def num_tests(self) -> int:
        """Pieces of the test: of the test set, or one for each client where clients test."""
        if self._tester is not None:
            return self.config.num_clients
        return -(-len(self.dataset.test) // PIECE)

    def runtime(self, index: int, ledger: MemoryLedger) -> ClientRuntime:
        """Return the runtime of client ``index``."""
        return ClientRuntime(
            index=index,
            examples=self._examples(index),
            side=ClientSide(
                step=self._checked,
                encoder=self._encoders[index],
                exchanges=self.config.exchanges,
                turns=self.config.turns_of(index),
                most_examples=self._most_examples,
            ),
            policy=self._policy,
            keys=SimulationKeys(self.config.seed, index),
            store=self._store(index),
            ledger=ledger.of(index),
        )

    def answer(self, message: bytes, index: int, ledger: MemoryLedger) -> bytes:
        """Return what client ``index`` answers; an error says in which round, and whose it was."""
        with _naming(message, index):
            return self.runtime(index, ledger).answer(message)

    def answers_together(
        self, message: bytes, indices: Sequence[int], ledger: MemoryLedger
    ) -> list[bytes]:
        """Return the answers of clients that train at once, where their client step can."""
        if not isinstance(self._step, LocalSgd):
            return [self.answer(message, index, ledger) for index in indices]
        runtimes = [self.runtime(index, ledger) for index in indices]
        prepared = [runtime.prepare(message) for runtime in runtimes]
        pending = [one for one in prepared if isinstance(one, Pending)]
        updates: Iterator[Sensitive[Any]] = iter(())
        if pending:
            clients = [one.client for one in pending]
            updates = iter(train_together(self._step, pending[0].broadcast, clients))
        answers = []
        for runtime, one in zip(runtimes, prepared, strict=True):
            with _naming(message, runtime.index):
                if isinstance(one, Pending):
                    one = runtime.finish(one, _check(next(updates)))
                answers.append(one)
        return answers

    def score(self, broadcast: Broadcast, piece: int) -> Score:
        """Return the score on one piece of the test."""
        test = self.dataset.test
        if self._tester is not None:
            return self._tester(broadcast, self._client(broadcast.round, piece), test)
        load_weights(self._model, self.layout, broadcast.weights)
        part = slice(piece * PIECE, (piece + 1) * PIECE)
        return evaluate(self._model, Examples(test.features[part], test.labels[part]), self.device)

    def _checked(self, broadcast: Broadcast, client: Client) -> Sensitive[Any]:
        return _check(self._step(broadcast, client))

    def _client(self, round: int, index: int) -> Client:
        keys = SimulationKeys(self.config.seed, index)
        return Client(
            index=index,
            examples=self._examples(index),
            fresh=partial(keys.fresh, round, 0),
            kept=keys.kept,
            store=self._store(index),
        )

    def _examples(self, index: int) -> Examples:
        train, own = self.dataset.train, self.members[index]
        return Examples(train.features[own], train.labels[own])

    def _store(self, index: int) -> FolderStore:
        place = self.folder / f"client-{index}"
        return FolderStore(place, self.run, lasting=self.lasting)


def encoders(config: SystemConfig, problem: Problem) -> dict[int, Encoder[Any]]:
    """Return every client's encoder; those that are alike are one object."""
    found: dict[int, Encoder[Any]] = {}
    for group in config.alike():
        found.update(dict.fromkeys(group, config.client_encoder(problem, group[0])))
    return found


def _check(update: Sensitive[Any]) -> Sensitive[Any]:
    """Stop a simulation where training gave NaN or infinity.

    At a site that is a secret, and the encoder sends something public in its place; here the user
    is to see it.

    Raises:
        PrivacyError: it did.
    """
    value = update.open()
    weights = getattr(value, "weights", value)
    if weights.size:
        check_releasable(weights)
    return update


@contextmanager
def _naming(message: bytes, client: int) -> Iterator[None]:
    """Let an error say in which round and for which client it arose."""
    try:
        yield
    except FedldpError as error:
        round = read_question(message).broadcast.round
        raise type(error)(f"round {round}, client {client}: {error}") from error
