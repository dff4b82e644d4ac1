"""Executors of a sweep's runs: processes of this machine, or the tasks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from fedldp.core.errors import ConfigError
from fedldp.simulation.plan import cores
from fedldp.simulation.sweeps.one_run import RunContext, RunTask
from fedldp.simulation.sweeps.processes import Processes


class SweepExecutor(Protocol):
    """Carries out runs, several at the same time."""

    @property
    def at_most(self) -> int:
        """How many runs are carried out at the same time."""
        ...

    def do(
        self,
        tasks: Sequence[RunTask],
        *,
        done: Callable[[RunTask, str | None], None],
        tick: Callable[[], None],
    ) -> None:
        """Carry out runs; each folder has, bit for bit, what a single process would write.

        Args:
            tasks: the runs; a run that was begun continues from its folder.
            done: called with each run as soon as it has ended, and with the reason if it failed.
            tick: called from time to time.
        """
        ...


@contextmanager
def assembled(context: RunContext, workers: int | None) -> Iterator[SweepExecutor]:
    """Yield the executor of a sweep; at the end, or if interrupted, stop every worker.

    Args:
        context: the settings and data that the runs share.
        workers: the number of processes on this machine; None starts one per core.

    Raises:
        FedldpError: the settings contradict each other, or the cluster cannot be reached.
    """
    _check(context, workers)
    if context.cluster is None:
        with Processes(context, min(workers or cores(), cores())) as processes:
            yield processes
        return
    from fedldp.simulation.ray_cluster import Cluster  # imports torch
    from fedldp.simulation.sweeps.ray_tasks import RayTasks

    with Cluster(context.cluster) as cluster:
        yield RayTasks(cluster, context)


def _check(context: RunContext, workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"workers = {workers}: give 1 or more")
    if context.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device = {context.device}: choose auto, cpu or cuda")
    if context.cluster is None:
        return
    if workers is not None:
        raise ConfigError(
            f"workers = {workers}: the nodes of cluster = {context.cluster} set the number of "
            "workers; leave workers out"
        )
    if context.device == "cuda":
        raise ConfigError(
            f"device = cuda: cluster = {context.cluster} trains on CPUs; use auto or cpu"
        )
