"""Who does the work of simulated clients, on many machines: the workers of a Ray cluster.

A task is a question, a batch of clients, their ledgers and what they keep; it gives back answers,
ledgers, and what is kept now. It depends on nothing else, and changes nothing elsewhere: so where
a worker dies, Ray does the task again, and the bits are the same.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch

from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.errors import ConfigError, FedldpError, RunError, first_line
from fedldp.parts.sides import Score
from fedldp.registry import import_extra
from fedldp.simulation.batches import in_order
from fedldp.simulation.population import Population
from fedldp.simulation.together import answers, group_of
from fedldp.transport.in_process import Packed
from fedldp.wire import Broadcast

RETRIES = 3
"""How often Ray does a batch again whose worker died."""

SECONDS = 5.0
"""For a cluster's address to accept a connection."""

Kept = dict[int, dict[str, bytes]]
"""What clients keep, as ``FolderStore.files`` gives it."""


class RayExecutor:
    """The workers of a Ray cluster: one task at a time on each of its CPUs. See ``Executor``.

    Args:
        population: the clients; sent to the cluster once, and made once in each worker process.
        ledger: theirs.
        cluster: "auto", or the address HOST:PORT of a cluster that this machine is a node of. Where
            this process is connected already, it stays so, and that cluster is taken.

    Raises:
        ConfigError: Ray is not installed, or ``cluster`` is no address.
        RunError: the cluster cannot be reached, or has no CPU.
    """

    def __init__(self, population: Population, ledger: MemoryLedger, cluster: str) -> None:
        self._population = population
        self._ledger = ledger
        self._group = group_of(population)
        self._ray = _import_ray()
        self._connected = _connect(self._ray, cluster)
        try:
            self._num_cpus()
            self._expected = _versions()
            self._sent = self._put(_Recipe.of(population))
            self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(_work)
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._connected:
            self._ray.shutdown()  # which ends the workers, whatever they are at

    def answers(
        self, message: bytes, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Yield what ``clients`` answer; see ``Executor``."""
        for found in self._map(_answer, message, clients, self._ledger.extract, self._group):
            yield from found

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores; see ``Executor``."""
        pieces = range(self._population.num_tests)
        for scores in self._map(_score, broadcast, pieces, lambda _: None, 1):
            yield from scores

    def _map(
        self,
        work: Callable[..., list[Any]],
        question: bytes | Broadcast,
        items: Sequence[int],
        ledgers: Callable[[Sequence[int]], MemoryLedger | None],
        group: int,
    ) -> Iterator[list[Any]]:
        """Yield what ``work`` makes of batches of ``items``, in order."""
        sent = self._put(question)  # once, and not with each batch

        def begin(batch: Sequence[int]) -> Any:
            stores = ((item, self._population.store(item)) for item in batch)
            kept = {item: files for item, store in stores if (files := store.files())}
            return self._task.remote(
                [self._sent], self._expected, work, sent, batch, ledgers(batch), kept
            )

        for _, done in in_order(
            items,
            self._num_cpus(),
            group=group,
            begin=begin,
            result=self._result,
            # ``ray.cancel`` of a task that ends at that moment ends this process (Ray 2.60, see
            # ray-project/ray#54738): the few that nobody waits for are done for nothing.
            cancel=lambda _: None,
        ):
            if done.ledger is not None:
                self._ledger.absorb(done.ledger)
            for item, files in done.kept.items():
                self._population.store(item).add(files)
            yield done.results

    def _result(self, reference: Any) -> _Done:
        exceptions = self._ray.exceptions
        try:
            done: _Done | FedldpError = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, ImportError):
                raise RunError(
                    f"cluster: a node lacks what this machine has ({error.cause}); install the "
                    "same there"
                ) from error
            raise
        except exceptions.RayError as error:
            raise RunError(
                f"the cluster lost a batch of clients and did not finish it in {RETRIES + 1} "
                "attempts: perhaps memory ran out; resume with fewer CPUs on each node"
            ) from error
        if isinstance(done, FedldpError):
            raise done
        return done

    def _put(self, value: object) -> Any:
        try:
            return self._ray.put(value)
        except self._ray.exceptions.RayError as error:
            raise RunError(
                f"the cluster's object store does not take what clients need: {first_line(error)}; "
                "start its nodes with a larger --object-store-memory"
            ) from error

    def _num_cpus(self) -> int:
        """Return how many tasks the cluster does at once; nodes may come and go between rounds."""
        found = int(self._ray.cluster_resources().get("CPU", 0))
        if not found:
            raise RunError("cluster: its nodes offer no CPU; start one with --num-cpus")
        return found


