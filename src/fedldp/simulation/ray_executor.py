"""An executor of simulated clients on many machines: the workers of a Ray cluster.

A task is a request, a batch of clients, their ledgers and the files that they keep. It returns
answers, ledgers, and the new files. It depends on nothing else and changes nothing elsewhere. So if
a worker dies, Ray repeats the task, and the result is bit for bit the same.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fedldp.core.errors import ConfigError, FedldpError, RunError, first_line
from fedldp.core.locks import scratch
from fedldp.core.registry import import_extra
from fedldp.ledgers.columns import MemoryLedger
from fedldp.simulation.executors import Executor, Work
from fedldp.simulation.in_process import in_order
from fedldp.simulation.population import Population
from fedldp.simulation.workers import WorkerLost

Kept = dict[int, dict[str, bytes]]
"""The files that clients keep, as ``FolderStore.files`` returns them."""


class RayExecutor(Executor):
    """The workers of a Ray cluster: one task at a time on each CPU. See ``Executor``.

    Args:
        population: the clients; sent to the cluster once, and built once in each worker process.
        ledger: the clients' ledgers.
        cluster: the cluster's address; see ``Cluster``.

    Raises:
        FedldpError: the cluster cannot be used; see ``Cluster``.
    """

    def __init__(self, population: Population, ledger: MemoryLedger, cluster: str) -> None:
        super().__init__(population, ledger)
        self._cluster = Cluster(cluster)
        try:
            self._expected = versions()
            self._sent = self._cluster.put(population.given(folder=Path()))
            self._task = self._cluster.task(_work)
        except BaseException:
            self._cluster.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def _map(
        self, work: Work, request: Any, items: Sequence[int], group: int
    ) -> Iterator[Iterable[Any]]:
        sent = self._cluster.put(request)  # sends the request once, rather than with each batch

        def begin(batch: Sequence[int]) -> Any:
            stores = ((item, self._population.store(item)) for item in batch)
            kept = {item: files for item, store in stores if (files := store.files())}
            return self._task.remote(
                [self._sent], self._expected, work, sent, batch, self._taken(work, batch), kept
            )

        for _, done in in_order(
            items,
            self._cluster.num_cpus(),
            group=group,
            begin=begin,
            result=lambda reference: self._cluster.result(reference, "a batch of clients"),
            cancel=lambda _: None,  # the few tasks whose results are not needed run to the end
        ):
            if done.ledger is not None:
                self._ledger.absorb(done.ledger)
            for item, files in done.kept.items():
                self._population.store(item).add(files)
            yield done.results


@dataclass(frozen=True)
class _Done:
    """The return value of a task: results, ledgers, and the new files that clients keep."""

    results: list[Any]
    ledger: MemoryLedger | None
    kept: Kept


_made: tuple[str, Population] | None = None
"""The reference from which a worker process built its population, and the population."""


def _work(
    sent: Sequence[Any],
    expected: Mapping[str, str],
    work: Work,
    request: Any,
    items: Sequence[int],
    ledger: MemoryLedger | None,
    kept: Kept,
) -> _Done | FedldpError:
    """Do a task in a worker process; return user-facing errors, because Ray would wrap them."""
    try:
        population = _population(sent[0], expected)
        with scratch() as folder:
            here = copy(population)
            here.folder = folder
            for item, files in kept.items():
                here.store(item).add(files)
            if ledger is not None:
                ledger = ledger.extract(items)  # a copy, because arrays from Ray are read-only
            results = list(work(here, request, items, ledger))
            return _Done(results, ledger, _new(here, items, kept))
    except FedldpError as error:
        return error


def _population(reference: Any, expected: Mapping[str, str]) -> Population:
    global _made
    if _made is None or _made[0] != reference.hex():
        check_versions(expected)
        torch.set_num_threads(1)
        _made = None  # first free the memory that the old population holds in the object store
        _made = reference.hex(), Population(**import_ray().get(reference))
    return _made[1]


def _new(population: Population, items: Sequence[int], before: Kept) -> Kept:
    """Return the files that are kept now and were not kept before."""
    found = {}
    for item in items:
        old = before.get(item, {})
        files = population.store(item).files()
        if new := {name: content for name, content in files.items() if name not in old}:
            found[item] = new
    return found


RETRIES = 3
"""How many times Ray repeats a task whose worker died."""

SECONDS = 5.0
"""The longest wait, in seconds, for a cluster's address to accept a connection."""


