"""Mechanisms with one mistake each, and a correct one that uses floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fedldp.accounting.events import BinaryRandomizedResponse, Event, GaussianReport, PureReport
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.mechanisms import planned_games
from fedldp.audit.plans import planned_games as games_of_system
from fedldp.audit.playing import play
from fedldp.audit.results import Audit, GameResult
from fedldp.audit.systems import SystemGame
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import BitMechanism, Mechanism, MechanismSettings
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point_l1 import TwoPointL1
from fedldp.simulation.plan import problem_of


def audit(
    subject: str, classes: Sequence[type[Mechanism]], *, effort: Effort, confidence: float = 0.999
) -> Audit[GameResult]:
    """Play all games of some mechanisms."""
    games = [planned for cls in classes for planned in planned_games(cls, effort)]
    return play(subject, games, confidence=confidence, trials=None, seed=0)


def small_games(
    config: RunConfig,
    unit: str,
    *,
    adversary: str | None = None,
    how: str | None = "",
    problem: Problem | None = None,
    explore: int = 40,
) -> list[SystemGame]:
    """Return the small games about a unit, with fewer trials than the quick mode to explore.

    Args:
        config: the system.
        unit: the unit.
        adversary: against whom; anybody if None.
        how: what the server does, or "" for an honest one; anything if None.
        problem: the problem, if not that of the configuration.
        explore: how many trials choose the attack.
    """
    effort = replace(QUICK, system_explore=explore)
    return [
        game
        for game in games_of_system(config, problem or problem_of(config, None), effort)
        if isinstance(game, SystemGame)
        and game.lines[0].setting.startswith("small")
        and game.lines[0].unit == unit
        and adversary in (None, game.lines[0].adversary)
        and (how is None or (how in game.suffix if how else not game.suffix))
    ]


def changed(config: type[Any], **changes: Any) -> type[Any]:
    """Return the configuration of a system with other methods and class variables."""
    return type(config.__name__, (config,), {"__module__": __name__, **changes})


@dataclass(frozen=True)
class FloatBits(BitMechanism):
    """The two-point randomiser in float64: as private as stated, to within 1e-11 at epsilon 12."""

    name: ClassVar[str] = "float_bits"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    epsilon: float

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Self:
        return cls(settings.epsilon)

    @property
    def scale(self) -> float:
        return 1 / math.tanh(self.epsilon / 2)

    def event(self, size: int) -> Event:
        return BinaryRandomizedResponse(epsilon=self.epsilon, coordinates=size)

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        return 0.5 + self.bound(values) / (2 * self.scale)

    def uniform(self, size: int, stream: Stream) -> np.ndarray:
        return stream.generator().random(size)

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        bits = self.uniform(values.size, stream) < self.probabilities(values)
        return np.packbits(bits).tobytes()

    def bound(self, values: np.ndarray) -> np.ndarray:
        return np.clip(values.astype(np.float64), -1, 1)

    def variance(self, values: np.ndarray) -> np.ndarray:
        return self.scale**2 - self.bound(values) ** 2

    @classmethod
    def examples(cls) -> Sequence[Mechanism]:
        return [cls(1.0), cls(8.0)]


class Float32Probabilities(FloatBits):
    """LDP-FL's formula as written, 1/2 + (w - c)/(2 r K), with everything in float32."""

    center, radius = np.float32(1.0), np.float32(0.0075)

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        weights = self.center + self.radius * self.bound(values).astype(np.float32)
        scale = np.float32(2) * self.radius * np.float32(self.scale)
        return np.float32(0.5) + (weights - self.center) / scale

    def uniform(self, size: int, stream: Stream) -> np.ndarray:
        return stream.generator().random(size, dtype=np.float32)


