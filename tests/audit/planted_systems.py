"""Systems with one mistake each in what a client does, beside one that makes none."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import planted
from pydantic import Field

from fedldp.accounting.events import Event
from fedldp.accounting.statement import Claim
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import open_finite
from fedldp.algorithms.server_update import Aggregate, ServerUpdate
from fedldp.algorithms.settings import LearningRate, Positive
from fedldp.core.errors import PrivacyError
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.parts.changes import each_alone
from fedldp.protocol.roles import Sender, Senders, ServerSide, State
from fedldp.protocol.wire import Broadcast, Report, Reports


class RightConfig(RunConfig):
    """Clients send their change with Laplace noise: as private as it says."""

    system: Literal["planted_systems:RightConfig"] = "planted_systems:RightConfig"
    num_clients: int = 10
    rounds: int = 3
    dataset: str = "digits"
    model: str = "logistic"
    learning_rate: LearningRate = 0.1
    epsilon: Positive = Field(1.0, description="of a report")

    @property
    def mechanism(self) -> Mechanism:
        return Laplace(1.0, self.epsilon)

    def encoder(self, size: int) -> Send:
        return Send(self.mechanism, size)

    def client_encoder(self, problem: Problem, client: int) -> Any:
        return self.encoder(self.layout(problem).size)

    def client_step(self, problem: Problem, device: Any) -> Any:
        return self.sgd(problem, device)

    def server(self, problem: Problem) -> ServerSide:
        mean = Aggregate(empty=self.mechanism.aggregate, gives="update")
        return ServerUpdate(estimate=mean).side(lambda draw: self.first_state(problem, draw))

    def claim(self) -> Claim | None:
        return None


@dataclass(frozen=True)
class Send:
    """What such a client sends."""

    mechanism: Mechanism
    size: int

    def event(self, exchange: int = 0) -> Event:
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


class NoClipConfig(RightConfig):
    """Noise for a norm of 1, and no clip."""

    system: Literal["planted_systems:NoClipConfig"] = "planted_systems:NoClipConfig"  # type: ignore[assignment]

    @property
    def mechanism(self) -> Mechanism:
        return planted.MissingClip(1.0, self.epsilon)


class HalfNoiseConfig(RightConfig):
    """Noise for a distance of C, where two reports may be 2 C apart."""

    system: Literal["planted_systems:HalfNoiseConfig"] = "planted_systems:HalfNoiseConfig"  # type: ignore[assignment]

    @property
    def mechanism(self) -> Mechanism:
        return planted.LaplaceForC(1.0, 2 * self.epsilon)


class CountTold(Send):
    """The number of examples is sent as it is, as a weight."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        report = super().one(update, broadcast, sender)
        return replace(report, weight=float(sender.num_examples.open()))


class CountToldConfig(RightConfig):
    system: Literal["planted_systems:CountToldConfig"] = "planted_systems:CountToldConfig"  # type: ignore[assignment]

    def encoder(self, size: int) -> Send:
        return CountTold(self.mechanism, size)


class SameNoise(Send):
    """Every round has the noise of the first: drawn from what a client has once in the run."""

    def stream(self, sender: Sender) -> Any:
        return sender.kept("mechanism")


class SameNoiseConfig(RightConfig):
    system: Literal["planted_systems:SameNoiseConfig"] = "planted_systems:SameNoiseConfig"  # type: ignore[assignment]

    def encoder(self, size: int) -> Send:
        return SameNoise(self.mechanism, size)


class RefusalTells(Send):
    """Training that gave NaN is refused, not replaced."""

    def change(self, update: Any, broadcast: Broadcast) -> Any:
        if not np.isfinite(update.open().rows).all():
            raise PrivacyError("training diverged")
        return super().change(update, broadcast)


class RefusalTellsConfig(RightConfig):
    system: Literal["planted_systems:RefusalTellsConfig"] = "planted_systems:RefusalTellsConfig"  # type: ignore[assignment]

    def encoder(self, size: int) -> Send:
        return RefusalTells(self.mechanism, size)


@dataclass(frozen=True)
class Remembers(Send):
    """A round's report, all but in clear, is made once and kept in the object."""

    kept: dict[int, Report] = field(default_factory=dict, compare=False)

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        if broadcast.round not in self.kept:
            loud = replace(self, mechanism=Laplace(1.0, 10_000.0))
            self.kept[broadcast.round] = Send.one(loud, update, broadcast, sender)
        return self.kept[broadcast.round]


class RemembersConfig(RightConfig):
    system: Literal["planted_systems:RemembersConfig"] = "planted_systems:RemembersConfig"  # type: ignore[assignment]

    def encoder(self, size: int) -> Send:
        return Remembers(self.mechanism, size)


class OneBit(Send):
    """One bit of the sum of the change: as private as it says."""

    def event(self, exchange: int = 0) -> Event:
        return self.bit.event(1)

    @property
    def bit(self) -> Mechanism:
        return TwoPoint(self.mechanism.epsilon_per_client_round)  # type: ignore[attr-defined]

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        total = np.array([self.change(update, broadcast).sum()])
        payload = self.bit.encode(total, self.stream(sender))
        return Report(round=broadcast.round, size=1, payload=payload, chunk=1)


class OneBitConfig(RightConfig):
    system: Literal["planted_systems:OneBitConfig"] = "planted_systems:OneBitConfig"  # type: ignore[assignment]

    def encoder(self, size: int) -> Send:
        return OneBit(self.mechanism, size)


class LessAndLess(Send):
    """The noise is that of what is stated in the first round, and shrinks from round to round."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        mechanism = Laplace(1.0, broadcast.round * self.event().epsilon)  # type: ignore[attr-defined]
        return Send.one(replace(self, mechanism=mechanism), update, broadcast, sender)


class LessAndLessConfig(RightConfig):
    system: Literal["planted_systems:LessAndLessConfig"] = "planted_systems:LessAndLessConfig"  # type: ignore[assignment]
    rounds: int = 12

    def encoder(self, size: int) -> Send:
        return LessAndLess(self.mechanism, size)


class ToldHowMuch(Send):
    """The server tells how large a change may be, and the noise does not follow."""

    def one(self, update: Any, broadcast: Broadcast, sender: Sender) -> Report:
        told = float(broadcast.public["clip"])
        mechanism = Laplace(1.0, told * self.event().epsilon)  # type: ignore[attr-defined]
        return Send.one(replace(self, mechanism=mechanism), update, broadcast, sender)


class ToldHowMuchConfig(RightConfig):
    system: Literal["planted_systems:ToldHowMuchConfig"] = "planted_systems:ToldHowMuchConfig"  # type: ignore[assignment]

    def encoder(self, size: int) -> Send:
        return ToldHowMuch(self.mechanism, size)

    def server(self, problem: Problem) -> ServerSide:
        return replace(super().server(problem), publish=tell_clip)


def tell_clip(state: State) -> Broadcast:
    return Broadcast(
        round=state.round, weights=state.weights, public={"clip": np.ones((), np.float32)}
    )
