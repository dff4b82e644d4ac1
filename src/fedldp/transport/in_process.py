"""Simulated clients on this machine: in this process, or spread over worker processes.

A client's report depends on (seed, round, client, broadcast) alone, reports come back in the order
of the clients, and every process trains with one torch thread: so any number of workers gives the
same bits.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.data import Dataset, Examples
from fedldp.errors import FedldpError, RunError
from fedldp.parts import Client, Score
from fedldp.parts.batched_sgd import GROUP, train_together
from fedldp.parts.local_sgd import PIECE, LocalSgd, evaluate, load_weights, one_thread
from fedldp.parts.store import Store
from fedldp.randomness import Stream
from fedldp.systems import Problem, System, SystemConfig
from fedldp.wire import Broadcast, Report

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, eq=False)
class Population:
    """All simulated clients and the test set.

    Attributes:
        seed: the simulation's seed.
        system: the system that they take part in.
        dataset: the data.
        members: for each client the indices of its training examples.
        device: where models are evaluated.
        folder: where clients keep what they need in later rounds.
    """

    seed: int
    system: System
    dataset: Dataset
    members: Sequence[NDArray[np.int64]]
    device: torch.device
    folder: Path

    def stream(self, round: int, client: int, purpose: str) -> Stream:
        """Return the simulation's stream for (round, client, purpose)."""
        return Stream.simulation(seed=self.seed, round=round, client=client, purpose=purpose)

    def client(self, round: int, index: int) -> Client:
        """Return client ``index`` as it is in ``round``."""
        train, own = self.dataset.train, self.members[index]
        return Client(
            index=index,
            examples=Examples(train.features[own], train.labels[own]),
            stream=lambda purpose: self.stream(round, index, purpose),
            setup=lambda purpose: self.stream(0, index, purpose),
            store=Store(self.folder / f"client-{index}"),
        )

    def report(self, broadcast: Broadcast, index: int) -> Report:
        """Return the report of client ``index``; an error says whose it was."""
        with _naming(broadcast.round, index):
            return self.system.report(broadcast, self.client(broadcast.round, index))

    def reports_together(self, broadcast: Broadcast, indices: Sequence[int]) -> list[Report]:
        """Return the reports of clients that train at once, where their client step can."""
        step = self.system.client_step
        if not isinstance(step, LocalSgd):
            return [self.report(broadcast, index) for index in indices]
        clients = [self.client(broadcast.round, index) for index in indices]
        reports = []
        for client, update in zip(clients, train_together(step, broadcast, clients), strict=True):
            with _naming(broadcast.round, client.index):
                reports.append(self.system.encoder(update, broadcast, client))
        return reports

    def evaluate(self, broadcast: Broadcast, piece: int) -> Score:
        """Return the score on one piece of the test: of the test set, or of one client's test."""
        model, test = self.system.model, self.dataset.test
        if self.system.tester is not None:
            return self.system.tester(broadcast, self.client(broadcast.round, piece), test)
        load_weights(model, self.system.layout, broadcast.weights)
        part = slice(piece * PIECE, (piece + 1) * PIECE)
        return evaluate(model, Examples(test.features[part], test.labels[part]), self.device)


@contextmanager
def _naming(round: int, client: int) -> Iterator[None]:
    """Let an error say in which round and for which client it arose."""
    try:
        yield
    except FedldpError as error:
        raise type(error)(f"round {round}, client {client}: {error}") from error