class Cluster:
    """A connection to a Ray cluster, until it is closed.

    Args:
        address: "auto", or the address HOST:PORT of a cluster of which this machine is a node. If
            this process is already connected, that connection is used and kept.

    Raises:
        ConfigError: Ray is not installed, or ``address`` is not an address.
        RunError: the cluster cannot be reached, or has no CPU.
    """

    def __init__(self, address: str) -> None:
        if address != "auto":  # first, as its message helps without Ray, too
            _check_address(address)
        self.ray = import_ray()
        self._connected = _connect(self.ray, address)
        try:
            self.num_cpus()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all workers, even busy ones, and disconnect, if this object connected."""
        # Tasks are not cancelled, because ``ray.cancel`` ends this process if the task ends at that
        # moment (Ray 2.60, see ray-project/ray#54738).
        if self._connected:
            self.ray.shutdown()

    def num_cpus(self) -> int:
        """Return how many tasks the cluster runs at once; nodes may come and go.

        Raises:
            RunError: the cluster has no CPU.
        """
        found = int(self.ray.cluster_resources().get("CPU", 0))
        if not found:
            raise RunError("cluster: its nodes offer no CPUs; start a node with --num-cpus")
        return found

    def put(self, value: object) -> Any:
        """Return a reference to a value that is sent to each node once.

        Raises:
            RunError: the value is too large for the object store.
        """
        try:
            return self.ray.put(value)
        except self.ray.exceptions.RayError as error:
            raise RunError(
                "what clients need does not fit into the cluster's object store: "
                f"{first_line(error)}; start the nodes with a larger --object-store-memory"
            ) from error

    def task(self, work: Callable[..., Any]) -> Any:
        """Return ``work`` as a task for one CPU, which Ray repeats if a worker dies."""
        return self.ray.remote(num_cpus=1, max_retries=RETRIES)(work)

    def result(self, reference: Any, what: str) -> Any:
        """Return the result of a task, or raise the user-facing error that the task returned.

        Args:
            reference: the reference to the task's result.
            what: what the task does, for messages.

        Raises:
            WorkerLost: every worker on which the task ran has died.
            FedldpError: the task returned this error, or a node differs from this machine.
        """
        exceptions = self.ray.exceptions
        try:
            done = self.ray.get(reference)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, ImportError):
                raise RunError(
                    f"cluster: a node lacks software that this machine has ({error.cause}); "
                    "install the same on it"
                ) from error
            raise
        except exceptions.RayError as error:
            raise WorkerLost(
                f"the cluster lost {what} and did not finish it in {RETRIES + 1} attempts: perhaps "
                "memory ran out; resume with fewer CPUs per node"
            ) from error
        if isinstance(done, FedldpError):
            raise done
        return done


def import_ray() -> ModuleType:
    """Return Ray.

    Raises:
        ConfigError: it is not installed.
    """
    # By default, Ray tries for ten minutes to reach an address that does not answer. It reads this
    # variable when it is imported.
    before = os.environ.get("RAY_NUM_REDIS_GET_RETRIES")
    os.environ["RAY_NUM_REDIS_GET_RETRIES"] = before or "1"
    try:
        return import_extra("ray", extra="ray")
    finally:
        if before is None:
            del os.environ["RAY_NUM_REDIS_GET_RETRIES"]


def _connect(ray: ModuleType, cluster: str) -> bool:
    """Connect this process to a cluster, and return whether the connection is new."""
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if cluster not in ("auto", current):
            raise ConfigError(
                f"cluster = {cluster}: this process is already connected to {current}; call "
                "ray.shutdown() first"
            )
        return False
    try:
        ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise RunError(
            f"cluster = {cluster}: cannot connect ({first_line(error)}); check that this machine "
            "is a node of the cluster (ray status)"
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


def versions() -> dict[str, str]:
    """Return the versions that all machines must share to compute the same bits."""
    packages = {name: version(name) for name in ("fedldp", "torch", "numpy")}
    return packages | {
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def check_versions(expected: Mapping[str, str]) -> None:
    """Refuse a machine whose versions differ from ``expected``.

    Raises:
        RunError: a version differs.
    """
    for name, found in versions().items():
        if found != expected[name]:
            raise RunError(
                f"cluster: {name} is {found} on {socket.gethostname()} and {expected[name]} where "
                "the run was started; the results could differ in their last bits: use the same "
                "version on all machines"
            )
