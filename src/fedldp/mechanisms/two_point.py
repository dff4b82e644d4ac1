"""The two-point randomiser: one bit for each coordinate.

Source: Duchi, Jordan, Wainwright 2018; with ranges (c, r) in Sun, Qian, Chen 2021, eq. 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property
from typing import ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import BitMechanism, MechanismSettings, check_block
from fedldp.mechanisms.comparison import ThresholdComparison
from fedldp.mechanisms.grids import check_between

_EXACT = Context(prec=60)

LIMITS = (1e-12, 32.0)
"""The least and largest epsilon. Beyond these, too few integers lie between the thresholds of the
two probabilities, or below the smaller threshold."""


@final
@dataclass(frozen=True)
class TwoPoint(BitMechanism):
    """Report a coordinate x in [-1, 1] as the bit 1 with probability 1/2 + x/(2K), else 0.

    K = (e^eps + 1)/(e^eps - 1), so K (2 bit - 1) estimates x without bias, with variance K^2 - x^2.

    Guarantee: pure ``epsilon_per_weight`` for one coordinate; d times that for a report of d
    coordinates. It holds exactly, whatever floating point does. A coordinate's bit is U < T, with U
    a uniform integer of B = ``integer_bits`` bits, always 64, and T an integer clamped to [Tmin,
    2^B - Tmin]. So both outcome probabilities lie between Tmin/2^B and 1 - Tmin/2^B for every
    input.

    Args:
        epsilon_per_weight: from 1e-12 to 32.

    Raises:
        ConfigError: ``epsilon_per_weight`` is out of range.
    """

    name: ClassVar[str] = "two_point"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    epsilon_per_weight: float
    integer_bits: Literal[64] = field(default=64, init=False)

    def __post_init__(self) -> None:
        check_between("epsilon_per_weight", self.epsilon_per_weight, *LIMITS)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> TwoPoint:
        """Return the mechanism that spends ``settings.epsilon`` per weight."""
        check_between("epsilon", settings.epsilon, *LIMITS)
        return cls(settings.epsilon)

    def event(self, size: int) -> BinaryRandomizedResponse:
        """Return ``size`` independent bits of ``epsilon_per_weight`` each (Theorem 1)."""
        realised = math.nextafter(self.realised_epsilon, math.inf)
        return BinaryRandomizedResponse(
            epsilon=min(realised, self.epsilon_per_weight), coordinates=size
        )

    @cached_property
    def threshold_min(self) -> int:
        """Tmin = ceil(2^B / (1 + e^eps)), exact in integers."""
        # 60 decimals are enough to be sure of the ceiling.
        odds = _EXACT.add(1, _EXACT.exp(Decimal(self.epsilon_per_weight)))
        share = _EXACT.divide(Decimal(1 << self.integer_bits), odds)
        return int(share.to_integral_value(rounding=ROUND_CEILING))

    @cached_property
    def realised_epsilon(self) -> float:
        """The pure epsilon that the integers actually give: ln((2^B - Tmin)/Tmin) <= epsilon."""
        odds = _EXACT.divide(
            Decimal((1 << self.integer_bits) - self.threshold_min), Decimal(self.threshold_min)
        )
        # The exact value is at most epsilon; rounding to a float must not push it above.
        return min(float(_EXACT.ln(odds)), self.epsilon_per_weight)

    @property
    def scale(self) -> float:
        """K as realised: 2^B / (2^B - 2 Tmin)."""
        full = 1 << self.integer_bits
        return full / (full - 2 * self.threshold_min)

    @cached_property
    def comparison(self) -> ThresholdComparison:
        """How bits are drawn; the thresholds lie symmetrically around 2^(B-1)."""
        return ThresholdComparison((1 << (self.integer_bits - 1)) - self.threshold_min)

    def thresholds(self, values: NDArray[np.floating]) -> list[int]:
        """Return the integer threshold T of each value, shape (d,): P(bit = 1) = T / 2^B."""
        middle = 1 << (self.integer_bits - 1)
        return [middle + self.comparison.offset(value) for value in values]

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate, most significant first; see ``Mechanism.encode``."""
        check_releasable(values)
        return self.comparison.draw(values.reshape(1, -1), [stream]).tobytes()

    def encode_many(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        """Return rows of bits, as ``encode`` packs them; see ``Mechanism.encode_many``."""
        check_block(values, streams)
        return self.comparison.draw(values, streams)

    def log_ratio(
        self,
        payloads: NDArray[np.uint8],
        first: NDArray[np.floating],
        second: NDArray[np.floating],
    ) -> NDArray[np.float64]:
        """Return ln of how many times likelier each report is for ``first`` than for ``second``.

        Args:
            payloads: as ``encode_many`` returns them, shape (n, bytes of a report).
            first: an input, shape (d,).
            second: another input, shape (d,).

        Returns:
            Shape (n,).
        """
        full = 1 << self.integer_bits
        pairs = list(zip(self.thresholds(first), self.thresholds(second), strict=True))
        ones = np.array([math.log(a / b) for a, b in pairs])
        zeros = np.array([math.log((full - a) / (full - b)) for a, b in pairs])
        bits = np.unpackbits(payloads, axis=1, count=len(pairs))
        ratio: NDArray[np.float64] = bits @ (ones - zeros) + zeros.sum()
        return ratio

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-1, 1]."""
        return np.clip(values.astype(np.float64), -1, 1)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return K^2 - x^2 (Lemma 2, with the term that the paper drops)."""
        return self.scale**2 - self.bound(values) ** 2

    def mean_variance(self, radii: Sequence[float]) -> tuple[float, float]:
        """Return the range of the variance of a mean of reports, whatever the weights are.

        It is (K^2 - 1) sum r_u^2/n^2 to K^2 sum r_u^2/n^2: Corollary 1 of Sun, Qian, Chen 2021, and
        its Lemma 3 for equal radii. Weights at an end of their range attain the lower end, because
        a report's variance there is r^2 (K^2 - 1). Weights at the centre attain the upper one.

        Args:
            radii: r_u of each client's range, in the unit of the weights, shape (n,). The ranges
                must not depend on private data; otherwise no epsilon holds.

        Raises:
            ConfigError: there are no radii, or one is not a finite number above 0.
        """
        if not len(radii) or not all(0 < radius < math.inf for radius in radii):
            raise ConfigError(f"radii = {list(radii)}: give one or more finite numbers above 0")
        spread = math.fsum(radius**2 for radius in radii) / len(radii) ** 2
        return (self.scale**2 - 1) * spread, self.scale**2 * spread

    def error_bound(self, radius: float, num_reports: int, failure: float) -> float:
        """Bound the error of one coordinate's mean, except with probability at most ``failure``.

        It is Theorem 2 of Sun, Qian, Chen 2021 with the constants of its proof: the lambda for
        which their eq. 9, Bernstein's inequality, equals beta,

            beta = 2 exp(-n lambda^2 / (2 r^2 K^2 + 4 lambda r e^eps / (3 (e^eps - 1)))).

        Four remarks:

        - The theorem's O(r sqrt(-log beta)/(eps sqrt(n))) omits two terms. K falls to 1, not to 0,
          as eps grows, so the bound never falls below r sqrt(2 ln(2/beta)/n). And if n is below
          about ln(2/beta), the part that falls as 1/n is the larger one.
        - Hoeffding's inequality gives r K sqrt(2 ln(2/beta)/n), which is always less.
        - The bound covers one coordinate: for all d at once, give ``failure``/d.
        - The error is measured against the mean of the clipped weights; the error of clipping is
        additional.

        Args:
            radius: r, of the range, in the unit of the weights; the result has the same unit.
            num_reports: n, one report from each client, all with ``epsilon_per_weight`` and one
                range.
            failure: beta, in (0, 1).

        Raises:
            ConfigError: an argument is out of range.
        """
        if not 0 < radius < math.inf:
            raise ConfigError(f"radius = {radius}: give a finite number above 0")
        if num_reports < 1:
            raise ConfigError(f"num_reports = {num_reports}: give 1 or more")
        if not 0 < failure < 1:
            raise ConfigError(f"failure = {failure}: give a number between 0 and 1")
        # In units of r: n x^2 = log (2 K^2 + 2 a x), and 2 e^eps/(e^eps - 1) = K + 1.
        log = math.log(2 / failure)
        a = (self.scale + 1) / 3
        root = math.sqrt((a * log) ** 2 + 2 * num_reports * log * self.scale**2)
        return radius * (a * log + root) / num_reports

    @classmethod
    def examples(cls) -> Sequence[TwoPoint]:
        """Return instances for the contract tests."""
        return [cls(1.0), cls(0.01), cls(8.0), cls(32.0)]