class InProcess:
    """The transport of simulated clients; use it as a context.

    Args:
        config: the run's configuration.
        dataset: the data.
        members: for each client the indices of its training examples.
        device: where to train and evaluate. On a GPU many clients train at once.
        workers: processes; 1 is this one.
        data_dir: the data folder, for systems that read a public data set.
    """

    def __init__(
        self,
        config: SystemConfig,
        dataset: Dataset,
        members: Sequence[NDArray[np.int64]],
        *,
        device: torch.device,
        workers: int,
        data_dir: Path | None = None,
    ) -> None:
        problem = Problem(dataset.input_shape, dataset.num_classes, len(dataset.train), data_dir)
        system = config.build(problem, device=device)
        self._folder = tempfile.TemporaryDirectory(prefix="fedldp-")
        folder = Path(self._folder.name)
        self.population = Population(config.seed, system, dataset, members, device, folder)
        pieces = -(-len(dataset.test) // PIECE) if system.tester is None else config.num_clients
        self._pieces = range(pieces)
        self._workers = workers = min(workers, config.num_clients)
        self._executor: ProcessPoolExecutor | None = None
        if workers > 1:
            _share(dataset, folder)
            self._executor = ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(
                    config,
                    dataset.name,
                    dataset.num_classes,
                    members,
                    device.type,
                    self._folder.name,
                ),
            )
            # Ctrl-C reaches the whole process group, and the parent alone decides how to end:
            # workers inherit that it is blocked. One starts with each task while none is idle.
            try:
                with _interrupts_blocked():
                    for _ in range(workers):
                        self._executor.submit(int)
            except KeyboardInterrupt:
                self.__exit__(KeyboardInterrupt)
                raise

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._executor is not None:
            if kind is not None:
                # What the workers are at is of no use any more, and may take long.
                for process in list((self._executor._processes or {}).values()):
                    process.terminate()
            self._executor.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def exchange(self, broadcast: Broadcast, clients: Sequence[int]) -> Iterator[Report]:
        """Yield the reports of ``clients``, in their order."""
        if self.population.device.type == "cpu":
            yield from self._map(Population.report, broadcast, clients)
            return
        for start in range(0, len(clients), GROUP):
            yield from self.population.reports_together(broadcast, clients[start : start + GROUP])

    def evaluate(self, broadcast: Broadcast) -> tuple[float, float]:
        """Return accuracy (0 to 1) and mean loss of the broadcast's weights on the test set."""
        right, loss, total = 0, 0.0, 0
        for score in self._map(Population.evaluate, broadcast, self._pieces):
            right += score.right
            loss += score.loss
            total += score.total
        return right / total, loss / total

    def _map(
        self,
        task: Callable[[Population, Broadcast, int], T],
        broadcast: Broadcast,
        items: Sequence[int],
    ) -> Iterator[T]:
        """Yield task(population, broadcast, item) in order; at most a few batches lie in wait."""
        if self._executor is None:
            with one_thread():
                for item in items:
                    yield task(self.population, broadcast, item)
            return
        batch = max(1, min(16, len(items) // (self._workers * 4)))
        waiting: deque[Future[list[T]]] = deque()
        try:
            for start in range(0, len(items), batch):
                waiting.append(
                    self._executor.submit(_run_task, task, broadcast, items[start : start + batch])
                )
                if len(waiting) > 2 * self._workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except BrokenProcessPool as error:
            raise RunError(
                "a worker process died: perhaps memory ran out; resume with fewer --workers"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, for new processes for good; one that comes meanwhile takes effect at the end.

    Another thread may receive the signal, so that blocking it in this one is not enough here.
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
"""The population of a worker process, set once by its initialiser."""


def _start_worker(
    config: SystemConfig,
    name: str,
    num_classes: int,
    members: Sequence[NDArray[np.int64]],
    device: str,
    folder: str,
) -> None:
    global _population
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    torch.set_num_threads(1)
    dataset = _mapped(name, num_classes, Path(folder))
    problem = Problem(dataset.input_shape, dataset.num_classes, len(dataset.train))
    system = config.build(problem, device=torch.device(device))
    where = torch.device(device)
    _population = Population(config.seed, system, dataset, members, where, Path(folder))


def _end_with_parent(folder: str) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _run_task(
    task: Callable[[Population, Broadcast, int], Any], broadcast: Broadcast, items: Sequence[int]
) -> list[Any]:
    return [task(_population, broadcast, item) for item in items]


def _share(dataset: Dataset, folder: Path) -> None:
    for part, examples in (("train", dataset.train), ("test", dataset.test)):
        np.save(folder / f"{part}-features.npy", examples.features)
        np.save(folder / f"{part}-labels.npy", examples.labels)


def _mapped(name: str, num_classes: int, folder: Path) -> Dataset:
    # Mapped copy-on-write: all workers read the same pages, and torch sees writable memory.
    def examples(part: str) -> Examples:
        features, labels = (
            np.load(folder / f"{part}-{field}.npy", mmap_mode="c")
            for field in ("features", "labels")
        )
        return Examples(features, labels)

    return Dataset(name, examples("train"), examples("test"), num_classes)
