"""Vectors clipped in L2 norm, as whole grid steps without noise; a server adds noise to their sum.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import GaussianReport, InClear
from fedldp.core.bounding import GridBall, check_releasable
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings
from fedldp.mechanisms.codes import IntegerSum
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.summing import INTEGER, Summing, sums_of_integers


@dataclass(frozen=True)
class BoundedSteps(Mechanism):
    """Unprotected grid vectors with norm at most the clip of ``noise``: 64 bits per coordinate.

    Guarantee of a report: none. ``noised`` states the guarantee of a sum with the noise. Replacing
    one client's whole input moves the sum of all vectors by at most 2 radius steps, because a
    comparison of integers puts each vector into the ball after rounding (``GridBall.clip``). So a
    sum with discrete Gaussian noise has the guarantee that ``Gaussian`` states for one vector,
    regardless of who the other clients are and what they send. The guarantee also holds modulo
    2^64: sums, sums of sums and the noise are all added in that ring (``noisy``). A smaller ring
    would not suffice. Other clients could make the sum wrap around; if it were read as signed
    numbers before the noise was added, it would distinguish neighbours however large the noise.

    Args:
        noise: the noise that the server adds to a sum; its grid and clip apply to the vectors.
    """

    name: ClassVar[str] = "bounded_steps"
    is_setting: ClassVar[bool] = False
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"

    noise: Gaussian

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> BoundedSteps:
        """Return the mechanism for the noise of ``settings.epsilon`` and ``settings.delta``."""
        return cls(Gaussian.from_settings(settings))

    @property
    def ball(self) -> GridBall:
        """The set of vectors that may be sent."""
        return self.noise.ball

    def event(self, size: int) -> InClear:
        """Return the event of vectors sent in the clear.

        Raises:
            ConfigError: a vector of ``size`` coordinates is too long (see ``GridBall.check_size``).
        """
        self.ball.check_size(size)
        return InClear(what="clipped updates (in a secure sum their exact sum)")

    def noised(self, size: int) -> GaussianReport:
        """Return what a sum of such vectors with the noise releases about one of them."""
        return self.noise.event(size)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return 64 bits for each coordinate; see ``Mechanism.encode``. Nothing is drawn."""
        check_releasable(values)
        return self.ball.clip(values.reshape(-1)).astype(INTEGER).tobytes()

    def payload_bits(self, size: int) -> int:
        """Return 64 for each coordinate."""
        return 8 * INTEGER.itemsize * size

    def aggregate(self, size: int) -> StepSum:
        """Return an empty sum of reports of ``size`` coordinates."""
        return StepSum(size, self.ball.step)

    def summing(self, size: int, most: int) -> Summing:
        """Return how reports add up: modulo 2^64, however few there are; see the class."""
        return sums_of_integers(size, 8 * INTEGER.itemsize)

    def noisy(self, total: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        """Return a sum of reports with noise, both modulo 2^64, in steps, shape (d,).

        Args:
            total: the sum.
            stream: the server's stream.
        """
        return total + self.noise.noise(total.size, stream)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` rounded to the grid and clipped by norm."""
        return self.noise.bound(values)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return zeros."""
        return np.zeros(values.shape)

    @classmethod
    def examples(cls) -> Sequence[BoundedSteps]:
        """Return instances for tests."""
        return [cls(each) for each in Gaussian.examples()]


class StepSum(IntegerSum):
    """The sum of whole grid steps, exact in any order.

    Args:
        size: coordinates of a report.
        step: the grid step, in the unit of the values.
    """

    def __init__(self, size: int, step: float) -> None:
        super().__init__(size)
        self._step = step

    def mean(self) -> NDArray[np.float64]:
        """Return the mean of the reports' vectors, shape (d,)."""
        return self.total() * np.float64(self._step / max(1, self.clients))
