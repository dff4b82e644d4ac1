"""Systems whose clients make one mistake each, and a correct one.

The correct system is a preset. The others have its settings and parts, and an ``Algorithm`` with a
deliberate mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import planted
import planted_categories

from fedldp.accounting.events import Event
from fedldp.algorithms.bounds import OfStatistics, Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.channel import ShuffleReports
from fedldp.algorithms.composition import Algorithm, Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder, Release, open_finite
from fedldp.algorithms.settings import Count, LearningRate, Offer, Positive
from fedldp.algorithms.solution import StatisticsOf, sends_statistics
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Source, declare
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.roles import ClientRole, Sender, Senders, ServerRole, State
from fedldp.protocol.updates import each_alone
from fedldp.protocol.wire import Broadcast, Report, Reports

declare(Source.KEPT, "same noise")


@preset(
    Offer("num_clients", Count, "of the run", 10),
    Offer("rounds", Count, "of the run", 3),
    Offer("dataset", str, "of the run", "digits"),
    Offer("model", str, "of the run", "logistic"),
    Offer("learning_rate", LearningRate, "of the clients' SGD", 0.1),
    Offer("epsilon", Positive, "of a report", 1.0),
)
def right(settings: Settings) -> Composition:
    """Clients send their change with Laplace noise: as private as stated."""
    return Composition(
        bound=Unbounded(send="update"),  # the mechanism has its own bound
        calibration=Fixed(every=Laplace(1.0, settings.epsilon)),
    )


@dataclass(frozen=True)
class Planted(Algorithm):
    """The parts of ``right``, with the mechanism and the encoder that the configuration names."""

    def release(self, client: int) -> Release:
        return replace(super().release(client), mechanism=self.config.mechanism)

    def encoder(self, client: int) -> Any:
        return self.config.sends(self.config.mechanism, self.layout.size)


@dataclass(frozen=True)
class Send:
    """The reports of a correct client."""

    mechanism: Mechanism
    size: int

    def event(self, phase: int = 0) -> Event:
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
    """The correct system; systems with a mistake replace its encoder.

    Attributes:
        sends: encodes the reports.
    """

    system: Literal["planted_systems:RightConfig"] = "planted_systems:RightConfig"
    sends: ClassVar[Any] = Send

    @property
    def mechanism(self) -> Mechanism:
        return Laplace(1.0, self.epsilon)

    def algorithm(self, problem: Problem) -> Algorithm:
        return Planted(self, self.composition, problem)


class NoClipConfig(RightConfig):
    """Noise for a norm of 1, without clipping."""

    system: Literal["planted_systems:NoClipConfig"] = "planted_systems:NoClipConfig"

    @property
    def mechanism(self) -> Mechanism:
        return planted.MissingClip(1.0, self.epsilon)


class HalfNoiseConfig(RightConfig):
    """Noise for a distance of C, although two reports may be 2 C apart."""

    system: Literal["planted_systems:HalfNoiseConfig"] = "planted_systems:HalfNoiseConfig"

    @property
    def mechanism(self) -> Mechanism:
        return planted.LaplaceForC(1.0, 2 * self.epsilon)


class CountTold(Send):
    """Sends the exact number of examples as a weight."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        report = super().one(update, broadcast, sender)
        return replace(report, weight=float(sender.num_examples.open()))


class CountToldConfig(RightConfig):
    system: Literal["planted_systems:CountToldConfig"] = "planted_systems:CountToldConfig"
    sends: ClassVar[Any] = CountTold


class SameNoise(Send):
    """Every round has the noise of the first round, drawn from the client's secret for the run."""

    def stream(self, sender: Sender) -> Any:
        return sender.kept("same noise")


class SameNoiseConfig(RightConfig):
    system: Literal["planted_systems:SameNoiseConfig"] = "planted_systems:SameNoiseConfig"
    sends: ClassVar[Any] = SameNoise


class RefusalTells(Send):
    """Refuses to answer if training gave NaN, instead of replacing it."""

    def change(self, update: Any, broadcast: Broadcast) -> Any:
        if not np.isfinite(update.open().rows).all():
            raise PrivacyError("training diverged")
        return super().change(update, broadcast)


class RefusalTellsConfig(RightConfig):
    system: Literal["planted_systems:RefusalTellsConfig"] = "planted_systems:RefusalTellsConfig"
    sends: ClassVar[Any] = RefusalTells


