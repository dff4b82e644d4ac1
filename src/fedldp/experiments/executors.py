"""Who makes runs: this process, several processes of this machine, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from fedldp.experiments.making import Maker
from fedldp.experiments.runs import Ended, PlannedRun, Row, RunExecutor
from fedldp.simulation.plan import check_workers, cores
from fedldp.simulation.workers import WorkerLost, Workers

_TICK = 0.5
"""Seconds between two checks of the runs' progress."""


@contextmanager
def executor_of(
    maker: Maker, workers: int | None, cluster: str | None, left: int
) -> Iterator[RunExecutor]:
    """Yield who makes runs; at the end, or if interrupted, stop every worker.

    Args:
        maker: how to make a run.
        workers: the number of processes on this machine; None starts one per core.
        cluster: "auto" or the address of a Ray cluster, instead of workers.
        left: how many runs are left; if these are fewer than the workers, each run gets several.

    Raises:
        FedldpError: the settings contradict each other, or the cluster cannot be reached.
    """
    if cluster is None:
        with Processes(maker, min(workers or cores(), cores()), left) as processes:
            yield processes
        return
    check_workers(None, cluster, maker.device)
    from fedldp.experiments.cluster import ClusterExecutor  # imports torch

    with ClusterExecutor(cluster, maker) as nodes:
        yield nodes


class Processes:
    """Processes of this machine, or this process alone; see ``RunExecutor``.

    Args:
        maker: how to make a run.
        at_most: the largest number of processes, at least 1.
        left: how many runs are left.
    """

    def __init__(self, maker: Maker, at_most: int, left: int) -> None:
        self.slots = max(1, min(at_most, left))
        self._maker = copy(maker)
        self._maker.workers = at_most // self.slots
        self._workers = Workers(self.slots, _making, self._maker)
        self._running: dict[Future[Row | Exception], PlannedRun] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def begin(self, run: PlannedRun, place: Path | None) -> None:
        """Begin a run; see ``RunExecutor``."""
        if self.slots > 1:
            self._running[self._workers.submit(run, place)] = run
            return
        made: Future[Row | Exception] = Future()
        made.set_result(self._maker.attempt(run, place))
        self._running[made] = run

    def ended(self) -> list[Ended]:
        """Return the runs that have ended; see ``RunExecutor``."""
        done, _ = wait(self._running, _TICK, FIRST_COMPLETED)
        return [(self._running.pop(each), _result(each)) for each in list(self._running)
                if each in done]  # fmt: skip


def _making(maker: Maker) -> Callable[[PlannedRun, Path | None], Row | Exception]:
    return maker.attempt


def _result(made: Future[Row | Exception]) -> Row | Exception:
    lost = made.exception()
    return lost if isinstance(lost, WorkerLost) else made.result()
