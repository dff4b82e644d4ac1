"""Several tasks at once on a Ray cluster, one on each CPU; ``Processes`` does the same locally."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self

import torch

from fedldp.core.errors import FedldpError
from fedldp.experiments.processes import DIED, Task, Work
from fedldp.simulation.in_process import keep_freed_memory
from fedldp.simulation.ray_executor import Cluster, LostTask, check_versions, versions

_TICK = 0.5


class ClusterTasks(Generic[Task]):
    """Runs tasks on the CPUs of a cluster; use it as a context manager.

    Args:
        address: the cluster's address; see ``Cluster``.
        work: how to carry out a task, with the data that tasks share; each node gets one copy.

    Raises:
        FedldpError: the cluster cannot be reached, or has no room for ``work``.
    """

    def __init__(self, address: str, work: Work[Task]) -> None:
        self._cluster = Cluster(address)
        try:
            self._task = self._cluster.task(_carried_out)
            self._sent = self._cluster.put(work), self._cluster.put(versions())
        except BaseException:
            self._cluster.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def do(
        self,
        tasks: Sequence[Task],
        *,
        done: Callable[[Task, Any], None],
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        """Do tasks; see ``Processes.do``.

        Raises:
            FedldpError: a node differs from this machine.
        """
        waiting, running = deque(tasks), dict[Any, Task]()
        while waiting or running:
            if waiting and not go_on():
                waiting.clear()
            while waiting and len(running) < self._cluster.num_cpus():
                task = waiting.popleft()
                running[self._task.remote(*self._sent, task)] = task
            ended, _ = self._cluster.ray.wait(list(running), timeout=_TICK) if running else ([], [])
            for reference in ended:
                task = running.pop(reference)
                try:
                    (result,) = self._cluster.result(reference, "a run")
                except LostTask:
                    result = DIED
                done(task, result)


def _carried_out(
    work: Work[Any], expected: Mapping[str, str], task: Any
) -> tuple[Any] | FedldpError:
    """Run a task on a node; return its result in a tuple, because the result may be an error."""
    try:
        check_versions(expected)
    except FedldpError as error:
        return error
    torch.set_num_threads(1)
    keep_freed_memory()
    return (work.carry_out(task),)
