"""Systems with one mistake each, by the check that must notice it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from planted_mechanisms import OneStreamForAll

from fedldp.accounting.events import BinaryRandomizedResponse, Event
from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.calibration import Calibration, Fixed
from fedldp.algorithms.composition import Composition, Local
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.release import Release
from fedldp.algorithms.settings import Offers, Positive
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.none import Plain
from fedldp.testing.toys import MeanStep, ToyBits, ToyLocal


def composed_of(mechanism: Mechanism, local: Local | None = None) -> Composition:
    return Composition(
        local=local or ToyLocal(),
        bound=Unbounded(send="update"),
        calibration=Fixed(every=mechanism),
    )


class Undescribed(Offers):
    epsilon: Positive = 1.0


@preset(Undescribed)
def undescribed(settings: Settings) -> Composition:
    return composed_of(ToyBits(settings.epsilon))


class Unknown(Event):
    """No accountant knows it."""

    wire = "tests:Unknown"


@dataclass(frozen=True)
class StatesUnknown(ToyBits):
    def event(self, size: int) -> Any:
        return Unknown()


@preset()
def unknown(settings: Settings) -> Composition:
    return composed_of(StatesUnknown(1.0))


class ByNumber(Calibration):
    """Clients have different budgets, which no setting says."""

    meaning = None
    kind = ToyBits

    def mechanism(self, problem: Any, client: int) -> ToyBits:
        return ToyBits(1.0 + (client > 0))


@preset()
def by_number(settings: Settings) -> Composition:
    return Composition(local=ToyLocal(), bound=Unbounded(send="update"), calibration=ByNumber())


class Remembering(MeanStep):
    """The change grows with every training in this process."""

    def _trained(self, broadcast: Any, client: Any) -> Any:
        return super()._trained(broadcast, client) + np.float32(self.calls)


@dataclass(frozen=True, kw_only=True)
class RememberingLocal(Local):
    def __call__(self, algorithm: Any, device: Any) -> Any:
        return Remembering()


@preset()
def remembering(settings: Settings) -> Composition:
    return composed_of(Plain(), RememberingLocal())


COUNT = itertools.count(1)


@dataclass(frozen=True)
class Drifting(ToyBits):
    """Each time it is asked, it states a little less."""

    def event(self, size: int) -> BinaryRandomizedResponse:
        return BinaryRandomizedResponse(epsilon=1 + 1 / next(COUNT), coordinates=size)


@preset()
def drifting(settings: Settings) -> Composition:
    return composed_of(Drifting(1.0))


@preset()
def one_stream(settings: Settings) -> Composition:
    return composed_of(OneStreamForAll(1.0))


@dataclass(frozen=True)
class LengthTells(ToyBits):
    """A vector of zeros is sent with one byte less."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        return super().encode(values, stream) + b"\0" * bool(values.any())


@preset()
def length_tells(settings: Settings) -> Composition:
    return composed_of(LengthTells(1.0))


@dataclass(frozen=True)
class MeanOfNothing(ToyBits):
    """Without reports, its estimate is 0."""

    def aggregate(self, size: int) -> Any:
        found = super().aggregate(size)
        mean = found.mean
        found.mean = lambda: mean() if found._waiting else np.zeros(size)  # type: ignore[method-assign]
        return found


@preset()
def mean_of_nothing(settings: Settings) -> Composition:
    return composed_of(MeanOfNothing(1.0))


@dataclass(frozen=True, kw_only=True)
class Half(Unbounded):
    """It says that half of the coordinates are sent, and sends all."""

    def size(self, size: int) -> int:
        return size // 2


@preset()
def half_size(settings: Settings) -> Composition:
    return replace(composed_of(ToyBits(1.0)), bound=Half(send="update"))


@dataclass(frozen=True, kw_only=True)
class Longer(Release):
    """What is clipped is sent with one byte more."""

    def randomise(self, values: Any, *given: Any) -> Any:
        more = int(np.abs(values).max() > 1)
        return np.pad(super().randomise(values, *given), ((0, 0), (0, more)))


@preset()
def longer(settings: Settings) -> Composition:
    return replace(composed_of(ToyBits(1.0)), shaped=lambda release, _: Longer(**vars(release)))


@dataclass(frozen=True, kw_only=True)
class HalfEvent(Release):
    """It states what half of the epsilon would cost."""

    def event(self) -> Event:
        return ToyBits(0.5).event(self.coordinates)


@preset()
def half_event(settings: Settings) -> Composition:
    return replace(composed_of(ToyBits(1.0)), shaped=lambda release, _: HalfEvent(**vars(release)))


PLANTED: dict[Any, str] = {
    half_size: "length of a report",
    longer: "length of a report",
    half_event: "law",
    undescribed: "settings",
    unknown: "statement",
    by_number: "events",
    remembering: "run and resume",
    drifting: "what is charged",
    one_stream: "alone and in groups",
    length_tells: "boundary",
    mean_of_nothing: "server",
}
