"""Who does the work of simulated clients: this process, or a pool of processes.

A client's answer depends only on its keys, its examples, its ledger, the files that it keeps and
the request. Answers come back in the order of the clients, and every process trains with one torch
thread. So neither the number of processes nor their kind changes any bit of the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.core.locks import scratch
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.roles import Score
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import (
    Broadcast,
    RoundRequest,
    pack_request,
    read_reply_to,
    read_reports_to,
)
from fedldp.simulation.population import Population
from fedldp.training.tensors import one_thread

Packed = Sequence[bytes] | NDArray[np.uint8]
"""Packed answers of several clients, as rows of one array if only the payloads differ."""

Answers = Callable[[RoundRequest, Sequence[int]], Iterator[tuple[Sequence[int], Packed]]]
"""Sends a request to clients, and yields their answers, several clients at a time."""

Kept = Mapping[int, dict[str, bytes]]
"""The files that clients keep, as ``FolderStore.files`` returns them."""

Work = Callable[[Population, Any, Sequence[int], MemoryLedger], Iterable[Any]]
"""What is done with a population for a batch: ``answer`` or ``score``."""

LARGEST = 16
"""The largest number of groups in a batch."""


class InProcess:
    """The transport to clients that answer a function call.

    Args:
        answers: see ``Answers``.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield every client's answer; see ``Transport``."""
        for some, packed in self._answers(request, clients):
            if len(packed) != len(some):
                raise RunError(f"{len(packed)} answers from {len(some)} clients")
            if isinstance(packed, np.ndarray):
                yield some, read_reports_to(request, packed)
                continue
            for client, answer in zip(some, packed, strict=True):
                yield client, read_reply_to(request, answer)


def answers_of(
    runtime: ClientRuntime, request: RoundRequest, clients: Sequence[int]
) -> Iterator[tuple[Sequence[int], Packed]]:
    """Yield the answers of a runtime's clients in order, several at a time."""
    if not request.own:
        yield from runtime.answers(pack_request(request), clients)
        return
    for client in clients:
        yield from runtime.answers(pack_request(request.to(client)), [client])


def answer(
    population: Population, request: RoundRequest, clients: Sequence[int], ledger: MemoryLedger
) -> Iterator[tuple[Sequence[int], Packed]]:
    """Yield the answers of ``clients``, whose ledgers are charged."""
    return answers_of(population.runtime(ledger), request, clients)


def score(
    population: Population, broadcast: Broadcast, pieces: Sequence[int], _: object
) -> Iterator[Score]:
    """Yield the scores of the broadcast's weights on some test pieces."""
    return (population.score(broadcast, piece) for piece in pieces)


class Pool(Protocol):
    """Processes that do tasks: ``Workers`` of this machine, or a Ray ``Cluster``."""

    @property
    def size(self) -> int:
        """How many tasks are done at once."""

    def submit(self, *task: object) -> Any:
        """Begin a task."""

    def result(self, begun: Any) -> Any:
        """Return the result of a task, or raise its error."""

    def close(self) -> None:
        """End all processes."""


class Executor:
    """Obtains the clients' answers, and measures models.

    Args:
        population: the clients.
        ledger: the clients' ledgers.
        pool: processes that were made with ``doing`` and the population's arguments; None does the
            work in this process.
    """

    def __init__(
        self, population: Population, ledger: MemoryLedger, pool: Pool | None = None
    ) -> None:
        self._population = population
        self._ledger = ledger
        self._pool = pool

    def answers(
        self, request: RoundRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Return the answers of ``clients`` in order, several at a time; charge their ledgers."""
        return chain.from_iterable(self._map(answer, request, clients, self._population.group))

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Return the scores of the broadcast's weights on all test pieces."""
        pieces = range(self._population.num_tests)
        return chain.from_iterable(self._map(score, broadcast, pieces, 1))

    def _map(
        self, work: Work, request: Any, items: Sequence[int], group: int
    ) -> Iterator[Iterable[Any]]:
        """Yield the results of ``work`` on batches of ``items``, in order.

        Args:
            work: what is done; ``answer`` charges ledgers.
            request: what it is done for.
            items: the clients, or the test pieces.
            group: a batch consists of whole groups of this size, so that work done in groups does
                not depend on the number of processes.
        """
        population, pool = self._population, self._pool
        if pool is None:
            with one_thread():
                yield work(population, request, items, self._ledger)
            return
        size = group * max(1, min(LARGEST, len(items) // (pool.size * 4 * group)))
        batches = (items[start : start + size] for start in range(0, len(items), size))
        begun = (self._begun(pool, work, request, batch) for batch in batches)
        waiting = deque(islice(begun, 2 * pool.size))
        while waiting:
            found, ledger, kept = pool.result(waiting.popleft())
            waiting.extend(islice(begun, 1))
            self._ledger.absorb(ledger)
            _keep(population, kept)
            yield found

    def _begun(self, pool: Pool, work: Work, request: Any, batch: Sequence[int]) -> Any:
        asked = request.only(batch) if isinstance(request, RoundRequest) else request
        ledger = self._ledger.extract(batch if work is answer else ())
        return pool.submit(work, asked, batch, ledger, _kept(self._population, batch))


def doing(given: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what a process does with a batch of the population that it makes from ``given``.

    A task depends on nothing but its arguments and changes nothing elsewhere: it returns results,
    ledgers, and the new files that clients keep. So it can be repeated if a process dies.
    """
    population = Population(**given)

    def work(
        work: Work, request: Any, items: Sequence[int], ledger: MemoryLedger, kept: Kept
    ) -> tuple[list[Any], MemoryLedger, Kept]:
        with scratch() as folder:
            population.folder = folder / "clients"
            _keep(population, kept)
            ledger = ledger.extract(items)  # a copy, because arrays from Ray are read-only
            results = list(work(population, request, items, ledger))
            now = _kept(population, items)
        return results, ledger, {item: now[item] for item in now if now[item] != kept.get(item)}

    return work


def _kept(population: Population, items: Sequence[int]) -> Kept:
    """Return the files that clients keep, by client."""
    if not Path(population.folder).is_dir():
        return {}
    found = {item: population.store(item).files() for item in items}
    return {item: files for item, files in found.items() if files}


def _keep(population: Population, kept: Kept) -> None:
    for item, files in kept.items():
        population.store(item).add(files)
