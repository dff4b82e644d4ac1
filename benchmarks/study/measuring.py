"""What the study measures, and in which order."""

from __future__ import annotations

from benchmarks.study.contestants import CONTESTANTS, UNPROTECTED
from benchmarks.study.tasks import TASKS
from fedldp.comparing import Cell, Comparison

EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)
CLIENTS = (100, 1_000, 10_000)
STUDY = Comparison((*CONTESTANTS, *UNPROTECTED), TASKS.values(), chosen_on=100, seeds=(0, 1, 2))
"""What is compared. Hyperparameters are chosen on one seed, and measured on the others."""

_CNN = ("FedAvg, no noise", "central_dp", "distributed_gaussian", "ldp_fl, privunit",
        "ldp_fl, gaussian")  # fmt: skip


FIRST = (
    ("mnist", 1_000, 4.0),
    ("mnist", 1_000, 1.0),
    ("mnist", 1_000, 16.0),
    ("mnist-gradients", 1_000, 4.0),
    ("mnist-gradients", 1_000, 1.0),
    ("mnist", 100, 4.0),
    ("mnist", 10_000, 4.0),
    ("covertype", 1_000, 4.0),
    ("mnist", 1_000, 2.0),
    ("mnist", 1_000, 8.0),
    ("mnist", 10_000, 1.0),
    ("mnist", 100, 16.0),
    ("covertype", 10_000, 1.0),
    ("mnist-gradients", 100, 4.0),
)
"""Task, clients and epsilon of the most telling comparisons, in their order."""


def panels() -> list[tuple[str, int, float]]:
    """Return task, clients and epsilon of all comparisons, the most telling first."""
    tasks = [name for name in TASKS if name != "mnist-cnn"]
    others = [
        (task, clients, epsilon)
        for epsilon in (4.0, 1.0, 16.0, 2.0, 8.0)
        for task in tasks
        for clients in (1_000, 100, 10_000)
    ]
    cnn = [("mnist-cnn", 1_000, epsilon) for epsilon in (4.0, 16.0, 1.0)]
    return list(dict.fromkeys([*FIRST, *others, *cnn]))


def cells() -> list[Cell]:
    """Return all cells, in the order in which they are measured.

    The first comparison whole; then those of rank 0, and of rank 1, in the most telling ones; then
    in all others; last those of rank 2. Of 10,000 clients, which take longest, rank 0 alone is
    among the early ones.
    """
    found: dict[Cell, int] = {}
    for number, (task, clients, epsilon) in enumerate(panels()):
        for contestant in (*CONTESTANTS, *UNPROTECTED):
            if task == "mnist-cnn" and contestant.name not in _CNN:
                continue
            if contestant.only is not None and task not in contestant.only:
                continue
            if contestant.role == "stated" and number > 0:
                continue  # no number of clients, nor a task, changes their statement's answer
            stage = 0
            if number > 0:
                early = number < len(FIRST) and (clients < 10_000 or contestant.rank == 0)
                stage = 5 if contestant.rank == 2 else 1 + contestant.rank + (0 if early else 2)
            cell = Cell(
                task, clients, contestant.name, epsilon if contestant.is_calibrated else 0.0
            )
            found.setdefault(cell, stage)
    return sorted(found, key=lambda cell: found[cell])  # which keeps the order within a stage
