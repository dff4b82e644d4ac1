"""Executors of simulated clients: this process, or a pool of processes.

A client's answer depends only on its keys, its examples, its ledger and the request. Answers come
back in the order of the clients, and every process trains with one torch thread. So the number of
workers does not change any bit of the result.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import torch

from fedldp.core.errors import RunError
from fedldp.data import Dataset, Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.roles import Score
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.in_process import (
    Packed,
    SentRequest,
    answers_of,
    in_order,
    keep_freed_memory,
)
from fedldp.simulation.population import Population, PopulationSpec
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

    def __exit__(  # noqa: B027 (not every executor holds something)
        self, kind: type[BaseException] | None, *_: object
    ) -> None:
        """Release what the executor holds; ``kind`` is the kind of the error, if any."""


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
        self._workers = workers
        self._num_tests = population.num_tests
        self._group = population.group
        _share(population.dataset, folder)
        self._executor = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(
                PopulationSpec.of(population, dataset=None),
                population.dataset.name,
                population.dataset.num_classes,
                folder,
            ),
        )
        # Ctrl-C reaches the whole process group, but only the parent may decide how the run ends,
        # so workers are started with the signal blocked. Each submitted task starts another worker
        # if no worker is idle.
        try:
            with _interrupts_blocked(), _without_script():
                for _ in range(workers):
                    self._executor.submit(int)
        except KeyboardInterrupt:
            self.__exit__(KeyboardInterrupt)
            raise
        except BrokenProcessPool:  # the first worker died at once
            raise self._died() from None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            # The results of the workers' current tasks are no longer needed, and waiting for them
            # may take long.
            for process in list((self._executor._processes or {}).values()):
                process.terminate()
        self._executor.shutdown(cancel_futures=True)

    def answers(
        self, request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Yield the answers of ``clients``; see ``Executor``."""

        def begin(batch: Sequence[int]) -> Future[Any]:
            asked = request if isinstance(request, bytes) else request.only(batch)
            return self._executor.submit(_work, answer, asked, batch, self._ledger.extract(batch))

        for _, (found, ledger) in self._map(begin, clients, self._group):
            self._ledger.absorb(ledger)
            yield from found

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores; see ``Executor``."""

        def begin(batch: Sequence[int]) -> Future[Any]:
            return self._executor.submit(_work, score, broadcast, batch, None)

        for _, (scores, _) in self._map(begin, range(self._num_tests), 1):
            yield from scores

    def _map(
        self, begin: Callable[[Sequence[int]], Future[Any]], items: Sequence[int], group: int
    ) -> Iterator[tuple[Sequence[int], Any]]:
        """Yield batches of ``items`` with their results, in order."""
        try:
            yield from in_order(
                items,
                self._workers,
                group=group,
                begin=begin,
                result=Future.result,
                cancel=Future.cancel,
            )
        except BrokenProcessPool:
            raise self._died() from None

    def _died(self) -> RunError:
        """Return the error for a worker that died, once all workers have ended."""
        self._executor.shutdown()
        return RunError("a worker process died: perhaps memory ran out; resume with fewer workers")


@contextmanager
def _without_script() -> Iterator[None]:
    """Keep processes that start within the ``with`` block from importing the user's script.

    Python makes each of them import it, and so a script would start its run again. Nothing that
    workers receive comes from the script; see ``check_travels``.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C within the ``with`` block, and permanently in processes that start within it.

    A Ctrl-C within the block takes effect at its end. Another thread may receive the signal, so
    blocking it in this thread is not enough.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


_population: Population
"""The population of a worker process, set once by the process's initialiser."""


def _start_worker(spec: PopulationSpec, name: str, num_classes: int, folder: Path) -> None:
    global _population
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    torch.set_num_threads(1)
    keep_freed_memory()
    _population = spec.population(dataset=_mapped(name, num_classes, folder))


def _end_with_parent(folder: Path) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


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


def _work(
    work: Work, request: SentRequest | Broadcast, items: Sequence[int], ledger: MemoryLedger | None
) -> tuple[list[Any], MemoryLedger | None]:
    return work(_population, request, items, ledger), ledger


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
