"""The audit of lying clients: the accuracy that a share of them costs, and what one liar can do.

Privacy hides liars, too: a server that learns nothing about a client cannot tell a forged report of
bits from an honest one. No honest randomiser makes forged reports, yet they are accepted. A report
is forged for a direction, which has a number for each weight. Among all reports that the wire
format allows, it is the one whose estimate goes furthest in that direction. If the format of the
reports is unknown here, we use the best of some honest reports of a vector in that direction, so
that any mechanism can be attacked.

In expectation, an honest report of a bounded vector moves an estimate by what the bound allows. A
forged report moves it by what the *encoding* allows, which grows with the noise. (Cheu, Smith,
Ullman, "Manipulation Attacks in Local Differential Privacy", S&P 2021.)

In a run with liars, they work together: they pool their examples, train on them as an honest client
would, and send the reports that ``Forger`` makes from the resulting update, each through its own
runtime. Ledgers, wire format and server are the same as in any run.

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
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import shared_settings
from fedldp.audit.efforts import QUICK, Effort, Lie
from fedldp.audit.harness import loop_of, population_of
from fedldp.audit.inputs import check_one_sum
from fedldp.audit.results import AttackResult, Audit, Estimate
from fedldp.core.bounding import LARGEST_WEIGHT
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.locks import scratch
from fedldp.core.randomness import Source, Stream, declare
from fedldp.ledgers.columns import MemoryLedger
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.packing import packed_bytes
from fedldp.mechanisms.rotation import Rotation
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import (
    Batch,
    Client,
    Encoder,
    LocalUpdate,
    Sender,
    Senders,
    ServerRole,
    State,
    Update,
)
from fedldp.protocol.server_loop import Evaluation, Round, Transport
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Counted, Report, Reports, RoundRequest, Sensitive
from fedldp.reporting.scores import evaluation
from fedldp.secure_sum.client import SummedEncoder
from fedldp.simulation.executors import Executor, InProcess, Packed, answers_of
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.participation import of_each_client, participants
from fedldp.simulation.population import Population
from fedldp.simulation.shuffler import Counting, world_of_seed

FACTOR = 100.0
_HONEST = 32
"""The number of honest reports from which the best is chosen."""
_WEIGHT = 1e9
"""The weight of a forged report, if it has one."""

Floats = NDArray[np.floating]


def made_of(encoder: object) -> Mechanism | None:
    """Return the mechanism that makes an encoder's reports; None if reports are plain floats."""
    if isinstance(encoder, Mechanism):
        return None if isinstance(encoder, Plain) else encoder
    if not is_dataclass(encoder):
        return None
    found = (made_of(getattr(encoder, field.name)) for field in fields(encoder))
    return next((one for one in found if one is not None), None)


def _inner(encoder: Encoder) -> Encoder:
    """Return the encoder of reports, without the masks of a secure sum."""
    return encoder.inner if isinstance(encoder, SummedEncoder) else encoder


def against(update: Update, broadcast: Broadcast) -> Floats:
    """Return the direction opposite to one client's true update."""
    weights: NDArray[np.float32] = np.asarray(update.rows)[0]
    return broadcast.weights.astype(np.float64) - weights


def _anywhere(index: int, update: Any, broadcast: Broadcast) -> NDArray[np.float64]:
    stream = Stream.simulation(seed=0, round=broadcast.round, client=index, purpose="lies")
    return stream.generator().choice([-1.0, 1.0], broadcast.weights.size)


