"""PrivUnit for the direction of a vector, and a private scalar for its length. Simulation only.

Source: Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018 (arXiv 1812.00984): Algorithm 1, PrivUnit2,
and ScalarDP, which privatises the magnitude with an absolute error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureReport
from fedldp.core.bounding import check_releasable, scaled_down
from fedldp.core.numbers import check_at_least, round_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports
from fedldp.mechanisms.categories import LARGEST_EPSILON
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP, check_between
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.privunit import Cap, best_cap, check_simulated, read_direction

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PrivUnitScalar(Mechanism):
    """Clip x to an L2 norm of ``clip``; send its direction and length, each with its own budget.

    The direction u = x/||x|| is sent as V of the best ``Cap`` around u, in d dimensions (two if
    d = 1). The length r is rounded at random to one of the levels 0, clip/k, ..., clip, and the
    level's number goes through k-ary randomised response. With unbiased estimates V/m of u and R of
    r, R V/m estimates x without bias.

    ``privunit`` instead spends the whole budget on one direction that contains the length.

    Guarantee: pure ``epsilon`` for the whole report, the sum of both budgets. For the direction it
    holds in idealised real arithmetic, so this mechanism is for simulation only; other streams are
    refused.

    Args:
        epsilon: the budget of the whole report, at least 0.001.
        clip: the largest L2 norm of a vector of normalised coordinates, from 1e-9 to 1e9.
        length_share: the share of ``epsilon`` for the length, from 0.01 to 0.9; at most 32 is used.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "privunit_scalar"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    epsilon: float
    clip: float
    length_share: float = 0.1

    def __post_init__(self) -> None:
        check_at_least("epsilon", self.epsilon, 1e-3)
        check_between("clip", self.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_between("length_share", self.length_share, 0.01, 0.9)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> PrivUnitScalar:
        """Return the mechanism that spends ``settings.epsilon`` on a report."""
        return cls(settings.epsilon, settings.clip)

    @property
    def length(self) -> KRR:
        """The randomiser of the length: k + 1 levels, with the paper's k = ceil(e^(epsilon/3))."""
        epsilon = min(self.epsilon * self.length_share, LARGEST_EPSILON)
        return KRR(epsilon, math.ceil(math.exp(epsilon / 3)) + 1)

    def cap(self, size: int) -> Cap:
        """Return the cap of the direction of ``size`` coordinates."""
        return best_cap(self.epsilon - self.length.epsilon, max(size, 2))

    def event(self, size: int) -> PureReport:
        """Return the event with the sum of both epsilons, for ``size`` real numbers."""
        # The cap was chosen 1e-8 below its budget, which leaves room for the float's rounding.
        direction = Fraction(self.cap(size).epsilon) * (1 + Fraction(1, 10**9))
        total = round_up(direction + Fraction(self.length.realised_epsilon))
        return PureReport(epsilon=total, idealised=True)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return the first d coordinates of V as float32, then the level.

        Raises:
            PrivacyError: the stream is not simulated, or ``values`` must not be released.
        """
        check_releasable(values)
        check_simulated(self.name, stream)
        direction, length = self._parts(self.bound(values).reshape(-1))
        sent = self.length.encode(np.array([length]), stream)
        drawn = self.cap(values.size).draw(direction, stream)
        return drawn[: values.size].astype("<f4").tobytes() + sent

    def _parts(self, bounded: Floats) -> tuple[Floats, float]:
        """Return u, of at least two coordinates, and 2 r/clip - 1; if r is 0, any u will do."""
        wide = np.append(bounded, np.zeros(max(0, 2 - bounded.size)))
        largest = float(np.abs(wide).max())
        wide = wide / largest if largest > 0 else np.ones(wide.size)
        norm = math.sqrt((wide * wide).sum())
        return wide / norm, min(2 * (norm * largest / self.clip) - 1, 1.0)

    def furthest(self, direction: NDArray[np.floating]) -> bytes:
        """Return the corner of the cube with the largest length; see ``Mechanism.furthest``."""
        longest = (self.length.categories - 1).to_bytes(self.length.payload_bits(1) // 8, "little")
        return np.where(direction > 0, 1, -1).astype("<f4").tobytes() + longest

    def payload_bits(self, size: int) -> int:
        """Return 32 bits for each coordinate, and 8 or 16 for the length."""
        return 32 * size + self.length.payload_bits(1)

    def aggregate(self, size: int) -> ScaledDirections:
        """Return an empty sum of reports of ``size`` coordinates."""
        return ScaledDirections(size, self.length, self.clip / 2 / self.cap(size).mean)

    def bound(self, values: NDArray[np.floating]) -> Floats:
        """Return ``values`` scaled down to the L2 norm ``clip``."""
        return scaled_down(values, self.clip)

    def variance(self, values: NDArray[np.floating]) -> Floats:
        """Return E[R^2] E[V^2]/m^2 - x^2, with E[V^2] as in ``PrivUnit.variance``."""
        bounded = self.bound(values)
        direction, length = self._parts(bounded.reshape(-1))
        cap = self.cap(values.size)
        square = direction[: values.size].reshape(values.shape) ** 2
        across = (1 - cap.mean_square) * (1 - square) / (direction.size - 1)
        spread = float(self.length.variance(np.array([length]))[0])
        length_square = (self.clip / 2) ** 2 * (spread + (1 + length) ** 2)
        return length_square * (cap.mean_square * square + across) / cap.mean**2 - bounded**2

    @classmethod
    def examples(cls) -> Sequence[PrivUnitScalar]:
        """Return instances for the contract tests."""
        return [cls(1.0, 1.0), cls(0.1, 5.0), cls(8.0, 0.5, 0.5), cls(500.0, 1000.0)]


class ScaledDirections(SummedReports):
    """The sum of the reports' directions times their estimated lengths."""

    def __init__(self, size: int, length: KRR, factor: float) -> None:
        # The factor is clip/(2 m).
        super().__init__(np.zeros(size), 4 * size + length.payload_bits(1) // 8, factor)
        self._length = length

    def read(self, payload: bytes) -> None:
        """Add a report's direction times its estimated length.

        Raises:
            RunError: it holds values that no report can hold.
        """
        split = 4 * self._sum.size
        direction = read_direction(payload[:split])
        level = self._length.aggregate(1)
        level.add(payload[split:])
        self._sum += (1 + level.mean()) * direction
