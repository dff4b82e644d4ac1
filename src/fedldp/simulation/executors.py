"""Executors of simulated clients: this process, or a pool of processes.

A client's answer depends only on its keys, its examples, its ledger and the request. Answers come
back in the order of the clients, and every process trains with one torch thread. So the number of
workers does not change any bit of the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedldp.data import Dataset, Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.roles import Score
from fedldp.protocol.wire import Broadcast, RoundRequest
from fedldp.simulation.in_process import Packed, SentRequest, answers_of, in_order
from fedldp.simulation.population import Population
from fedldp.simulation.workers import Workers
from fedldp.training.tensors import one_thread

Work = Callable[[Population, Any, Sequence[int], Any], Iterable[Any]]
"""What is done with a population for a batch: ``answer`` or ``score``."""


def answer(
    population: Population, request: SentRequest, clients: Sequence[int], ledger: MemoryLedger
) -> Iterator[tuple[Sequence[int], Packed]]:
    """Yield the answers of ``clients``, whose ledgers are charged."""
    return answers_of(population.runtime(ledger), request, clients)


def score(
    population: Population, broadcast: Broadcast, pieces: Sequence[int], _: object
) -> Iterator[Score]:
    """Yield the scores of the broadcast's weights on some test pieces."""
    return (population.score(broadcast, piece) for piece in pieces)


class Executor(ABC):
    """Obtains the clients' answers, and measures models. Use it as a context manager.

    Args:
        population: the clients.
        ledger: the clients' ledgers.
    """

    def __init__(self, population: Population, ledger: MemoryLedger) -> None:
        self._population = population
        self._ledger = ledger

    def answers(
        self, request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Yield the answers of ``clients`` in order, several at a time; charge their ledgers."""
        for found in self._map(answer, request, clients, self._population.group):
            yield from found

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores of the broadcast's weights on all test pieces."""
        for found in self._map(score, broadcast, range(self._population.num_tests), 1):
            yield from found

    @abstractmethod
    def _map(
        self, work: Work, request: Any, items: Sequence[int], group: int
    ) -> Iterator[Iterable[Any]]:
        """Yield the results of ``work`` on batches of ``items``, in order.

        Args:
            work: what is done; ``answer`` charges ledgers.
            request: what it is done for.
            items: the clients, or the test pieces.
            group: a batch consists of whole groups of this size; see ``in_order``.
        """

    def _taken(self, work: Work, items: Sequence[int]) -> MemoryLedger | None:
        """Return the ledgers that a batch takes along."""
        return self._ledger.extract(items) if work is answer else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 (not every executor holds something)
        """Release what the executor holds."""


class Serial(Executor):
    """Does the work in this process."""

    def _map(
        self, work: Work, request: Any, items: Sequence[int], group: int
    ) -> Iterator[Iterable[Any]]:
        with one_thread():
            yield work(self._population, request, items, self._ledger)


class Pool(Executor):
    """Worker processes, which receive the clients' ledgers with each request and return them.

    Args:
        population: the clients.
        ledger: the clients' ledgers.
        workers: the number of processes, at least 1.
        folder: holds the data that the processes share, in files that they all map into memory.
    """

    def __init__(
        self, population: Population, ledger: MemoryLedger, workers: int, folder: Path
    ) -> None:
        super().__init__(population, ledger)
        self._count = workers
        _share(population.dataset, folder)
        data, given = population.dataset, population.given(dataset=None)
        of_data = data.name, data.num_classes, folder
        self._workers = Workers(workers, _doing, given, *of_data, folder=folder)

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def _map(
        self, work: Work, request: Any, items: Sequence[int], group: int
    ) -> Iterator[Iterable[Any]]:
        def begin(batch: Sequence[int]) -> Future[Any]:
            asked = request.only(batch) if isinstance(request, RoundRequest) else request
            return self._workers.submit(work, asked, batch, self._taken(work, batch))

        for _, (found, ledger) in in_order(
            items,
            self._count,
            group=group,
            begin=begin,
            result=Future.result,
            cancel=Future.cancel,
        ):
            if ledger is not None:
                self._ledger.absorb(ledger)
            yield found


def _doing(given: dict[str, Any], name: str, num_classes: int, folder: Path) -> Callable[..., Any]:
    """Return what a worker process does with a batch; the batch's ledgers are returned, too."""
    population = Population(**{**given, "dataset": _mapped(name, num_classes, folder)})

    def work(work: Work, request: Any, items: Sequence[int], ledger: MemoryLedger | None) -> Any:
        return list(work(population, request, items, ledger)), ledger

    return work


def _share(dataset: Dataset, folder: Path) -> None:
    for part, examples in (("train", dataset.train), ("test", dataset.test)):
        np.save(folder / f"{part}-features.npy", examples.features)
        np.save(folder / f"{part}-labels.npy", examples.labels)
        if examples.people is not None:
            np.save(folder / f"{part}-people.npy", examples.people)


def _mapped(name: str, num_classes: int, folder: Path) -> Dataset:
    # Map the files copy-on-write, so that all workers read the same memory pages and torch gets
    # writable memory.
    def examples(part: str) -> Examples:
        files = [folder / f"{part}-{field}.npy" for field in ("features", "labels", "people")]
        return Examples(*(np.load(each, mmap_mode="c") for each in files if each.exists()))

    return Dataset(name, examples("train"), examples("test"), num_classes)