@dataclass(frozen=True)
class Forger:
    """An encoder that forges what an honest client's encoder would send.

    Attributes:
        encoder: the encoder of an honest client.
        share: the share of a modulus that one liar uses, where reports are added modulo a number.
        bits: the number of bits of the modulus, if the encoder does not state the modulus.
        towards: returns the direction for an update and a broadcast.
    """

    encoder: Encoder
    share: float
    bits: int
    towards: Callable[[Any, Broadcast], Floats] = against

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return the honest encoder's event, which is all that the ledger sees."""
        return self.encoder.event(phase, round)

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the reports of clients that lie."""
        return each_alone(self._report, update, broadcast, senders)

    def _report(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        honest = alone(self.encoder, Sensitive(None), broadcast, sender)
        direction = self.towards(update.open(), broadcast)
        return self.forge(honest, direction, sender, broadcast.round)

    def forge(self, honest: Report, direction: Floats, sender: Sender, round: int) -> Report:
        """Return the report that goes furthest; the arguments are those of ``payload``."""
        payload = self.payload(honest, direction, sender, round)
        weight = None if honest.weight is None else _WEIGHT
        return replace(honest, payload=payload, weight=weight)

    def payload(self, report: Report, direction: Floats, sender: Sender, round: int) -> bytes:
        """Return the payload that goes furthest.

        Args:
            report: an honest report of the same format.
            direction: shape (d,).
            sender: whose report it is.
            round: the report's round.
        """
        mechanism = made_of(self.encoder)
        if isinstance(mechanism, SharedGaussian):
            turned = Rotation(direction.size, round).forward(direction[None].astype(np.float64))[0]
            most = int(self.share * ((1 << (mechanism.bits - 1)) - 1))
            return mechanism.words.pack(most * _signs(turned)).tobytes()
        if isinstance(mechanism, ClippedCodes):
            most = int(self.share * ((1 << (self.bits - 1)) - 1))
            return (most * _signs(direction)).astype("<i8").tobytes()
        if len(report.payload) == packed_bytes(report.size):
            return np.packbits(direction > 0).tobytes()
        if mechanism is None:
            return (LARGEST_WEIGHT / 2 * _signs(direction)).astype("<f4").tobytes()
        furthest = mechanism.furthest(direction)
        return self._best(mechanism, direction, sender) if furthest is None else furthest

    def _best(self, mechanism: Mechanism, direction: Floats, sender: Sender) -> bytes:
        values = _signs(direction).astype(np.float64) * FACTOR
        stream = sender.fresh("mechanism")
        found = [mechanism.encode(values, stream) for _ in range(_HONEST)]

        def reached(payload: bytes) -> float:
            aggregate = mechanism.aggregate(direction.size)
            aggregate.add(payload)
            return float(aggregate.mean() @ direction)

        return max(found, key=reached)


def _signs(direction: Floats) -> NDArray[np.int64]:
    return np.where(direction > 0, 1, -1).astype(np.int64)


def _bits(config: RunConfig, problem: Problem) -> int:
    """Return the number of bits of the modulus of a system's sums; 64 if there is no modulus."""
    check_one_sum(config)
    summing = config.algorithm(problem).summing()
    return 64 if summing is None else summing.bits


def accuracy_of(
    config: RunConfig, inputs: Inputs, attack: Lie | None, liars: Sequence[int]
) -> tuple[float, str]:
    """Run a configuration with lying clients; return the accuracy and why it stopped early."""
    scheduled = config.with_schedule(draws_of_seed(config.seed))
    with scratch() as folder:
        population = population_of(scheduled, inputs, folder)
        byzantine = _ByzantineRun(
            population, attack, frozenset(liars), scheduled.algorithm(inputs.problem).server()
        )
        try:
            return byzantine.run()[-1].accuracy or 0.0, ""
        except FedldpError as error:
            labels = inputs.dataset.test.labels
            return float(np.bincount(labels).max() / labels.size), str(error)


