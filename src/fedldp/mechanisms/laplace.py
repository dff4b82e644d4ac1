"""The Laplace mechanism: clip the vector in L1 norm and add Laplace noise to every coordinate.

Source: Dwork, McSherry, Nissim, Smith 2006; Canonne, Kamath, Steinke 2020 for the discrete noise.
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
from fedldp.core.bounding import replace_one_sensitivity
from fedldp.core.randomness import Stream
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.discrete import discrete_laplace
from fedldp.mechanisms.grids import LARGEST_CLIP, SMALLEST_CLIP, GridNoise, check_between

_SMALLEST_EPSILON, _LARGEST_EPSILON = 1e-3, 1e4


@dataclass(frozen=True)
class Laplace(GridNoise):
    """Report every coordinate of a vector of L1 norm at most ``clip`` with Laplace noise.

    The noise's scale is 2 clip/epsilon. A simulation draws idealised noise in real arithmetic and
    rounds it to the grid. A deployment draws the discrete Laplace exactly: y steps with probability
    proportional to exp(-|y|/t), where t is the scale in steps.

    Guarantee: pure ``epsilon_per_client_round`` when the client's whole input is replaced. It holds
    exactly: the grid vectors of two inputs differ by at most D = 2 radius steps in L1 norm, so
    probabilities differ by a factor of at most exp(D/t), and D <= epsilon t holds in integers.

    Args:
        clip: the bound on the L1 norm of the normalised vector, from 1e-9 to 1e9.
        epsilon_per_client_round: the budget of the whole report, from 0.001 to 10,000.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "laplace"
    order: ClassVar[Literal[1, 2]] = 1

    clip: float
    epsilon_per_client_round: float

    def __post_init__(self) -> None:
        check_between("clip", self.clip, SMALLEST_CLIP, LARGEST_CLIP)
        check_between(
            "epsilon_per_client_round",
            self.epsilon_per_client_round,
            _SMALLEST_EPSILON,
            _LARGEST_EPSILON,
        )

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Laplace:
        """Return the mechanism that spends ``settings.epsilon`` per client-round."""
        check_between("epsilon", settings.epsilon, _SMALLEST_EPSILON, _LARGEST_EPSILON)
        return cls(settings.clip, settings.epsilon)

    @property
    def clip_over_scale(self) -> Fraction:
        """The clip over sensitivity/epsilon, exact: epsilon/2."""
        return Fraction(self.epsilon_per_client_round) / replace_one_sensitivity(1)

    def event(self, size: int) -> PureReport:
        """Return the event with the epsilon that the integers give: at most the requested one.

        Raises:
            ConfigError: a report of ``size`` coordinates is too long (see ``GridBall.check_size``).
        """
        self.ball.check_size(size)
        return PureReport(epsilon=self.ball.sensitivity / (1 << self.scale_bits))

    def noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        """Return Laplace noise in grid steps; see ``GridNoise.noise``."""
        if stream.simulated:
            drawn = stream.generator().laplace(scale=1 << self.scale_bits, size=size)
            return np.rint(drawn).astype(np.int64)
        return discrete_laplace(size, self.scale_bits, stream)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of the discrete Laplace, 1/(2 sinh(1/(2t))^2) squared steps."""
        deviation = self.ball.step / (math.sqrt(2) * math.sinh(0.5 / (1 << self.scale_bits)))
        return np.full(values.shape, deviation**2)

    @classmethod
    def examples(cls) -> Sequence[Laplace]:
        """Return instances for the contract tests."""
        return [cls(2000.0, 1e4), cls(1.0, 0.1), cls(1e4, 50.0), cls(1.0, 1e3)]
