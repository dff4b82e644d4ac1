"""A Ray cluster: its CPUs do tasks as the ``Workers`` of one machine do.

If a worker dies, Ray repeats the task, and the result is bit for bit the same.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from types import ModuleType
from typing import Any

import torch

from fedldp.core.errors import ConfigError, FedldpError, RunError, first_line
from fedldp.core.registry import import_extra
from fedldp.simulation.workers import WorkerLost, settle

RETRIES = 3
"""How many times Ray repeats a task whose worker died."""

SECONDS = 5.0
"""The longest wait, in seconds, for a cluster's address to accept a connection."""


class Cluster:
    """The CPUs of a Ray cluster, each of which does one task at a time, until it is closed.

    Args:
        address: "auto", or the address HOST:PORT of a cluster of which this machine is a node. If
            this process is already connected, that connection is used and kept.
        make: called with ``given`` once in each worker; returns the function that does tasks there.
        given: the arguments of ``make``, sent to each node once.

    Raises:
        ConfigError: Ray is not installed, or this process is connected to another cluster.
        RunError: the cluster cannot be reached, or has no CPU.
    """

    def __init__(
        self, address: str, make: Callable[..., Callable[..., Any]], *given: object
    ) -> None:
        self.ray, self._connected = _connect(address)
        try:
            self._task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(_work)
            self._expected, self._given = versions(), self.put((make, given))
            self.size  # noqa: B018 (refuses a cluster without CPUs)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all workers, even busy ones, and disconnect, if this object connected."""
        # Tasks are not cancelled, because ``ray.cancel`` ends this process if the task ends at that
        # moment (Ray 2.60, see ray-project/ray#54738).
        if self._connected:
            self.ray.shutdown()

    @property
    def size(self) -> int:
        """How many tasks the cluster does at once; nodes may come and go.

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

    def submit(self, *task: object) -> Any:
        """Do a task as soon as a CPU is free, and return the reference to its result."""
        return self._task.remote([self._given], self._expected, *task)

    def result(self, begun: Any) -> Any:
        """Return the result of a task, or raise its error.

        Raises:
            WorkerLost: every worker on which the task ran has died.
            FedldpError: the task raised this error, or a node differs from this machine.
        """
        exceptions = self.ray.exceptions
        try:
            failed, found = self.ray.get(begun)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, ImportError):
                raise RunError(
                    f"cluster: a node lacks software that this machine has ({error.cause}); "
                    "install the same on it"
                ) from error
            raise
        except exceptions.RayError as error:
            raise WorkerLost(
                f"the cluster lost a task and did not finish it in {RETRIES + 1} attempts: perhaps "
                "memory ran out; resume with fewer CPUs per node"
            ) from error
        if failed:
            raise found
        return found


_made: tuple[str, Callable[..., Any]] | None = None
"""The reference from which a worker got what to do with tasks, and this function."""


def _work(sent: Sequence[Any], expected: Mapping[str, str], *task: object) -> tuple[bool, Any]:
    """Do a task in a worker; return whether it failed, and its result or error.

    Errors for the user are returned because Ray would wrap them.
    """
    global _made
    try:
        if _made is None or _made[0] != sent[0].hex():
            _check_versions(expected)
            settle()
            _made = None  # first free the memory that is held in the object store
            make, given = import_ray().get(sent[0])
            _made = sent[0].hex(), make(*given)
        return False, _made[1](*task)
    except FedldpError as error:
        return True, error


def import_ray() -> ModuleType:
    """Return Ray.

    Raises:
        ConfigError: it is not installed.
    """
    # Ray reads this when it is imported. By default it tries for ten minutes to reach an address
    # that does not answer.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    return import_extra("ray", extra="ray")


def _connect(cluster: str) -> tuple[ModuleType, bool]:
    """Connect this process to a cluster; return Ray, and whether the connection is new."""
    try:
        if cluster != "auto":  # Ray itself would wait for 40 s
            host, _, port = cluster.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
        ray = import_ray()
        if not ray.is_initialized():
            ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
            return ray, True
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise RunError(
            f"cluster = {cluster}: cannot connect ({first_line(error)}); give auto or HOST:PORT as "
            "ray start --head prints it, on a machine that is a node of the cluster (ray status)"
        ) from error
    current = ray.get_runtime_context().gcs_address
    if cluster not in ("auto", current):
        raise ConfigError(
            f"cluster = {cluster}: this process is already connected to {current}; call "
            "ray.shutdown() first"
        )
    return ray, False


def versions() -> dict[str, str]:
    """Return the versions that all machines must share to compute the same bits."""
    packages = {name: version(name) for name in ("fedldp", "torch", "numpy")}
    return packages | {
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _check_versions(expected: Mapping[str, str]) -> None:
    """Refuse a machine whose versions differ from ``expected``."""
    for name, found in versions().items():
        if found != expected[name]:
            raise RunError(
                f"cluster: {name} is {found} on {socket.gethostname()} and {expected[name]} where "
                "the run was started; the results could differ in their last bits: use the same "
                "version on all machines"
            )