@contextmanager
def connection(cluster: str) -> Iterator[None]:
    """Keep this process connected to a cluster, over several runs whose cluster is then "auto".

    Its worker processes stay from run to run, which saves their start.

    Raises:
        FedldpError: as ``RayExecutor``.
    """
    ray = _import_ray()
    connected = _connect(ray, cluster)
    try:
        yield
    finally:
        if connected:
            ray.shutdown()


def _import_ray() -> ModuleType:
    # Else Ray tries an address where nothing answers for ten minutes. It reads this when imported.
    before = os.environ.get("RAY_NUM_REDIS_GET_RETRIES")
    os.environ["RAY_NUM_REDIS_GET_RETRIES"] = before or "1"
    try:
        return import_extra("ray", extra="ray")
    finally:
        if before is None:
            del os.environ["RAY_NUM_REDIS_GET_RETRIES"]


def _connect(ray: ModuleType, cluster: str) -> bool:
    """Connect this process to a cluster, and return whether it was not before."""
    if cluster != "auto":
        _check_address(cluster)
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if cluster not in ("auto", current):
            raise ConfigError(
                f"cluster = {cluster}: this process is connected to {current} already; "
                "call ray.shutdown() before"
            )
        return False
    try:
        ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(
            f"cluster = {cluster}: cannot connect ({first_line(error)}); see that this machine is "
            "a node of the cluster (ray status)"
        ) from error
    return True


def _check_address(cluster: str) -> None:
    host, _, port = cluster.rpartition(":")
    if not host or not port.isdigit() or "/" in cluster:
        raise ConfigError(f"cluster = {cluster}: give auto or the head's address as HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(
            f"cluster = {cluster}: nothing answers there ({first_line(error)}); start a cluster "
            "with ray start --head, and give the address that it prints"
        ) from error


def _versions() -> dict[str, str]:
    """Return what must be the same on all machines for the same bits."""
    packages = {name: version(name) for name in ("fedldp", "torch", "numpy")}
    return packages | {
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


@dataclass(frozen=True)
class _Recipe:
    """What a worker makes its population from. Arrays stay in the object store of its machine."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, population: Population) -> _Recipe:
        values = {f.name: getattr(population, f.name) for f in fields(Population) if f.init}
        # Folders are of this machine.
        values |= {
            "problem": replace(population.problem, data_dir=None),
            "folder": Path(),
            "lasting": False,
        }
        return cls(values)

    def population(self) -> Population:
        return Population(**self.values)


@dataclass(frozen=True)
class _Done:
    """What a task gives back: results, ledgers, and what clients keep that they had not kept."""

    results: list[Any]
    ledger: MemoryLedger | None
    kept: Kept


_made: tuple[str, Population] | None = None
"""The population of a worker process, and what it was made from."""


def _work(
    sent: Sequence[Any],
    expected: Mapping[str, str],
    work: Callable[[Population, Any, Sequence[int], Any], list[Any]],
    question: bytes | Broadcast,
    items: Sequence[int],
    ledger: MemoryLedger | None,
    kept: Kept,
) -> _Done | FedldpError:
    """Do a task in a worker process. An error for the user is a result: Ray shows no other."""
    try:
        population = _population(sent[0], expected)
        with TemporaryDirectory(prefix="fedldp-") as folder:
            here = copy(population)
            object.__setattr__(here, "folder", Path(folder))
            for item, files in kept.items():
                here.store(item).add(files)
            if ledger is not None:
                ledger = ledger.extract(items)  # Ray's own arrays are read-only
            results = work(here, question, items, ledger)
            return _Done(results, ledger, _new(here, items, kept))
    except FedldpError as error:
        return error


def _population(reference: Any, expected: Mapping[str, str]) -> Population:
    global _made
    if _made is None or _made[0] != reference.hex():
        _check_versions(expected)
        torch.set_num_threads(1)
        _made = None  # what it holds of the object store goes first
        recipe: _Recipe = import_extra("ray", extra="ray").get(reference)
        _made = reference.hex(), recipe.population()
    return _made[1]


def _check_versions(expected: Mapping[str, str]) -> None:
    for name, found in _versions().items():
        if found != expected[name]:
            raise RunError(
                f"cluster: {name} is {found} on {socket.gethostname()} and {expected[name]} where "
                "the run was started; the bits could differ: take machines that are alike"
            )


def _new(population: Population, items: Sequence[int], before: Kept) -> Kept:
    """Return the files that are kept now and were not before."""
    found = {}
    for item in items:
        old = before.get(item, {})
        files = population.store(item).files()
        if new := {name: content for name, content in files.items() if name not in old}:
            found[item] = new
    return found


def _answer(
    population: Population, message: bytes, clients: Sequence[int], ledger: MemoryLedger
) -> list[tuple[Sequence[int], Packed]]:
    return list(answers(population, message, clients, ledger))


def _score(
    population: Population, broadcast: Broadcast, pieces: Sequence[int], _: None
) -> list[Score]:
    return [population.score(broadcast, piece) for piece in pieces]
