"""Labels that are numbers to predict, as whole steps between the ends of a public range.

A step is 2^-21 of the range, so that labels are whole numbers for both tasks, and half the range,
the unit in which a model is trained, is a multiple of a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError

STEPS = 1 << 21
"""The label of the upper end of the range; that of the lower end is 0."""


@dataclass(frozen=True)
class LabelRange:
    """The public range of labels that are numbers; numbers beyond an end count as that end.

    Attributes:
        low: the lower end, in the labels' unit.
        high: the upper end.

    Raises:
        ConfigError: the ends are not finite, or not in order.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.high - self.low) and self.low < self.high):
            raise ConfigError(f"label_range = {self}: give two numbers, the lower first")

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"

    @property
    def half(self) -> float:
        """Half the width of the range."""
        return (self.high - self.low) / 2

    def steps(self, numbers: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the labels of finite numbers, from 0 to ``STEPS``."""
        shares = (numbers.clip(self.low, self.high) - self.low) / (self.high - self.low)
        return np.rint(shares * STEPS).astype(np.int64)

    def numbers(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers of labels; their labels are the same again."""
        return self.restored(centred(steps))

    def restored(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the numbers of a model's outputs; those beyond -1 or 1 count as -1 or 1."""
        return np.asarray(self.low + (values.clip(-1, 1) + 1) * self.half, np.float64)


def centred(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what a model is to predict for labels, from -1 to 1; exact."""
    return np.asarray(labels * (2 / STEPS) - 1, np.float64)
