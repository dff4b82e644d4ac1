"""The piecewise mechanism: k of d coordinates, each as a cell of a fine grid around its value.

Source: Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu 2019 (ICDE), "Collecting and Analyzing
Multidimensional Data with Local Differential Privacy", Algorithms 2 and 4, here on a finite grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureReport, SubsetResponse
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import RunError
from fedldp.core.numbers import check_at_least, exp_below, log_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports
from fedldp.mechanisms.categories import round_at_random, rounded_square

CELLS = 1 << 16
"""M: the grid of possible reports of one coordinate; a cell is a uint16."""

SMALLEST_EPSILON = 1e-6
LARGEST_EPSILON_PER_COORDINATE = 32.0
"""Beyond this, the grid dominates a coordinate's error, and more budget would gain nothing."""


@dataclass(frozen=True)
class Window:
    """The exact distribution of one coordinate's cell, in integers.

    Given a start s in 0..M - ``width``, each cell of [s, s + width) has probability high/total and
    each other cell low/total, so the ratio between any two starts is at most high/low.

    Attributes:
        width: W, the number of cells in the window, at least 1.
        high: the weight of a cell in the window.
        low: the weight of a cell outside it; high/low <= e^epsilon of the coordinate, exactly.
        cells: M.
    """

    width: int
    high: int
    low: int
    cells: int = CELLS

    @classmethod
    def of_ratio(cls, ratio: Fraction, width: int, cells: int = CELLS) -> Window:
        """Return the window whose weights fill 64 bits, with high/low at most ``ratio``."""
        low = (2**64 - 1) // (width * ratio + cells - width)
        return cls(width, math.floor(ratio * low), low, cells)

    @property
    def total(self) -> int:
        """The sum of all cells' weights, less than 2^64."""
        return self.width * self.high + (self.cells - self.width) * self.low

    def realised(self, epsilon: float) -> float:
        """Return ln(high/low), rounded up; at most ``epsilon``, whose ratio the weights keep."""
        return min(epsilon, log_up(Fraction(self.high, self.low)))

    def category(self) -> SubsetResponse:
        """Return the distribution as that of a report that is one cell."""
        return SubsetResponse(
            high=self.high, low=self.low, closest=self.width, categories=self.cells
        )

    @property
    def scale(self) -> float:
        """(M - W) b, where b = W (high - low)/total is the slope of the mean cell in the start.

        The mean of 2 cell - (M - 1), divided by this, is -1 for s = 0, 1 for s = M - W, and affine
        in between.
        """
        move = Fraction(self.width * (self.high - self.low), self.total)
        return float((self.cells - self.width) * move)

    def starts(self, values: NDArray[np.float64], stream: Stream) -> NDArray[np.uint64]:
        """Return random starts with mean (x + 1)/2 (M - W), for x in [-1, 1]."""
        return round_at_random(values, self.cells - self.width, stream)

    def draw(self, starts: NDArray[np.uint64], stream: Stream) -> NDArray[np.uint64]:
        """Return one cell for each start, by integers alone: weights are counts of 64-bit words."""
        words = stream.integers(starts.size, np.uint64)
        while (over := words >= self.total).any():
            words[over] = stream.integers(int(over.sum()), np.uint64)
        inside = self.width * self.high
        rest = (words - inside) // self.low  # wraps for words inside the window, where it is unused
        outside = rest + np.where(rest < starts, 0, self.width).astype(np.uint64)
        return np.where(words < inside, starts + words // self.high, outside)

    def mean_square(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean square of the estimate (2 cell - (M - 1))/scale of x, exactly."""
        in_window = rounded_square(values, self.cells - self.width) + (self.width**2 - 1) / 12
        move = self.width * (self.high - self.low) / self.total
        everywhere = self.low / self.total * self.cells * (self.cells**2 - 1) / 12
        return (move * in_window + everywhere) * (2 / self.scale) ** 2


@lru_cache(maxsize=256)
def window(epsilon: float, sent: int) -> Window:
    """Return the window of each of ``sent`` coordinates that share ``epsilon``.

    The width is the paper's M/(e^(a/2) + 1) for a = epsilon/sent, rounded to a whole cell. The
    weights come, by exact arithmetic, from a ratio below e^a.
    """
    share = Fraction(epsilon) / sent
    ratio = exp_below(min(share, Fraction(LARGEST_EPSILON_PER_COORDINATE)))
    return Window.of_ratio(ratio, max(1, round(CELLS / (math.sqrt(ratio) + 1))))


@lru_cache(maxsize=256)
def num_sent(epsilon: float, size: int) -> int:
    """Return k, which minimises the largest variance (at 1) of any of ``size`` coordinates.

    The paper's rule is floor(epsilon/2.5); near the next integer, rounding up is better.
    """

    def mean_square(sent: int) -> float:
        return float(window(epsilon, sent).mean_square(np.ones(1))[0]) / sent

    k = max(1, min(size, math.floor(epsilon / 2.5)))
    return min((k, min(size, k + 1)), key=mean_square)


@dataclass(frozen=True)
class Piecewise(Mechanism):
    """Send k of d coordinates, chosen at random, each as a cell that is likely to be near it.

    Coordinates are clipped to [-1, 1]; the setting ``clip`` does not apply. The positions come from
    the stream and are sent, so they are public and independent of the values. Each coordinate gets
    a = ``epsilon``/k, and d/k times its estimate is unbiased. Without that factor the estimate's
    variance equals the paper's formula, within 1e-4 up to a = 5: x^2/(E - 1) + (E + 3)/(3 (E -
    1)^2) with E = e^(a/2).

    Guarantee: pure ``epsilon`` for the whole report. It holds exactly: for every start of the
    window, a cell's probability is one of two integers over their total, and their ratio is at most
    e^a. Floats only choose the start.

    Args:
        epsilon: the budget of the whole report, at least 1e-6; at most 32 k of it is used.

    Raises:
        ConfigError: ``epsilon`` is out of range.
    """

    name: ClassVar[str] = "piecewise"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    epsilon: float

    def __post_init__(self) -> None:
        check_at_least("epsilon", self.epsilon, SMALLEST_EPSILON)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Piecewise:
        """Return the mechanism that spends ``settings.epsilon`` on a report, without a ``clip``."""
        return cls(settings.epsilon)

    def num_sent(self, size: int) -> int:
        """Return k: the number of coordinates that are sent, out of ``size``."""
        return num_sent(self.epsilon, size)

    def window(self, size: int) -> Window:
        """Return the distribution of each sent coordinate, out of ``size``."""
        return window(self.epsilon, self.num_sent(size))

    def event(self, size: int) -> PureReport:
        """Return the event of a report of ``size`` values: k ln(high/low), rounded up."""
        cell = self.window(size)
        realised = self.num_sent(size) * math.log1p((cell.high - cell.low) / cell.low)
        return PureReport(epsilon=min(self.epsilon, realised * (1 + 2.0**-48)))

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return the k positions, ascending, as uint32, then their cells as uint16."""
        check_releasable(values)
        positions = _positions(values.size, self.num_sent(values.size), stream)
        chosen = self.bound(values).reshape(-1)[positions]
        cell = self.window(values.size)
        cells = cell.draw(cell.starts(chosen, stream), stream)
        return positions.astype("<u4").tobytes() + cells.astype("<u2").tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 48 bits for each sent coordinate."""
        return 48 * self.num_sent(size)

    def aggregate(self, size: int) -> CellSums:
        """Return an empty sum of reports of ``size`` coordinates."""
        return CellSums(size, self.num_sent(size), self.window(size).scale)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-1, 1]."""
        return np.clip(values.astype(np.float64), -1, 1)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (d/k) times the mean square of a sent estimate, less x^2."""
        bounded = self.bound(values)
        factor = values.size / self.num_sent(values.size)
        return factor * self.window(values.size).mean_square(bounded) - bounded**2

    @classmethod
    def examples(cls) -> Sequence[Piecewise]:
        """Return instances for the contract tests."""
        return [cls(1.0), cls(0.01), cls(30.0), cls(4000.0)]


def _positions(size: int, sent: int, stream: Stream) -> NDArray[np.int64]:
    """Return ``sent`` distinct ascending positions below ``size``, every choice equally likely."""
    keys = stream.integers(size, np.uint64)
    return np.sort(np.argpartition(keys, sent - 1)[:sent])


class CellSums(SummedReports):
    """The sum, for each coordinate, of 2 cell - (M - 1) over the reports that sent it.

    The estimate of the mean is (d/k) sum/(n scale).
    """

    def __init__(self, size: int, sent: int, scale: float) -> None:
        super().__init__(np.zeros(size, np.int64), 6 * sent, size / sent / scale)
        self._sent = sent

    def read(self, payload: bytes) -> None:
        """Add the cells of a report.

        Raises:
            RunError: it has positions that no report can have.
        """
        positions = np.frombuffer(payload, "<u4", self._sent).astype(np.int64)
        if positions[-1] >= self._sum.size or (np.diff(positions) <= 0).any():
            raise RunError(
                "a report with repeated or unknown positions: client and server use different "
                "models or budgets"
            )
        cells = np.frombuffer(payload, "<u2", self._sent, 4 * self._sent).astype(np.int64)
        self._sum[positions] += 2 * cells - (CELLS - 1)
