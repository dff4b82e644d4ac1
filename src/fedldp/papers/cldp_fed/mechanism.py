"""Condensed local privacy: whole numbers near the true one are likelier than distant ones.

Source: Gursoy, Tamersoy, Truex, Wei, Liu 2019, "Secure and Utility-Aware Data Collection with
Condensed Local Differential Privacy", the ordinal exponential mechanism; Truex, Liu, Chow, Gursoy,
Wei 2020, "LDP-Fed", for weights as whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureCoordinates
from fedldp.accounting.numerics.solve import solve
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.numbers import exp_below, log_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings
from fedldp.mechanisms.categories import IntegerSums
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP, check_between

SMALLEST_ALPHA, LARGEST_ALPHA = 1e-9, 1e3
SMALLEST_PRECISION, LARGEST_PRECISION = -9, 15
_EPSILON_LIMITS = (1e-4, 32.0)

# The weights of one value add up to less than this, so a 64-bit word is seldom drawn again.
_LARGEST_TOTAL = 1 << 60
_LARGEST_END = 1 << 40
_LARGEST_TABLE = 1 << 18
_UNIFORM_SHARE = 1 << 16  # at most 1/2^16 of the total is spread evenly over all whole numbers
_FRACTION_BITS = 128

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WeightTable:
    """The exact law of a report of the whole number v, from -end to end: weights by distance.

    A report is v' with probability w(|v - v'|)/total(v), where w(k) = floor(W r^k) + floor_weight.
    Here r is a number just above e^(-alpha/2), and ``floor_weight`` = u is at least 1 + 1/(1 - r).

    Guarantee: w(k) <= e^(alpha/2) w(k + 1), exactly. Proof: with g = W r^k, w(k) <= g + u and
    w(k + 1) > r g - 1 + u >= r (g + u), with room for the truncation of g. So the probabilities of
    a report for v and v + 1 differ by a factor of at most e^alpha: e^(alpha/2) for the weight, and
    the same factor for the total.

    Attributes:
        end: M.
        floor_weight: u, the weight of every distance beyond the table.
        cumulative: w(1) + ... + w(k) for k = 0, 1, ..., n, where n is 2 M or the last distance with
            a weight above u.
        peak: w(0).
    """

    end: int
    floor_weight: int
    cumulative: Integers
    peak: int

    @property
    def last(self) -> int:
        """n, the last distance in the table."""
        return len(self.cumulative) - 1

    def up_to(self, distances: Integers) -> Integers:
        """Return w(1) + ... + w(k) for each distance k, from 0 to 2 M."""
        beyond: Integers = np.maximum(distances - self.last, 0)
        return self.cumulative[np.minimum(distances, self.last)] + self.floor_weight * beyond

    def totals(self, values: Integers) -> Integers:
        """Return total(v) for each whole number v."""
        return self.peak + self.up_to(self.end + values) + self.up_to(self.end - values)

    def draw(self, values: Integers, stream: Stream) -> Integers:
        """Return a report of each whole number, computed with integers alone.

        A 64-bit word modulo total(v) is uniform, except for the last few words, which would make it
        uneven; these are drawn again. At most one word in 16 is drawn again, and the amount of
        stream read depends on v only through these words.
        """
        totals = self.totals(values).astype(np.uint64)
        limits = np.uint64(2**64 - 1) // totals * totals
        words = stream.integers(values.size, np.uint64)
        while (over := words >= limits).any():
            words[over] = stream.integers(int(over.sum()), np.uint64)
        rest = (words % totals).astype(np.int64) - self.peak
        below = self.up_to(self.end + values)
        down = rest < below
        rest -= np.where(down, 0, below)
        beyond = np.maximum(rest - self.cumulative[-1], -1) // self.floor_weight
        near = np.searchsorted(self.cumulative, rest, side="right")
        distances = np.where(beyond >= 0, self.last + 1 + beyond, near)
        return values + np.where(down, -distances, distances)

    def moments(self, values: Integers) -> tuple[Floats, Floats]:
        """Return the mean and variance of the report of each whole number."""
        (first_down, second_down), (first_up, second_up) = (
            self._moments_up_to(distances) for distances in (self.end + values, self.end - values)
        )
        totals = self.totals(values)
        shift = (first_up - first_down) / totals
        return values + shift, (second_up + second_down) / totals - shift**2

    def _moments_up_to(self, distances: Integers) -> tuple[Floats, Floats]:
        """Return the sums of k w(k) and of k^2 w(k) up to each distance, in floats."""
        k = np.arange(self.last + 1, dtype=np.float64)
        weights = np.diff(self.cumulative, prepend=0)
        inside = np.minimum(distances, self.last)
        sums = []
        for power, whole in ((1, _sum_of_numbers), (2, _sum_of_squares)):
            beyond = whole(distances.astype(np.float64)) - whole(inside.astype(np.float64))
            sums.append(np.cumsum(weights * k**power)[inside] + self.floor_weight * beyond)
        return sums[0], sums[1]

    @cached_property
    def epsilon(self) -> float:
        """The pure epsilon of a report, rounded up: the largest over all v1, v2 and v'.

        It is attained up to a relative 1e-9. There are N = 2 M + 1 whole numbers:

        - w(d) total(v') <= w(0) (total(v1) + N + 1) for d = |v1 - v'|. Proof: g(k) = W r^k + u has
          g(d) g(k) <= g(0) g(d + k), so w(d) w(k) <= w(0) (w(d + k) + 1). Sum over all numbers at a
          distance k from v', which are at most d + k from v1. (The other 1 covers the truncation of
          W r^k to 128 binary digits after the point.)
        - So P(v'|v1) is at most w(0)/total(v') times 1 + (N + 1)/total(-M), and v1 = v' attains it
          without the second factor.
        - w(0)/total(v') total(v2)/w(|v2 - v'|) is largest for v' at an end, where total is least
          and |v2 - v'| largest. All v2 are tried; beyond the table, only the v2 with the largest
          total.
        """
        distances = np.arange(self.last + 1)
        if self.last < 2 * self.end:
            distances = np.append(distances, max(self.last + 1, self.end))
        totals = self.totals(distances - self.end).tolist()
        weights = np.diff(self.cumulative, prepend=0).tolist()
        weights = [self.peak, *weights[1:], self.floor_weight][: len(totals)]
        largest = max(
            (total << _FRACTION_BITS) // weight
            for total, weight in zip(totals, weights, strict=True)
        )
        ratio = Fraction(self.peak * (largest + 1), totals[0] << _FRACTION_BITS)
        return log_up(ratio * (1 + self.excess))

    @property
    def excess(self) -> Fraction:
        """(N + 1)/total(-M); see ``epsilon``."""
        return Fraction(2 * self.end + 2, int(self.totals(np.array([-self.end]))[0]))


@lru_cache(maxsize=256)
def table(alpha: float, end: int) -> WeightTable:
    """Return the table of condensed privacy ``alpha`` on the whole numbers from -end to end.

    Raises:
        ConfigError: the table would be too long, or two weights would be too close.
    """
    # Just above e^(-alpha/2): the reciprocal of a number just below e^(alpha/2).
    decay = 1 / exp_below(Fraction(alpha) / 2)
    ratio = -(-(decay.numerator << _FRACTION_BITS) // decay.denominator)
    floor_weight = math.ceil(1 / (1 - Fraction(ratio, 1 << _FRACTION_BITS))) + 1
    # ``total`` is 1 + 2 (r + ... + r^M), the total of the middle divided by W; ``uniform`` is the
    # weight that is spread evenly.
    total = 1 + 2 * math.exp(-alpha / 2) * math.expm1(-alpha / 2 * end) / math.expm1(-alpha / 2)
    uniform = floor_weight * (2 * end + 1)
    peak = math.floor((_LARGEST_TOTAL - uniform) / total * (1 - 2.0**-20))
    weights: list[int] = []
    exact = peak << _FRACTION_BITS
    while len(weights) < min(2 * end, _LARGEST_TABLE + 1):
        exact = exact * ratio >> _FRACTION_BITS
        if not exact >> _FRACTION_BITS:
            break
        weights.append((exact >> _FRACTION_BITS) + floor_weight)
    if uniform > _LARGEST_TOTAL // _UNIFORM_SHARE or len(weights) > _LARGEST_TABLE:
        raise ConfigError(
            f"alpha = {alpha} is too small for {2 * end + 1} whole numbers: "
            "give a lower precision or a larger alpha"
        )
    result = WeightTable(end, floor_weight, np.cumsum([0, *weights]), peak + floor_weight)
    assert (result.totals(np.zeros(1, np.int64)) < _LARGEST_TOTAL).all()
    if result.excess * 10**9 > Fraction(result.epsilon):
        raise ConfigError(f"alpha = {alpha} leaves no signal: give a larger alpha")
    return result


@dataclass(frozen=True)
class CLDP(Mechanism):
    """Round every coordinate to a whole number v of steps 10^-precision, and send a number near v.

    v' is sent with probability proportional to exp(-alpha |v - v'|/2), from -M to M, where M is
    clip in steps. The sampler is exact for slightly different weights, which fill 60 bits; see
    ``WeightTable``. A report is v', as in the papers: its mean is ``expected``, which near the ends
    lies closer to 0 than v.

    Guarantee: ``alpha``-condensed privacy, as claimed: probabilities differ by a factor of at most
    e^(alpha |v1 - v2|) for two numbers v1 and v2. That is no protection in the usual sense, because
    it vanishes for numbers that are far apart. Between any two values, pure epsilon holds:
    ``WeightTable.epsilon`` for one coordinate, and d times that for a report of d coordinates. For
    one coordinate it is about alpha M, at most 2 alpha M, and no more than a random 64-bit integer
    can reveal. The number of words drawn again, and so the time taken, depends slightly on the
    values: reveal neither the number nor the time.

    Args:
        alpha: the budget for a distance of one step, from 1e-9 to 1,000.
        clip: the bound on a coordinate, from 1e-9 to 1e9; it is rounded to whole steps.
        precision: decimal digits, from -9 to 15; M must be from 1 to 2^40.

    Raises:
        ConfigError: an argument is out of range; see also ``table``.
    """

    name: ClassVar[str] = "cldp"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    alpha: float
    clip: float
    precision: int

    def __post_init__(self) -> None:
        check_between("alpha", self.alpha, SMALLEST_ALPHA, LARGEST_ALPHA)
        check_between("clip", self.clip, SMALLEST_CLIP, LARGEST_CLIP)
        if self.precision not in range(SMALLEST_PRECISION, LARGEST_PRECISION + 1):
            raise ConfigError(
                f"precision = {self.precision}: give an integer from {SMALLEST_PRECISION} to "
                f"{LARGEST_PRECISION}"
            )
        if not 1 <= self.end <= _LARGEST_END:
            raise ConfigError(
                f"precision = {self.precision}: clip = {self.clip} is {self.end} steps; "
                f"give a precision for which it is 1 to {_LARGEST_END}"
            )
        _ = self.table

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> CLDP:
        """Return the mechanism whose pure epsilon for a weight is ``settings.epsilon``.

        A pure epsilon bounds more than condensed privacy does. The precision is the one for which
        ``clip`` is between 1,000 and 10,000 steps; finer steps would hardly change the mechanism.
        """
        check_between("clip", settings.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_between("epsilon", settings.epsilon, *_EPSILON_LIMITS)
        precision = 3 - math.floor(math.log10(settings.clip))
        end = _steps(settings.clip, precision)
        alpha = solve(
            lambda alpha: table(alpha, end).epsilon,
            settings.epsilon,
            start=0.49 * settings.epsilon / end,
            end=1.01 * settings.epsilon / end,
            precision=1e-6,
        )
        return cls(alpha, settings.clip, precision)

    @property
    def end(self) -> int:
        """M, the bound in steps."""
        return _steps(self.clip, self.precision)

    @property
    def table(self) -> WeightTable:
        """The law of a coordinate's report."""
        return table(self.alpha, self.end)

    def event(self, size: int) -> PureCoordinates:
        """Return the pure epsilon of each of ``size`` coordinates."""
        return PureCoordinates(groups=((self.table.epsilon, size),))

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return v' + M of each coordinate, in whole bytes; see ``Mechanism.encode``."""
        check_releasable(values)
        reports = self.table.draw(self._numbers(values).reshape(-1), stream)
        return (reports + self.end).astype(self._word).tobytes()

    def furthest(self, direction: NDArray[np.floating]) -> bytes:
        """Return the largest whole numbers; see ``Mechanism.furthest``."""
        word = f"<u{self.payload_bits(1) // 8}"
        return np.where(direction > 0, 2 * self.end, 0).astype(word).tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 8, 16, 32 or 64 bits for each coordinate."""
        return 8 * self._word.itemsize * size

    def aggregate(self, size: int) -> IntegerSums:
        """Return an empty sum of reports of ``size`` coordinates."""
        num_bytes = size * self._word.itemsize
        return IntegerSums(size, num_bytes, self._reports, 10.0**self.precision)

    def bound(self, values: NDArray[np.floating]) -> Floats:
        """Return ``values`` clipped and rounded to whole steps."""
        return self._numbers(values) / 10.0**self.precision

    def expected(self, values: NDArray[np.floating]) -> Floats:
        """Return the mean of v', in the unit of the values."""
        mean, _ = self.table.moments(self._numbers(values))
        return mean / 10.0**self.precision

    def variance(self, values: NDArray[np.floating]) -> Floats:
        """Return the variance of v', in the squared unit of the values."""
        _, variance = self.table.moments(self._numbers(values))
        return variance / 100.0**self.precision

    @property
    def _word(self) -> np.dtype[Any]:
        return np.dtype(next(t for t in ("u1", "<u2", "<u4", "<u8") if self._fits(np.dtype(t))))

    def _fits(self, word: np.dtype[Any]) -> bool:
        return 2 * self.end <= int(np.iinfo(word).max)

    def _numbers(self, values: NDArray[np.floating]) -> Integers:
        clipped = np.clip(values.astype(np.float64), -2 * self.clip, 2 * self.clip)
        steps = np.rint(clipped * 10.0**self.precision)
        return np.clip(steps, -self.end, self.end).astype(np.int64)

    def _reports(self, payload: bytes) -> Integers:
        reports = np.frombuffer(payload, self._word)
        if reports.max() > 2 * self.end:
            raise RunError(
                "a report with numbers beyond the clip: client and server run different mechanisms"
            )
        return reports.astype(np.int64) - self.end

    @classmethod
    def examples(cls) -> Sequence[CLDP]:
        """Return instances for the contract tests."""
        return [
            cls(1.0, 1.0, 10),
            cls(0.004, 1.0, 3),
            cls(0.0001, 1.0, 2),
            cls(3.0, 0.5, 1),
            cls(0.01, 3000.0, 0),
        ]


def _steps(clip: float, precision: int) -> int:
    return round(Fraction(clip) * Fraction(10) ** precision)


def _sum_of_numbers(last: Floats) -> Floats:
    return last * (last + 1) / 2


def _sum_of_squares(last: Floats) -> Floats:
    return last * (last + 1) * (2 * last + 1) / 6
