"""Correct presets, and parts that make one mistake each."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import planted
import planted_categories

from fedldp.accounting.events import Event
from fedldp.algorithms.bounds import OfStatistics, Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import Algorithm, Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.presets.composed import StatisticsOf
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.settings import Count, LearningRate, Offers, Positive
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Source, declare
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.roles import ClientRole, Sender, Senders, ServerRole, State
from fedldp.protocol.updates import each_alone, open_finite
from fedldp.protocol.wire import Broadcast, Report, Reports

declare(Source.KEPT, "same noise")


class OnDigits(Offers):
    """The settings of a system on digits, with their defaults."""

    num_clients: Count = 10
    rounds: Count = 1
    dataset: str = "digits"
    model: str = "logistic"
    learning_rate: LearningRate = 0.1
    epsilon: Positive = 1.0


class InThreeRounds(OnDigits):
    rounds: Count = 3


class OfTwelve(OnDigits):
    num_clients: Count = 12
    epsilon: Positive = 2.0


@preset(InThreeRounds)
def right(settings: Settings) -> Composition:
    """Clients send their change with Laplace noise: as private as stated."""
    return Composition(
        bound=Unbounded(send="update"),  # the mechanism has its own bound
        calibration=Fixed(every=Laplace(1.0, settings.epsilon)),
    )


def by(algorithm: type[Algorithm]) -> Any:
    """Return the method of a configuration that makes the algorithm."""
    return lambda config, problem: algorithm(config, config.composition, problem)


@dataclass(frozen=True)
class Planted(Algorithm):
    """The parts of ``right``, with the mechanism and the encoder that the configuration names."""

    def release(self, client: int) -> Release:
        return replace(super().release(client), mechanism=self.mechanism)

    @property
    def mechanism(self) -> Mechanism:
        return self.config.noise(1.0, self.config.epsilon)  # type: ignore[no-any-return]

    def encoder(self, client: int) -> Any:
        return self.config.sends(self.mechanism, self.layout.size)


@dataclass(frozen=True)
class Send:
    """The reports of a correct client."""

    mechanism: Mechanism
    size: int

    def event(self, phase: int = 0, round: int = 1) -> Event:
        return self.mechanism.event(self.size)

    def __call__(self, update: Any, broadcast: Broadcast, senders: Senders) -> Reports:
        return each_alone(self.one, update, broadcast, senders)

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        change = self.change(update, broadcast)
        return Report(
            round=broadcast.round,
            size=self.size,
            payload=self.mechanism.encode(change, self.stream(sender)),
            chunk=self.size,
        )

    def change(self, update: Any, broadcast: Broadcast) -> Any:
        (weights,) = open_finite(update, broadcast).rows
        return weights - broadcast.weights.astype(np.float64)

    def stream(self, sender: Sender) -> Any:
        return sender.fresh("mechanism")


class RightConfig(right):
    """The correct system; see ``planted.changed`` for those with a mistake.

    Attributes:
        noise: makes the mechanism from a clip and an epsilon.
        sends: encodes the reports.
        algorithm: makes the algorithm.
    """

    system: Literal["planted_systems:RightConfig"] = "planted_systems:RightConfig"
    noise: ClassVar[Any] = Laplace
    sends: ClassVar[Any] = Send
    algorithm: ClassVar[Any] = by(Planted)


@staticmethod
def half_noise(clip: float, epsilon: float) -> Mechanism:
    """Return noise for a distance of C, although two reports may be 2 C apart."""
    return planted.LaplaceForC(clip, 2 * epsilon)


class CountTold(Send):
    """Sends the exact number of examples as a weight."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        report = super().one(update, broadcast, sender)
        return replace(report, weight=float(sender.num_examples.open()))


class SameNoise(Send):
    """Every round has the noise of the first round, drawn from the client's secret for the run."""

    def stream(self, sender: Sender) -> Any:
        return sender.kept("same noise")


class RefusalTells(Send):
    """Refuses to answer if training gave NaN, instead of replacing it."""

    def change(self, update: Any, broadcast: Broadcast) -> Any:
        if not np.isfinite(update.open().rows).all():
            raise PrivacyError("training diverged")
        return super().change(update, broadcast)