class MissingClip(Laplace):
    """Noise for a norm of ``clip``, without clipping."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        with np.errstate(over="ignore"):
            scaled = values / self.ball.step
        steps = np.rint(np.clip(scaled, -(2.0**31), 2.0**31)).astype(np.int64)
        noisy = steps + self.noise(steps.size, stream)
        return noisy.clip(-(2**31), 2**31 - 1).astype("<i4").tobytes()


@dataclass(frozen=True)
class WrongK(FloatBits):
    """K = e^eps/(e^eps - 1) in place of (e^eps + 1)/(e^eps - 1)."""

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        return 0.5 - self.bound(values) * math.expm1(-self.epsilon) / 2


class LaplaceForC(Laplace):
    """Noise of scale clip/epsilon, although two vectors of norm C may be 2 C apart."""

    def event(self, size: int) -> PureReport:
        return PureReport(epsilon=self.epsilon_per_client_round / 2)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Self:
        return cls(settings.clip, 2 * settings.epsilon)


class GaussianForC(Gaussian):
    """The Gaussian with half of the deviation that its event states."""

    def event(self, size: int) -> GaussianReport:
        return Gaussian(self.clip, 2 * self.sigma).event(size)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Self:
        right = Gaussian.from_settings(settings)
        return cls(right.clip, right.sigma / 2)


class StreamTwice(FloatBits):
    """Uses the random numbers of the first half of the coordinates again for the second half."""

    def uniform(self, size: int, stream: Stream) -> np.ndarray:
        return np.resize(stream.generator().random(-(-size // 2)), size)


class OneStreamForAll(FloatBits):
    """Encodes many reports with the stream of the first."""

    def encode_many(self, values: np.ndarray, streams: Sequence[Stream]) -> np.ndarray:
        check_releasable(values)
        uniform = self.uniform(values.shape[1], streams[0])
        return np.packbits(uniform < self.probabilities(values), axis=1)


class SentRange(FloatBits):
    """Scales values by the largest one, which it also sends."""

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        return super().probabilities(values / max(np.abs(values).max(), 1e-9))

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        with np.errstate(over="ignore"):
            largest = np.float32(np.abs(values).max())
        return super().encode(values, stream) + largest.tobytes()

    def payload_bits(self, size: int) -> int:
        return 8 * (-(-size // 8) + 4)


class LengthTells(FloatBits):
    """Leaves out coordinates that are zero, to save bits."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        bits = self.uniform(values.size, stream) < self.probabilities(values)
        return np.packbits(bits[values != 0]).tobytes()


class RefusalTells(FloatBits):
    """Converts to float32, where values may become infinite, before it checks that they are
    finite."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        with np.errstate(over="ignore"):
            single = values.astype(np.float32) * np.float32(2)
        if not np.isfinite(single).all():
            raise PrivacyError("NaN or infinity")
        return super().encode(values, stream)


class TakesNaN(FloatBits):
    """Accepts NaN, which always becomes the bit 0, because no comparison with it is true."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        bits = self.uniform(values.size, stream) < self.probabilities(values)
        return np.packbits(bits).tobytes()


# Mistakes that show only at a few coordinates, values, sizes or reports


class RepeatingNoise(FloatBits):
    """The noise repeats after 70,000 coordinates, as from a buffer that is too short."""

    def uniform(self, size: int, stream: Stream) -> np.ndarray:
        return np.resize(stream.generator().random(min(size, 70_000)), size)


@dataclass(frozen=True)
class HalfNorm(TwoPointL1):
    """The L1 norm counts only one sign, so that of an alternating corner is half of the true
    norm."""

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        check_releasable(values)
        clipped = np.clip(values.astype(np.float64), -1, 1)
        norm = max(clipped.clip(min=0).sum(), -clipped.clip(max=0).sum())
        limit = self.l1_limit(values.size)
        return self.bits.encode(clipped * min(1.0, limit / max(norm, 1e-300)), stream)


class CertainWindow(FloatBits):
    """The answer is deterministic between 0.60 and 0.61."""

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        inside = (values > 0.60) & (values < 0.61)
        return np.where(inside, 1.0, super().probabilities(values))


class RangeOfSome(FloatBits):
    """Scales values by the largest one, if it is between 3 and 5."""

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        largest = np.abs(values).max()
        return super().probabilities(values / largest if 3 < largest < 5 else values)


class Unreadable(FloatBits):
    """Its reports are right, but the server cannot read them."""

    def aggregate(self, size: int) -> object:  # type: ignore[override]
        raise TypeError("no such thing")