@dataclass(frozen=True)
class Remembers(Send):
    """Makes a round's report once, almost in clear, and keeps it in the object."""

    kept: dict[int, Report] = field(default_factory=dict, compare=False)

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        if broadcast.round not in self.kept:
            loud = replace(self, mechanism=Laplace(1.0, 10_000.0))
            self.kept[broadcast.round] = Send.one(loud, update, broadcast, sender)
        return self.kept[broadcast.round]


class RemembersConfig(RightConfig):
    system: Literal["planted_systems:RemembersConfig"] = "planted_systems:RemembersConfig"
    sends: ClassVar[Any] = Remembers


class OneBit(Send):
    """Sends one bit of the sum of the change: as private as stated."""

    def event(self, phase: int = 0) -> Event:
        return self.bit.event(1)

    @property
    def bit(self) -> Mechanism:
        return TwoPoint(self.mechanism.epsilon_per_client_round)  # type: ignore[attr-defined]

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        total = np.array([self.change(update, broadcast).sum()])
        payload = self.bit.encode(total, self.stream(sender))
        return Report(round=broadcast.round, size=1, payload=payload, chunk=1)


class OneBitConfig(RightConfig):
    system: Literal["planted_systems:OneBitConfig"] = "planted_systems:OneBitConfig"
    sends: ClassVar[Any] = OneBit


class LessAndLess(Send):
    """The noise is as stated in the first round, and shrinks from round to round."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        mechanism = Laplace(1.0, broadcast.round * self.event().epsilon)  # type: ignore[attr-defined]
        return Send.one(replace(self, mechanism=mechanism), update, broadcast, sender)


class LessAndLessConfig(RightConfig):
    system: Literal["planted_systems:LessAndLessConfig"] = "planted_systems:LessAndLessConfig"
    rounds: int = 12
    sends: ClassVar[Any] = LessAndLess


class ToldHowMuch(Send):
    """The server sets how large a change may be, but the noise does not follow."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        told = float(broadcast.public["clip"])
        mechanism = Laplace(1.0, told * self.event().epsilon)  # type: ignore[attr-defined]
        return Send.one(replace(self, mechanism=mechanism), update, broadcast, sender)


class TellsClip(Planted):
    def server(self) -> ServerRole:
        return replace(super().server(), publish=tell_clip)


class ToldHowMuchConfig(RightConfig):
    system: Literal["planted_systems:ToldHowMuchConfig"] = "planted_systems:ToldHowMuchConfig"
    sends: ClassVar[Any] = ToldHowMuch

    def algorithm(self, problem: Problem) -> Algorithm:
        return TellsClip(self, self.composition, problem)


def tell_clip(state: State) -> Broadcast:
    return Broadcast(
        round=state.round, weights=state.weights, public={"clip": np.ones((), np.float32)}
    )


@preset(
    Offer("num_clients", Count, "of the run", 10),
    Offer("rounds", Count, "of the run", 1),
    Offer("dataset", str, "of the run", "digits"),
    Offer("model", str, "of the run", "logistic"),
    Offer("learning_rate", LearningRate, "of no use", 0.1),
    Offer("epsilon", Positive, "of a report", 1.0),
)
def of_statistics(settings: Settings) -> Composition:
    """Clients send the statistics of their examples with Laplace noise: as private as stated."""
    return Composition(
        local=StatisticsOf(),
        bound=Unbounded(chart=OfStatistics(ridge=0.1)),  # the mechanism has its own bound
        shaped=sends_statistics,
        calibration=Fixed(every=Laplace(0.5, settings.epsilon)),
    )


class StatisticsConfig(of_statistics):
    """The correct system; systems with a mistake replace its release."""

    system: Literal["planted_systems:StatisticsConfig"] = "planted_systems:StatisticsConfig"

    def changed_release(self, release: Release) -> Release:
        return release

    def algorithm(self, problem: Problem) -> Algorithm:
        return ChangedRelease(self, self.composition, problem)


@dataclass(frozen=True)
class ChangedRelease(Algorithm):
    def release(self, client: int) -> Release:
        return self.config.changed_release(super().release(client))