@dataclass(frozen=True)
class Remembers(Send):
    """Makes a round's report once, almost in clear, and keeps it in the object."""

    kept: dict[int, Report] = field(default_factory=dict, compare=False)

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        if broadcast.round not in self.kept:
            loud = replace(self, mechanism=Laplace(1.0, 10_000.0))
            self.kept[broadcast.round] = Send.one(loud, update, broadcast, sender)
        return self.kept[broadcast.round]


class OneBit(Send):
    """Sends one bit of the sum of the change: as private as stated."""

    def event(self, phase: int = 0, round: int = 1) -> Event:
        return self.bit.event(1)

    @property
    def bit(self) -> Mechanism:
        return TwoPoint(self.mechanism.epsilon_per_client_round)  # type: ignore[attr-defined]

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        total = np.array([self.change(update, broadcast).sum()])
        payload = self.bit.encode(total, self.stream(sender))
        return Report(round=broadcast.round, size=1, payload=payload, chunk=1)


class LessAndLess(Send):
    """The noise is as stated in the first round, and shrinks from round to round."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        mechanism = Laplace(1.0, broadcast.round * self.event().epsilon)  # type: ignore[attr-defined]
        return Send.one(replace(self, mechanism=mechanism), update, broadcast, sender)


class ToldHowMuch(Send):
    """The server sets how large a change may be, but the noise does not follow."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        told = float(broadcast.public["clip"])
        mechanism = Laplace(1.0, told * self.event().epsilon)  # type: ignore[attr-defined]
        return Send.one(replace(self, mechanism=mechanism), update, broadcast, sender)


class TellsClip(Planted):
    def server(self) -> ServerRole:
        return replace(super().server(), publish=tell_clip)


def tell_clip(state: State) -> Broadcast:
    return Broadcast(
        round=state.round, weights=state.weights, public={"clip": np.ones((), np.float32)}
    )


@preset(OnDigits)
def of_statistics(settings: Settings) -> Composition:
    """Clients send the statistics of their examples with Laplace noise: as private as stated."""
    return Composition(
        local=StatisticsOf(),
        bound=Unbounded(chart=OfStatistics(ridge=0.1)),  # the mechanism has its own bound
        calibration=Fixed(every=Laplace(0.5, settings.epsilon)),
    )


class Unclipped(Algorithm):
    """Noise for a norm of a half, without clipping."""

    def release(self, client: int) -> Release:
        unclipped = planted.MissingClip(0.5, self.config.epsilon)
        return replace(super().release(client), mechanism=unclipped)


class ToldTwice(Planted):
    """Does not tell a client that it may answer only once, so the server may ask it in every
    round."""

    def client(self, client: int, device: Any) -> ClientRole:
        return replace(super().client(client, device), max_participations=None)


@preset(OfTwelve)
def shuffled(settings: Settings) -> Composition:
    """Clients send one category through a shuffler of whole reports: as private as stated."""
    return Composition(
        bound=Unbounded(send="update"),
        calibration=Fixed(every=planted_categories.PublicK(settings.epsilon, 1.0)),
        channel=Channel(kind="shuffle"),
    )


class NamesSender(Algorithm):
    """The seed of a report follows from its client's number."""

    def release(self, client: int) -> Release:
        named = planted_categories.NamedSeed(self.config.epsilon, 1.0, client=client)
        return replace(super().release(client), mechanism=named)


class SameSeed(Encoder):
    """Every round uses the first round's random numbers, which come from the client's secret."""

    def __call__(self, update: Any, broadcast: Broadcast, senders: Senders) -> Reports:
        again = replace(senders, fresh=lambda purpose: senders.kept("same noise"))
        return super().__call__(update, broadcast, again)


class KeepsSeed(Algorithm):
    """A report does not name its sender, but two rounds show that the client was the same."""

    def encoder(self, client: int) -> Any:
        right = super().encoder(client)
        return SameSeed(**{each.name: getattr(right, each.name) for each in fields(right)})
