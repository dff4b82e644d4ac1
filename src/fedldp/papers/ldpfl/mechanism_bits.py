"""Independently randomised bits: LDPFL's two theorems, and symmetric randomised response.

Source: Chamikara, Liu, Camtepe, Nepal, Grobler, Bertok, Khalil 2022, "Local Differential Privacy
for Federated Learning": eq. 11, Theorem 1 and Theorem 2 (eq. 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureCoordinates
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import exp_below
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Aggregate, Counts, Mechanism, MechanismSettings
from fedldp.mechanisms.grids import check_between
from fedldp.papers.ldpfl.bits import FULL, BitLaw, check_bits, randomise

Variant = Literal["symmetric", "theorem_1", "theorem_2"]

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 1e9
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-3, 1e6
LARGEST_EPSILON_PER_BIT = 32
"""Beyond this, too few integers lie below the threshold of the smaller probability."""

# Keeps the sum over all bits, each rounded up to a float, within the budget.
_SAFE_SIDE = 1 - Fraction(1, 2**50)


@dataclass(frozen=True)
class RandomisedBits(Mechanism):
    """Randomise each bit of a vector of L bits independently; a coordinate above 0 is the bit 1.

    With x = 2 epsilon/L, and positions counted from 0, the variants are:

    - "theorem_2": P(0 -> 0) = alpha e^x/(1 + alpha e^x); P(1 -> 1) is alpha/(1 + alpha) at even
      positions and 1/(1 + alpha^3) at odd ones (eq. 13);
    - "theorem_1": P(0 -> 0) is the same; P(1 -> 1) = 1/(1 + alpha);
    - "symmetric": P(1 -> 1) = P(0 -> 0) = e^y/(1 + e^y), y = epsilon/L (eq. 11).

    A bit b stands for 2 b - 1, the sign of its coordinate; a report estimates these signs without
    bias. (y - q)/(p - q), with p = P(1 -> 1) and q = P(0 -> 1), estimates the bit itself.

    Guarantee: pure, for a whole report in which all bits may change: the sum over all L bits of ln
    of the largest ratio between the probabilities of an outcome. It is exact, computed from the
    integers that are compared. "symmetric" stays within ``epsilon``. The other two do not, because
    the paper's proofs bound a different ratio: ``event`` states what holds, and ``epsilon`` is what
    the paper claims.

    Args:
        epsilon: the budget of the whole report, from 1e-6 to 1e9; at most 32 per bit is used.
        variant: which probabilities to use.
        alpha: the paper's privacy budget coefficient, from 0.001 to 1e6; not for "symmetric".

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "randomised_bits"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    epsilon: float
    variant: Variant = "symmetric"
    alpha: float = 10.0

    def __post_init__(self) -> None:
        check_between("epsilon", self.epsilon, SMALLEST_EPSILON, LARGEST_EPSILON)
        check_between("alpha", self.alpha, SMALLEST_ALPHA, LARGEST_ALPHA)
        if self.variant not in get_args(Variant):
            raise ConfigError(f"variant = {self.variant}: choose {', '.join(get_args(Variant))}")

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> RandomisedBits:
        """Return the symmetric variant, the sound one, with ``settings.epsilon`` for a report."""
        return cls(settings.epsilon)

    def laws(self, size: int) -> tuple[BitLaw, ...]:
        """Return the laws of ``size`` bits: bit j has law j modulo the number of laws.

        Raises:
            ConfigError: the probabilities differ by less than 2^-64.
        """
        return _laws(self, size)

    @property
    def claimed_epsilon(self) -> float:
        """The epsilon that the source claims for a whole report, whatever ``event`` proves."""
        return self.epsilon

    def event(self, size: int) -> PureCoordinates:
        """Return the event with the cost of each of ``size`` bits."""
        counts: Counter[float] = Counter()
        laws = self.laws(size)
        for first, law in enumerate(laws):
            counts[law.epsilon] += len(range(first, size, len(laws)))
        return PureCoordinates(groups=tuple((+counts).items()))

    def randomise(self, bits: NDArray[np.uint8], stream: Stream) -> NDArray[np.uint8]:
        """Randomise n vectors of L bits, each as one report; use this for many examples.

        Args:
            bits: zeros and ones, shape (n, L), uint8.
            stream: the source of the random integers.

        Returns:
            The randomised bits, of the same shape and type.

        Raises:
            PrivacyError: ``bits`` is anything else.
        """
        check_bits(bits)
        return randomise(bits, self.laws(bits.shape[1]), stream)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate, most significant first; see ``Mechanism.encode``."""
        check_releasable(values)
        bits = (values.reshape(1, -1) > 0).astype(np.uint8)
        return np.packbits(self.randomise(bits, stream)).tobytes()

    def payload_bits(self, size: int) -> int:
        """Return ``size``: one bit for each coordinate."""
        return size

    def aggregate(self, size: int) -> SignCounts:
        """Return an empty count of ones of reports of ``size`` bits."""
        return SignCounts(size, self.laws(size))

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return 1 where a value is above 0, else -1."""
        return np.where(values > 0, 1.0, -1.0)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return 4 t (1 - t)/(p - q)^2, where t is P(1) for the true bit."""
        laws = self.laws(values.size)
        scaled = [[4 * v / law.gain**2 for v in law.variances()] for law in laws]
        table = np.array(scaled)[np.arange(values.size) % len(laws)]
        flat = np.where(values.reshape(-1) > 0, table[:, 1], table[:, 0])
        return flat.reshape(values.shape)

    @classmethod
    def examples(cls) -> Sequence[RandomisedBits]:
        """Return instances for the contract tests."""
        return [
            cls(1e6),
            cls(100.0),
            cls(0.5, "theorem_2"),
            cls(20.0, "theorem_2", 0.3),
            cls(1000.0, "theorem_1"),
            cls(0.5, "theorem_1", 1.0),
        ]


@lru_cache(maxsize=256)
def _laws(mechanism: RandomisedBits, size: int) -> tuple[BitLaw, ...]:
    share = Fraction(mechanism.epsilon) / size
    if mechanism.variant == "symmetric":
        power = exp_below(min(share * _SAFE_SIDE, Fraction(LARGEST_EPSILON_PER_BIT)))
        return (BitLaw.of_odds(1 / power, power),)
    # T is 1 at x = 200, and stays 1 for any larger x.
    alpha, x = Fraction(mechanism.alpha), min(2 * share, Fraction(200))
    of_zero = alpha * exp_below(x)
    if mechanism.variant == "theorem_1":
        return (BitLaw.of_odds(alpha, of_zero),)
    return BitLaw.of_odds(1 / alpha, of_zero), BitLaw.of_odds(alpha**3, of_zero)


class SignCounts(Aggregate):
    """Counts of ones, corrected for the law of each position."""

    def __init__(self, size: int, laws: Sequence[BitLaw]) -> None:
        self._signs = Counts(size, 1.0)
        self._laws = laws

    def add(self, payload: bytes) -> None:
        """Add one whole report.

        Raises:
            RunError: the payload has the wrong length for a report.
        """
        self._signs.add(payload)

    def mean(self) -> NDArray[np.float64]:
        """Return the estimate (s + 1 - p - q)/(p - q), where s is the mean of 2 y - 1."""
        mean = self._signs.mean()
        for first, law in enumerate(self._laws):
            position = slice(first, None, len(self._laws))
            mean[position] += (FULL - law.if_one - law.if_zero) / FULL
            mean[position] /= law.gain
        return mean