@dataclass(eq=False)
class _ByzantineRun:
    """The clients of a run, some of whom lie, and its server."""

    population: Population
    attack: Lie | None
    liars: frozenset[int]
    server: ServerRole
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    pooled: dict[int, Update] = field(default_factory=dict)
    state: State = field(init=False)

    def run(self) -> list[Round]:
        """Run all rounds."""
        config = self.population.config
        rounds: list[Round] = []

        def keep(state: State, record: Round) -> None:
            self.state = state
            rounds.append(record)

        def tested(broadcast: Broadcast) -> Evaluation | None:
            if broadcast.round <= config.rounds:
                return None
            return evaluation(Executor(self.population, self.ledger).scores(broadcast))[0]

        self.state = self.server.initial(draws_of_seed(config.seed)(0))
        loop = loop_of(config, self.server, self._transport(), config.rounds, tested)
        loop.go(self.state, keep)
        return rounds

    def _transport(self) -> Transport:
        config = self.population.config
        direct, delays = InProcess(self._answers), config.composition.channel.delays
        if delays is None:
            return direct
        return Counting(direct, delays, config.num_clients, world_of_seed(config.seed))

    def _answers(
        self, request: RoundRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        honest = [each for each in clients if each not in self.liars] if self.liars else clients
        yield from Executor(self.population, self.ledger).answers(request, honest)
        for client in filter(self.liars.__contains__, clients):
            yield from answers_of(self._liar(client), request, [client])

    def _liar(self, index: int) -> ClientRuntime:
        """Return the runtime of a client that lies."""
        population = self.population
        own = population.client(index, self.state.round).examples
        role = population.role(index)
        match self.attack:
            case "labels":
                classes = population.problem.num_classes
                own = replace(own, labels=(own.labels + 1) % classes)
            case "update":
                role = replace(role, local_update=_Pooled(self, turned=True))
            case _:
                share, bits = 0.5 / len(self.liars), _bits(population.config, population.problem)
                towards = against if self.attack == "report" else partial(_anywhere, index)
                encoder: Encoder = Forger(_inner(role.encoder), share, bits, towards)
                if isinstance(role.encoder, SummedEncoder):
                    encoder = replace(role.encoder, inner=encoder)
                role = replace(role, local_update=_Pooled(self, turned=False), encoder=encoder)
        return ClientRuntime.of_one(
            index=index,
            examples=own,
            role=role,
            policy=population.policy,
            keys=SimulationKeys(population.config.seed, index),
            store=population.store(index),
            ledgers=self.ledger,
        )

    def found(self, broadcast: Broadcast, client: Client) -> Update:
        """Return the update from the pooled examples, which is computed only once per round."""
        round = broadcast.round
        if round not in self.pooled:
            train, members = self.population.dataset.train, self.population.members
            rows = np.concatenate([members[index] for index in sorted(self.liars)])
            own = replace(client, examples=train.taken(rows))
            self.pooled[round] = self.population.local_update(broadcast, Batch.of_one(own)).open()
        return self.pooled[round]


@dataclass(frozen=True, eq=False)
class _Pooled(LocalUpdate):
    """A local update on the examples of all liars, optionally reversed and scaled up."""

    byzantine: _ByzantineRun
    turned: bool

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        update = self.byzantine.found(broadcast, batch.alone(0))
        if not self.turned:
            return Sensitive(update)
        turned = broadcast.weights + FACTOR * against(update, broadcast)
        return Sensitive(replace(update, rows=turned.astype(np.float32)[None]))


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
        self._config, self._bits = config, _bits(config, problem)
        self._stores: defaultdict[int, MemoryStore] = defaultdict(MemoryStore)
        self._draws = draws_of_seed(config.seed)
        self._server = config.algorithm(problem).inside().server()
        self._summing = config.algorithm(problem).summing()
        self._encoders = of_each_client(config, config.algorithm(problem).encoder)
        self.clients: Sequence[int] = participants(config, 1, self._draws)
        self.state: State = self._server.initial(self._draws(0))
        broadcast, nothing = self._server.publish(self.state), Sensitive(None)
        self._honest = [
            alone(_inner(self._encoders[each]), nothing, broadcast, self._sender(each))
            for each in self.clients
        ]

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
        client = self.clients[place]
        forger = Forger(_inner(self._encoders[client]), 0.5, self._bits)
        return forger.forge(self._honest[place], direction, self._sender(client), 1)

    def after(self, place: int, report: Report) -> NDArray[np.float64]:
        """Return the weights after the round with the given report from the client, shape (d,)."""
        reports = [*self._honest[:place], report, *self._honest[place + 1 :]]
        incoming: Iterator[Report | Counted] = iter(reports)
        if self._summing is not None:
            incoming = iter([self._summing.summed(1, reports)])
        return self._server.read(self.state, incoming, self._draws(1)).astype(np.float64)

    def _amplification(self, place: int) -> float | None:
        mechanism = made_of(_inner(self._encoders[self.clients[place]]))
        if mechanism is None or isinstance(mechanism, ClippedCodes):
            return None
        report = self.forged(place, np.ones(self.state.weights.size))
        aggregate = mechanism.aggregate(report.size)
        aggregate.add(report.payload)
        honest = mechanism.expected(np.full(report.size, FACTOR))
        return float(np.abs(aggregate.mean()).max() / np.abs(honest).max())

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
