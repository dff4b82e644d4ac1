"""Small runs over people: their configuration, and what a server tells of given counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedldp.algorithms.composition import Algorithm
from fedldp.core.randomness import Stream
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import HALF_WIDTH, PRIVATELY, State
from fedldp.protocol.wire import Report
from fedldp.simulation.settings import from_mapping

CHANNELS = ("named", "sum", "central")


def run_over_people(**settings: Any) -> Any:
    """Return a configuration for people at five sites."""
    common = {
        "system": "person_dp_sgd", "dataset": "x", "num_clients": 5, "channel": "sum",
        "model": "linear", "features": "unit-norm", "rounds": 12, "epsilon": 4.0, "clip": 0.44,
        "learning_rate": 8.0,
    }  # fmt: skip
    return from_mapping({**common, **settings})


def told_of(
    algorithm: Algorithm, counts: Sequence[Any], seed: int = 0
) -> tuple[State, dict[str, float]]:
    """Return a server's state and what it tells, once clients gave counts in its first round.

    Args:
        algorithm: of a run whose server gets single reports.
        counts: the counts of each client that answers, in steps of the grid.
        seed: draws the noise.
    """
    server, release = algorithm.server(), algorithm.release(0)
    draws, mechanism, reports = draws_of_seed(seed), release.at(1).mechanism, []
    for client, own in enumerate(counts):
        sums = np.zeros(release.coordinates)
        sums[: len(own)] = np.rint(own)
        stream = Stream.simulation(seed=seed, round=1, client=client, purpose="mechanism")
        payload = mechanism.encode(sums, stream)
        reports.append(Report(round=1, size=sums.size, chunk=sums.size, payload=payload))
    state, metrics = server.aggregate(server.initial(draws(0)), reports, draws(1))
    return state, dict(metrics)


def private(metrics: Any, name: str) -> tuple[float | None, float]:
    """Return a private figure, None where it is not seen, and half of its interval."""
    return metrics.get(PRIVATELY + name), metrics[PRIVATELY + name + HALF_WIDTH]
