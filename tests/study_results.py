"""What the committed results of the study say, for tests of the sentences about them."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.study.contestants import CONTESTANTS
from benchmarks.study.measuring import EPSILONS as EPSILONS
from benchmarks.study.measuring import STUDY
from fedldp.comparing import Cell, Results, Row

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"

PRIVUNIT, NEAREST = "ldp_fl, privunit", "ldp_fl, nearest_direction"
GAUSSIAN = "ldp_fl, gaussian"
TRUSTED = ("central_dp", "distributed_gaussian")
IN_A_SUM = "ldp_fl, two_point, bits in a secure sum"
EVERYWHERE = tuple(
    each.name for each in CONTESTANTS if each.against == "server" and each.is_calibrated
)
"""Those whose guarantee holds against a server that sees every report."""


@functools.cache
def runs() -> dict[Cell, list[Row]]:
    """Return the measured runs of every cell."""
    return {cell: found for cell, found in STUDY.standing(current()).items() if found}


@functools.cache
def current() -> list[Row]:
    """Return the committed lines: ``tests/study`` sees that all are of what the study is now."""
    return list(Results(RESULTS / "2026-11-22-study.jsonl").rows)


def measured(task: str, clients: int, epsilon: float) -> Iterator[str]:
    """Yield the contestants that are measured there and need no trust in the server."""
    for cell in runs():
        at_it = (cell.task, cell.clients, cell.epsilon) == (task, clients, epsilon)
        if at_it and cell.contestant in EVERYWHERE:
            yield cell.contestant


def _percent(epsilon: float, contestant: str, clients: int, task: str) -> list[float]:
    found = runs()[Cell(task, clients, contestant, epsilon)]
    return [100 * row["accuracy"] for row in found]


def at(epsilon: float, contestant: str, clients: int = 1_000, task: str = "mnist") -> float:
    """Return the mean of a cell in percent."""
    return statistics.mean(_percent(epsilon, contestant, clients, task))


def scatter(epsilon: float, contestant: str, clients: int, task: str) -> float:
    """Return the sample standard deviation of a cell in points."""
    return statistics.stdev(_percent(epsilon, contestant, clients, task))


def without_noise(clients: int = 1_000, task: str = "mnist") -> float:
    """Return what the reference has."""
    return at(0.0, "FedAvg, no noise", clients, task)


def lost(epsilon: float, clients: int = 1_000, task: str = "mnist") -> float:
    """Return what is lost against the better of the two who see no single report."""
    return without_noise(clients, task) - max(at(epsilon, each, clients, task) for each in TRUSTED)


def span(values: Iterable[float]) -> list[float]:
    """Return the least and the largest."""
    found = sorted(values)
    return [found[0], found[-1]]
