"""The work that every framework does; this file needs no package, so all environments read it.

One round of every workload: each client takes the server's weights, trains on its own examples with
plain SGD, clips every weight to [-radius, radius], replaces it by one of two values (eq. 2 of Sun,
Qian, Chen 2021) and sends it; the server takes the mean, and tests it on MNIST's 10,000 test
examples. All clients take part in every round, and have equally many examples.
"""

from __future__ import annotations

from dataclasses import dataclass

EPSILON, RADIUS = 1.0, 0.075  # of fedldp's recipe ldp-fl-mnist, per weight


@dataclass(frozen=True)
class Workload:
    """One size of the task.

    Attributes:
        name: of the cell's "workload".
        clients: number in each round.
        model: "cnn" (d = 21,840) or "logistic" (d = 7,850).
        examples: of each client.
        batch_size: of a step; one epoch is one pass over the client's examples.
        learning_rate: of the local SGD.
        rounds: in all; the first is not part of the seconds per round.
        repetitions: at most; the largest workloads are measured once.
    """

    name: str
    clients: int
    model: str
    examples: int
    batch_size: int
    learning_rate: float
    rounds: int = 3
    repetitions: int = 3


def _many(clients: int, repetitions: int = 3) -> Workload:
    return Workload(
        name=f"many-{clients}",
        clients=clients,
        model="logistic",
        examples=6,
        batch_size=6,
        learning_rate=0.1,
        repetitions=repetitions,
    )


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("cnn-100", 100, "cnn", examples=600, batch_size=10, learning_rate=0.03, rounds=2),
        *(_many(clients) for clients in (100, 1_000, 10_000)),
        *(_many(clients, repetitions=1) for clients in (100_000, 1_000_000)),
    )
}
