"""Executors of simulated clients: this process, or a pool of processes.

A client's answer depends only on its keys, its examples, its ledger and the request. Answers come
back in the order of the clients, and every process trains with one torch thread. So the number of
workers does not change any bit of the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedldp.data import Dataset, Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.roles import Score
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.in_process import Packed, SentRequest, answers_of, in_order
from fedldp.simulation.population import Population
from fedldp.simulation.workers import Workers
from fedldp.training.tensors import one_thread


class Executor(ABC):
    """Obtains the clients' answers, and measures models. Use it as a context manager."""

    @abstractmethod
    def answers(
        self, request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Yield the answers of ``clients`` in order, several at a time; charge their ledgers."""

    @abstractmethod
    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores of the broadcast's weights on all test pieces."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 (not every executor holds something)
        """Release what the executor holds."""


class Serial(Executor):
    """Does the work in this process.

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
        """Yield the answers of ``clients``; see ``Executor``."""
        with one_thread():
            yield from answers_of(self._population.runtime(self._ledger), request, clients)

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores; see ``Executor``."""
        with one_thread():
            for piece in range(self._population.num_tests):
                yield self._population.score(broadcast, piece)


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
        self._ledger = ledger
        self._count = workers
        self._num_tests = population.num_tests
        self._group = population.group
        _share(population.dataset, folder)
        data, given = population.dataset, population.given(dataset=None)
        of_data = data.name, data.num_classes, folder
        self._workers = Workers(workers, _doing, given, *of_data, folder=folder)

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def answers(
        self, request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Yield the answers of ``clients``; see ``Executor``."""

        def begin(batch: Sequence[int]) -> Future[Any]:
            asked = request if isinstance(request, bytes) else request.only(batch)
            return self._workers.submit(answer, asked, batch, self._ledger.extract(batch))

        for _, (found, ledger) in self._map(begin, clients, self._group):
            self._ledger.absorb(ledger)
            yield from found

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores; see ``Executor``."""

        def begin(batch: Sequence[int]) -> Future[Any]:
            return self._workers.submit(score, broadcast, batch, None)

        for _, (scores, _) in self._map(begin, range(self._num_tests), 1):
            yield from scores

    def _map(
        self, begin: Callable[[Sequence[int]], Future[Any]], items: Sequence[int], group: int
    ) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield batches of ``items`` with their results, in order."""
        return in_order(
            items,
            self._count,
            group=group,
            begin=begin,
            result=Future.result,
            cancel=Future.cancel,
        )


Work = Callable[[Population, Any, Sequence[int], Any], list[Any]]
"""What a worker does with a population for a batch: ``answer`` or ``score``."""


def answer(
    population: Population, request: SentRequest, clients: Sequence[int], ledger: MemoryLedger
) -> list[tuple[Sequence[int], Packed]]:
    """Return the answers of ``clients``, whose ledgers are charged."""
    return list(answers_of(population.runtime(ledger), request, clients))


def score(
    population: Population, broadcast: Broadcast, pieces: Sequence[int], _: None
) -> list[Score]:
    """Return the scores of the broadcast's weights on some test pieces."""
    return [population.score(broadcast, piece) for piece in pieces]


def _doing(given: dict[str, Any], name: str, num_classes: int, folder: Path) -> Callable[..., Any]:
    """Return what a worker process does with a batch; the batch's ledgers are returned, too."""
    population = Population(**{**given, "dataset": _mapped(name, num_classes, folder)})

    def work(work: Work, request: Any, items: Sequence[int], ledger: MemoryLedger | None) -> Any:
        return work(population, request, items, ledger), ledger

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
