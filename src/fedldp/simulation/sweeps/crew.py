"""Who does the runs of a sweep: processes of this machine, or the tasks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from fedldp.core.errors import ConfigError
from fedldp.simulation.plan import cores
from fedldp.simulation.sweeps.one_run import Means, Order
from fedldp.simulation.sweeps.processes import Processes


class Crew(Protocol):
    """Does runs, several at the same time."""

    @property
    def at_most(self) -> int:
        """How many at the same time."""
        ...

    def do(
        self,
        orders: Sequence[Order],
        *,
        done: Callable[[Order, str | None], None],
        tick: Callable[[], None],
    ) -> None:
        """Do runs: each is, bit for bit, what one process alone makes of it, in its folder.

        Args:
            orders: the runs; one that was begun goes on where its folder ends.
            done: is told of each run, and why it failed, as soon as it has ended.
            tick: is called now and then.
        """
        ...


@contextmanager
def assembled(means: Means, workers: int | None) -> Iterator[Crew]:
    """Give the crew of a sweep; at the end, and where it is interrupted, nobody is left at work.

    Args:
        means: what runs share.
        workers: processes of this machine; one for each core where it is None.

    Raises:
        FedldpError: these do not go together, or the cluster cannot be reached.
    """
    _check(means, workers)
    if means.cluster is None:
        yield Processes(means, min(workers or cores(), cores()))
        return
    from fedldp.simulation.ray_cluster import Cluster  # imports torch
    from fedldp.simulation.sweeps.ray_tasks import RayTasks

    with Cluster(means.cluster) as cluster:
        yield RayTasks(cluster, means)


def _check(means: Means, workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise ConfigError(f"workers = {workers}: give 1 or more")
    if means.device not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device = {means.device}: choose auto, cpu or cuda")
    if means.cluster is None:
        return
    if workers is not None:
        raise ConfigError(
            f"workers = {workers}: with cluster = {means.cluster} its nodes say how many there "
            "are; leave out workers"
        )
    if means.device == "cuda":
        raise ConfigError(
            f"device = cuda: cluster = {means.cluster} trains on CPUs; use auto or cpu"
        )
