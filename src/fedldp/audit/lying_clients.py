"""Clients that lie, and the reports that they write.

No honest randomiser makes these reports, yet they are accepted. A report is forged for a direction,
which has a number for each weight. Among all reports that the wire format allows, it is the one
whose estimate goes furthest in that direction. If the format of the reports is unknown here, we use
the best of some honest reports of a vector in that direction, so that any mechanism can be
attacked.

In expectation, an honest report of a bounded vector moves an estimate by what the bound allows. A
forged report moves it by what the *encoding* allows, which grows with the noise. (Cheu, Smith,
Ullman, "Manipulation Attacks in Local Differential Privacy", S&P 2021.)

In a run with liars, they work together: they pool their examples, train on them as an honest client
would, and send the reports that ``Forger`` makes from the resulting update, each through its own
runtime. Ledgers, wire format and server are the same as in any run. A server drops reports that it
cannot count, and reports in a form that no honest report has (size, chunk, budget, whether there is
a weight; numbers within ``LARGEST_WEIGHT``). Every forged report is checked against these rules
before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.audit.harness import loop_of, population_of
from fedldp.audit.inputs import check_one_sum
from fedldp.core.bounding import LARGEST_WEIGHT, within_largest_weight
from fedldp.core.errors import FedldpError
from fedldp.core.locks import scratch
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.packing import packed_bytes
from fedldp.mechanisms.rotation import Rotation
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import (
    Batch,
    Client,
    Draw,
    Encoder,
    Sender,
    Senders,
    ServerRole,
    State,
    Update,
)
from fedldp.protocol.server_loop import Evaluation, Round, Transport
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Report, Reports, Sensitive
from fedldp.secure_sum.client_role import SummedEncoder
from fedldp.simulation.executors import Serial
from fedldp.simulation.in_process import InProcess, Packed, SentRequest, answers_of
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.population import Population
from fedldp.simulation.shuffler import Counting, world_of_seed

Lie = Literal["report", "random", "update", "labels"]
"""``report``: a forged report, against the true update. ``random``: a forged report in a random
direction. ``update``: an honest report of an update that is reversed and ``FACTOR`` times as long.
``labels``: everything is honest except the labels, each of which is replaced by the next class."""

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


@dataclass(frozen=True)
class Forger:
    """Writes forged reports.

    Attributes:
        encoder: the encoder of an honest client.
        share: the share of a modulus that one liar uses, where reports are added modulo a number.
        bits: the number of bits of the modulus, if the encoder does not state the modulus.
    """

    encoder: Encoder
    share: float
    bits: int

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
            return mechanism.pack(most * _signs(turned)).tobytes()
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


@dataclass(frozen=True)
class Forged:
    """An encoder that forges what an honest client's encoder would send.

    Attributes:
        forger: writes the report.
        towards: returns the direction for an update and a broadcast.
        accepts: returns whether the server accepts a report, given an honest one.
    """

    forger: Forger
    towards: Callable[[Any, Broadcast], Floats]
    accepts: Callable[[Report, Report], bool]

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return the honest encoder's event, which is all that the ledger sees."""
        return self.forger.encoder.event(phase, round)

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the reports of clients that lie."""
        return each_alone(self._report, update, broadcast, senders)

    def _report(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        honest = alone(self.forger.encoder, Sensitive(None), broadcast, sender)
        direction = self.towards(update.open(), broadcast)
        report = self.forger.forge(honest, direction, sender, broadcast.round)
        assert self.accepts(report, honest), "the server refuses a forged report"
        return report


def forging(encoder: Encoder, make: Callable[[Encoder], Forged]) -> Encoder:
    """Return an encoder whose reports are forged, even inside a secure sum."""
    if isinstance(encoder, SummedEncoder):
        return replace(encoder, inner=make(encoder.inner))
    return make(encoder)


def against(update: Update, broadcast: Broadcast) -> Floats:
    """Return the direction opposite to one client's true update."""
    weights: NDArray[np.float32] = np.asarray(update.rows)[0]
    return broadcast.weights.astype(np.float64) - weights


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
            scores = list(Serial(self.population, self.ledger).scores(broadcast))
            total = sum(score.total for score in scores)
            right, loss = sum(score.right for score in scores), sum(s.loss for s in scores)
            return Evaluation(right / total, loss / total)

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
        self, request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        honest: Sequence[int] = clients
        if self.liars:
            honest = [client for client in clients if client not in self.liars]
        yield from Serial(self.population, self.ledger).answers(request, honest)
        for client in clients if self.liars else ():
            if client in self.liars:
                yield from answers_of(self._liar(client), request, [client])

    def _liar(self, index: int) -> ClientRuntime:
        """Return the runtime of a client that lies."""
        population = self.population
        own = population.client(index, self.state.round).examples
        role = population.role(index)
        match self.attack:
            case "labels":
                own = self._shifted(own)
            case "update":
                role = replace(role, local_update=_Pooled(self, turned=True))
            case _:
                towards = against if self.attack == "report" else partial(_anywhere, index)
                accepts = partial(accepts_report, self.server, self.state, self._draw)
                make = partial(self._forged, towards, accepts)
                encoder = forging(role.encoder, make)
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

    def _forged(self, towards: Any, accepts: Any, encoder: Any) -> Forged:
        config = self.population.config
        share = 0.5 / max(1, len(self.liars))
        return Forged(
            Forger(encoder, share, sum_bits(config, self.population.problem)), towards, accepts
        )

    def _draw(self, purpose: str) -> Stream:
        return draws_of_seed(self.population.config.seed)(self.state.round)(purpose)

    def _shifted(self, examples: Examples) -> Examples:
        classes = self.population.problem.num_classes
        return replace(examples, labels=(examples.labels + 1) % classes)

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
class _Pooled:
    """A local update on the examples of all liars, optionally reversed and scaled up."""

    byzantine: _ByzantineRun
    turned: bool

    def group(self, most_examples: int) -> int:
        return 1

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        update = self.byzantine.found(broadcast, batch.alone(0))
        if not self.turned:
            return Sensitive(update)
        turned = broadcast.weights + FACTOR * against(update, broadcast)
        return Sensitive(replace(update, rows=turned.astype(np.float32)[None]))


def _anywhere(index: int, update: Any, broadcast: Broadcast) -> NDArray[np.float64]:
    stream = Stream.simulation(seed=0, round=broadcast.round, client=index, purpose="lies")
    return stream.generator().choice([-1.0, 1.0], broadcast.weights.size)


def sum_bits(config: RunConfig, problem: Problem) -> int:
    """Return the number of bits of the modulus of a system's sums; 64 if there is no modulus."""
    check_one_sum(config)
    summing = config.algorithm(problem).summing()
    return 64 if summing is None else summing.bits


def accepts_report(
    server: ServerRole, state: State, draw: Draw, report: Report, honest: Report
) -> bool:
    """Return whether a server accepts a report, by the rules of ``deployment.reports``.

    A secure sum sees only a report's form, not its content.
    """
    alike = all(getattr(report, n) == getattr(honest, n) for n in ("size", "chunk", "epsilon"))
    weighted = (report.weight is None) == (honest.weight is None)
    if not alike or not weighted or len(report.payload) != len(honest.payload):
        return False
    if server.dialogue is not None:
        return True
    with np.errstate(all="ignore"):
        return within_largest_weight(server.read(state, iter([report]), draw))