class UnclippedStatisticsConfig(StatisticsConfig):
    """Noise for a norm of a half, without clipping."""

    system: Literal["planted_systems:UnclippedStatisticsConfig"] = (
        "planted_systems:UnclippedStatisticsConfig"
    )

    def changed_release(self, release: Release) -> Release:
        return replace(release, mechanism=planted.MissingClip(0.5, self.epsilon))


class CountedTwice(planted.MissingClip):
    """Noise for a norm of ``clip``, on twice the clipped value."""

    def encode(self, values: Any, stream: Any) -> bytes:
        return super().encode(2 * self.bound(values), stream)


class DoubledStatisticsConfig(StatisticsConfig):
    """Clips statistics, then counts every example twice."""

    system: Literal["planted_systems:DoubledStatisticsConfig"] = (
        "planted_systems:DoubledStatisticsConfig"
    )

    def changed_release(self, release: Release) -> Release:
        return replace(release, mechanism=CountedTwice(0.5, self.epsilon))


class ToldTwice(Planted):
    """Does not tell a client that it may answer only once, so the server may ask it in every
    round."""

    def client(self, client: int, device: Any) -> ClientRole:
        return replace(super().client(client, device), max_participations=None)


class OnceConfig(RightConfig):
    """Every client sends one bit, in one round only, which its own ledger enforces."""

    system: Literal["planted_systems:OnceConfig"] = "planted_systems:OnceConfig"
    participation: Any = "once"
    sends: ClassVar[Any] = OneBit


class OnceToldTwiceConfig(OnceConfig):
    system: Literal["planted_systems:OnceToldTwiceConfig"] = "planted_systems:OnceToldTwiceConfig"

    def algorithm(self, problem: Problem) -> Algorithm:
        return ToldTwice(self, self.composition, problem)


@dataclass(frozen=True)
class Category(Planted):
    """Reports one category, with a mechanism that may depend on the client."""

    def release(self, client: int) -> Release:
        return replace(Algorithm.release(self, client), mechanism=self.config.of_client(client))

    def encoder(self, client: int) -> Any:
        return Algorithm.encoder(self, client)


@preset(
    Offer("num_clients", Count, "of the run", 12),
    Offer("rounds", Count, "of the run", 1),
    Offer("dataset", str, "of the run", "digits"),
    Offer("model", str, "of the run", "logistic"),
    Offer("learning_rate", LearningRate, "of the clients' SGD", 0.1),
    Offer("epsilon", Positive, "of a report", 2.0),
)
def shuffled(settings: Settings) -> Composition:
    """Clients send one category through a shuffler of whole reports: as private as stated."""
    return Composition(
        bound=Unbounded(send="update"),
        calibration=Fixed(every=planted_categories.PublicK(settings.epsilon, 1.0)),
        channel=ShuffleReports(),
    )


class UnnamedConfig(shuffled):
    """Seeds are drawn at random."""

    system: Literal["planted_systems:UnnamedConfig"] = "planted_systems:UnnamedConfig"

    def of_client(self, client: int) -> Mechanism:
        return planted_categories.PublicK(self.epsilon, 1.0)

    def algorithm(self, problem: Problem) -> Algorithm:
        return Category(self, self.composition, problem)


class NamedConfig(UnnamedConfig):
    """The seed of a report follows from its client's number."""

    system: Literal["planted_systems:NamedConfig"] = "planted_systems:NamedConfig"

    def of_client(self, client: int) -> Mechanism:
        return planted_categories.NamedSeed(self.epsilon, 1.0, client=client)


class SameSeed(Encoder):
    """Every round uses the first round's random numbers, which come from the client's secret."""

    def __call__(self, update: Any, broadcast: Broadcast, senders: Senders) -> Reports:
        again = replace(senders, fresh=lambda purpose: senders.kept("same noise"))
        return super().__call__(update, broadcast, again)


class SameSeedConfig(UnnamedConfig):
    """A single report does not name its sender, but two rounds show that the client was the
    same."""

    system: Literal["planted_systems:SameSeedConfig"] = "planted_systems:SameSeedConfig"
    rounds: int = 2

    def algorithm(self, problem: Problem) -> Algorithm:
        return KeepsSeed(self, self.composition, problem)


@dataclass(frozen=True)
class KeepsSeed(Category):
    def encoder(self, client: int) -> Any:
        right = super().encoder(client)
        return SameSeed(**{each.name: getattr(right, each.name) for each in fields(right)})
