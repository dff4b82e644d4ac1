"""The audit of lying clients: the accuracy that a share of them costs, and what one liar can do.

``lying_clients`` says what they send, and how they work together. Privacy hides liars, too: a
server that learns nothing about a client cannot tell a forged report of bits from an honest one.

``influence`` is the largest change of the weights that one client of a round can cause, whatever it
sends. The server step gets the reports of a round. All clients but one report no update. The report
from the remaining client is forged, to go as far as possible in one direction, and then in the
opposite direction. Every coordinate of a report moves its own weight, or, behind a rotation, all
weights by as much as its size allows. So no two reports from one client make a larger difference if
the server step is linear. Sums modulo a power of two have no furthest report, so half of the
modulus is tried there, because more might wrap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import shared_settings
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.inputs import check_one_sum
from fedldp.audit.lying_clients import FACTOR, Forger, accuracy_of, made_of
from fedldp.audit.results import AttackResult, Audit, Estimate
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Source, declare
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import Encoder, Sender, State
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Broadcast, Counted, Report, Sensitive
from fedldp.secure_sum.client_role import SummedEncoder
from fedldp.simulation.inputs import Inputs
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
            incoming = iter([self._summing.summed(1, reports)])
        return self._server.read(self.state, incoming, self._draws(1)).astype(np.float64)

    def _amplification(self, place: int) -> float | None:
        mechanism = made_of(self._inner(self.clients[place]))
        if mechanism is None or isinstance(mechanism, ClippedCodes):
            return None
        report = self.forged(place, np.ones(self.state.weights.size))
        aggregate = mechanism.aggregate(report.size)
        aggregate.add(report.payload)
        honest = mechanism.expected(np.full(report.size, FACTOR))
        return float(np.abs(aggregate.mean()).max() / np.abs(honest).max())

    def _forger(self, place: int) -> Forger:
        bits = 64 if self._summing is None else self._summing.bits
        return Forger(self._inner(self.clients[place]), 0.5, bits)

    def _inner(self, client: int) -> Encoder:
        encoder = self._encoders[client]
        return encoder.inner if isinstance(encoder, SummedEncoder) else encoder

    def _of_no_update(self, client: int) -> Report:
        encoder = self._inner(client)
        return alone(encoder, Sensitive(None), self._broadcast, self._sender(client))

    def _sender(self, client: int) -> Sender:
        keys = SimulationKeys(self._config.seed, client)
        return Sender(
            index=client,
            num_examples=Sensitive(1),
            fresh=partial(keys.fresh, 1, 0),
            kept=keys.kept,
            store=self._stores[client],
        )


declare(Source.RUN, "liars")


def mean_lost(rows: Iterable[AttackResult]) -> Mapping[tuple[str, str, float], float]:
    """Return the accuracy lost, by system, attack and share, as the mean over seeds."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        if row.kind == "poisoning" and row.attack is not None:
            key = row.subject, row.attack, row.figures["share"]
            found.setdefault(key, []).append(row.figures["lost"])
    return {key: mean(values) for key, values in found.items()}


def poisoning(
    config: RunConfig,
    *,
    effort: Effort = QUICK,
    beside: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Audit[AttackResult]:
    """Run a configuration with a share of its clients lying.

    Args:
        config: the configuration; its seed is the first of the seeds.
        effort: how much to try: ``QUICK`` or ``FULL``.
        beside: whether to attack FedAvg with the same settings as well.
        tell: called with a progress line before each run.

    Returns:
        For each system what one client can do (game "influence"), and for each run its accuracy
        (game "poisoning"); the baseline is the accuracy of an honest run with the same seed.
        Figures: "share", the requested share of lying clients; "liars", their number, at least one
        if the share is above 0; "clients" and "seed" of the run; "rounds"; and the accuracy "lost".
        If a run did not reach its last round, ``note`` says why, and the accuracy is that of always
        answering the most frequent class.

    Raises:
        ConfigError: a share is invalid, or the configuration does not fit the data.
        FedldpError: the data cannot be loaded.
    """
    for share in effort.lying_shares:
        if not 0 < share < 1:
            raise ConfigError(f"share = {share}: give a number above 0 and below 1")
    rounds = min(config.rounds, effort.lying_rounds)
    configs = [_shortened(config, rounds)]
    if beside and not isinstance(config, fedavg):
        configs.append(_shortened(fedavg(**shared_settings(config)), rounds))
    influences: list[AttackResult] = []
    rows: list[AttackResult] = []
    for each in configs:
        for number in range(effort.lying_seeds):
            seeded = each.changed(seed=config.seed + number)
            inputs = Inputs.of(seeded, None, None)
            if not number:
                influences.append(influence(seeded, inputs.problem))
            rows += _rows(seeded, inputs, effort, tell)
    return Audit(subject=config.name(), seed=config.seed, rows=(*influences, *rows))


def _shortened(config: RunConfig, rounds: int) -> RunConfig:
    return config.changed(rounds=rounds, client_budget=None, person_budget=None)


def _rows(
    config: RunConfig, inputs: Inputs, effort: Effort, tell: Callable[[str], None]
) -> Iterator[AttackResult]:
    tell(f"poisoning {config.name()}, seed {config.seed}: nobody lies")
    honest, stopped = accuracy_of(config, inputs, None, ())
    row = AttackResult(
        subject=config.name(),
        kind="poisoning",
        attack=None,
        measure="accuracy",
        measured=Estimate.exact(honest),
        baseline=honest,
        note=stopped,
        figures={
            "share": 0.0, "liars": 0, "clients": config.num_clients, "seed": config.seed,
            "lost": 0.0, "rounds": config.rounds,
        },
    )  # fmt: skip
    yield row
    order = draws_of_seed(config.seed)(0)("liars").generator().permutation(config.num_clients)
    for attack in effort.lying_attacks:
        for share in effort.lying_shares:
            liars = tuple(sorted(order[: max(1, round(share * config.num_clients))].tolist()))
            tell(f"poisoning {config.name()}, seed {config.seed}: {attack}, {len(liars)} lie")
            accuracy, stopped = accuracy_of(config, inputs, attack, liars)
            lost = {"share": share, "liars": len(liars), "lost": honest - accuracy}
            yield replace(
                row,
                attack=attack,
                measured=Estimate.exact(accuracy),
                note=stopped,
                figures={**row.figures, **lost},
            )
