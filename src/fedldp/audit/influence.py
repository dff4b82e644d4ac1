"""The largest change of the weights that one client of a round can cause, whatever it sends.

The server step gets the reports of a round. All clients but one report no update. The report from
the remaining client is forged, to go as far as possible in one direction, and then in the opposite
direction. Every coordinate of a report moves its own weight, or, behind a rotation, all weights by
as much as its size allows. So no two reports from one client make a larger difference if the server
step is linear. Sums modulo a power of two have no furthest report, so half of the modulus is tried
there, because more might wrap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.audit.forged_reports import FACTOR, Forger, made_of
from fedldp.audit.inputs import check_one_sum
from fedldp.audit.results import AttackResult, Estimate
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import Encoder, Sender, State
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Broadcast, Counted, Report, Sensitive
from fedldp.secure_sum.client_role import SummedEncoder
from fedldp.simulation.participation import participants
from fedldp.simulation.population import Encoders


def influence(config: RunConfig, problem: Problem) -> AttackResult:
    """Return how far one client of the first round can move the weights after it.

    ``measured`` is the largest difference that two reports of the client make in any weight.
    Figures: "clients", the number of clients in the round; "norm", the L2 norm of the difference
    over all weights; "amplification", the estimate from a forged report, relative to the expected
    estimate from an honest report of the largest update; None if no mechanism makes the reports.
    """
    scheduled = config.with_schedule(draws_of_seed(config.seed))
    step = FirstStep(scheduled, problem)
    return max((step.influence(place) for place in step.kinds), key=lambda one: one.advantage)


class FirstStep:
    """A server's first step on the reports of a round.

    Args:
        config: the run's configuration, with its schedule.
        problem: the shape of its data.
    """

    def __init__(self, config: RunConfig, problem: Problem) -> None:
        check_one_sum(config)
        self._config = config
        self._stores: defaultdict[int, MemoryStore] = defaultdict(MemoryStore)
        self._draws = draws_of_seed(config.seed)
        self._server = config.algorithm(problem).inside().server()
        self._summing = (
            config.algorithm(problem).summing()
            if config.composition.channel.kind == "sum"
            else None
        )
        self._encoders = Encoders(config, problem)
        self.clients: Sequence[int] = participants(config, 1, self._draws)
        self.state: State = self._server.initial(self._draws(0))
        self._broadcast: Broadcast = self._server.publish(self.state)
        self._honest = [self._of_no_update(client) for client in self.clients]

    @property
    def kinds(self) -> list[int]:
        """The index of one client for each kind of encoder."""
        found = {id(self._encoders[client]): place for place, client in enumerate(self.clients)}
        return sorted(found.values())

    def influence(self, place: int) -> AttackResult:
        """Return how far the client at an index of the round can move the weights."""
        ones = np.ones(self.state.weights.size)
        up, down = (self.after(place, self.forged(place, way * ones)) for way in (1.0, -1.0))
        return AttackResult(
            subject=self._config.name(),
            kind="influence",
            attack="the furthest report one way, then the other",
            measure="influence",
            measured=Estimate.exact(float(np.abs(up - down).max())),
            figures={
                "clients": len(self.clients),
                "norm": float(np.linalg.norm(up - down)),
                "amplification": self._amplification(place),
            },
        )

    def forged(self, place: int, direction: NDArray[np.float64]) -> Report:
        """Return the report from a client that goes furthest in a direction, shape (d,)."""
        sender = self._sender(self.clients[place])
        return self._forger(place).forge(self._honest[place], direction, sender, 1)

    def after(self, place: int, report: Report) -> NDArray[np.float64]:
        """Return the weights after the round with the given report from the client, shape (d,)."""
        reports = [*self._honest[:place], report, *self._honest[place + 1 :]]
        incoming: Iterator[Report | Counted] = iter(reports)
        if self._summing is not None:
            total = np.zeros(self._summing.size, np.uint64)
            for one in reports:
                total += self._summing.words(one).astype(np.int64).view(np.uint64)
            total &= np.uint64((1 << self._summing.bits) - 1)
            incoming = iter([self._summing.total(1, total, len(reports))])
        return self._server.read(self.state, incoming, self._draws(1)).astype(np.float64)

    def _amplification(self, place: int) -> float | None:
        mechanism = made_of(self._encoder(place))
        if mechanism is None or isinstance(mechanism, ClippedCodes):
            return None
        report = self.forged(place, np.ones(self.state.weights.size))
        aggregate = mechanism.aggregate(report.size)
        aggregate.add(report.payload)
        honest = mechanism.expected(np.full(report.size, FACTOR))
        return float(np.abs(aggregate.mean()).max() / np.abs(honest).max())

    def _forger(self, place: int) -> Forger:
        bits = 64 if self._summing is None else self._summing.bits
        return Forger(self._encoder(place), 0.5, bits)

    def _encoder(self, place: int) -> Encoder:
        encoder = self._encoders[self.clients[place]]
        return encoder.inner if isinstance(encoder, SummedEncoder) else encoder

    def _of_no_update(self, client: int) -> Report:
        encoder = self._encoders[client]
        inner = encoder.inner if isinstance(encoder, SummedEncoder) else encoder
        return alone(inner, Sensitive(None), self._broadcast, self._sender(client))

    def _sender(self, client: int) -> Sender:
        keys = SimulationKeys(self._config.seed, client)
        return Sender(
            index=client,
            num_examples=Sensitive(1),
            fresh=partial(keys.fresh, 1, 0),
            kept=keys.kept,
            store=self._stores[client],
        )
