"""Signal and noise of a simulated round: what the mean of reports would be without noise.

A simulation knows what its clients computed, so it can say why a model is bad: whether clients'
vectors were cut short, and whether the mean of what they sent drowns in noise. Such figures are
exact functions of private rows. No line of a statement covers them, and no deployment has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.bounds import Send
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import Estimated
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.none import Plain
from fedldp.protocol.roles import Batch, State, Update
from fedldp.protocol.wire import Broadcast
from fedldp.reporting import words
from fedldp.reporting.scores import Figure
from fedldp.simulation.participation import of_each_client

_CUT = 1e-3
"""A vector counts as clipped if its norm falls by more than this share; grids round, too."""


class Signal:
    """Sums what the clients of a round send before it is randomised.

    Args:
        config: the run's configuration.
        problem: the public facts.

    Raises:
        ConfigError: training itself randomises, so there is no vector without noise.
    """

    def __init__(self, config: RunConfig, problem: Problem) -> None:
        algorithm = config.algorithm(problem)
        self._releases = of_each_client(config, algorithm.release)
        self._by_examples = algorithm.parts.estimate.needs == "weight"
        if algorithm.parts.local.event(algorithm, self._releases[0].size) is not None:
            raise ConfigError(
                f"signal: system {config.name()} adds its noise in training, so no vector without "
                "noise exists; leave signal out"
            )
        self._begin()

    def _begin(self) -> None:
        self._mean: NDArray[np.float64] | None = None
        self._weight = 0.0
        self._norms: list[tuple[float, float]] = []
        self._found: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def add(self, update: Update, broadcast: Broadcast, batch: Batch) -> None:
        """Add what some clients computed; their rows are finite."""
        for place, client in enumerate(batch.indices):
            release = self._releases[client].at(broadcast.round)
            weight = len(batch.rows[place]) if self._by_examples else 1
            self._add(release, release.sent(update.alone(place)), broadcast, weight)

    def _add(self, release: Release, one: Update, broadcast: Broadcast, weight: int) -> None:
        rows, bound, mechanism = one.rows, release.bound, release.mechanism
        values = bound.apply(rows, broadcast)[0]
        expected = mechanism.expected(values).astype(np.float64)
        self._mean = weight * expected + (0 if self._mean is None else self._mean)
        self._weight += weight
        if not bound.bounds_people and not isinstance(mechanism, Plain):
            before = float(np.linalg.norm(bound.unbounded(rows, broadcast)[0].astype(np.float64)))
            after = bound.unit * float(np.linalg.norm(mechanism.bound(values)))
            self._norms.append((before, after))

    def compare(self, found: Estimated, gives: Send, state: State) -> None:
        """Compare the server's estimate with the mean without noise."""
        if found.values is None or self._mean is None:
            return
        bound = self._releases[0].at(state.round).bound
        twin = np.asarray(bound.restore(self._mean / self._weight, state), np.float64)
        start = state.weights.astype(np.float64)
        self._found = (
            found.change(gives, start).astype(np.float64),
            twin if bound.send == "update" else twin - start,
        )

    def figures(self) -> list[dict[str, Any]]:
        """Return the figures of the round, as JSON shows them, and begin the next round."""
        found: dict[str, float] = {}
        if self._norms:
            before, after = np.array(self._norms).T
            found["update_norm"] = float(before.mean())
            found["bounded_norm"] = float(after.mean())
            found["clients_clipped"] = float(np.mean(after < (1 - _CUT) * before))
        if self._found is not None:
            estimate, twin = self._found
            signal, norm = np.linalg.norm(twin), np.linalg.norm(estimate)
            found["signal_norm"] = float(signal)
            found["noise_norm"] = float(np.linalg.norm(estimate - twin))
            if signal and norm:
                found["cosine"] = float(np.dot(estimate, twin) / (signal * norm))
        self._begin()
        return [
            words.figure(Figure(metric=name, value=value, rows="uncovered"))
            for name, value in found.items()
        ]
