"""Examples of norm 1, such as a table's rows after its columns were scaled and centred."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.data.handwriting import CONSTANT
from fedldp.data.image_features import digest_of
from fedldp.data.soft_gradients import Floats, unit


@dataclass(frozen=True)
class UnitNorm:
    """The example's numbers, scaled to norm 1, and the constant 0.3 for the intercept.

    An example of zeros stays zero, and an example that holds NaN or infinity counts as zeros.

    Attributes:
        input_shape: the shape of an example.
    """

    input_shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The length of a feature vector."""
        return math.prod(self.input_shape) + 1

    @property
    def digest(self) -> str:
        """See ``ExampleMap``."""
        return digest_of("unit-norm", 1, self.input_shape, CONSTANT)

    def __call__(self, examples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        return with_constant(finite_rows(examples))


def finite_rows(examples: NDArray[np.floating]) -> Floats:
    """Return examples as rows of doubles, shape (n, d); zeros for those with NaN or infinity.

    Each row is contiguous, whatever the examples' memory layout, so a row is summed in the same
    order whether or not there are other rows.
    """
    width = math.prod(examples.shape[1:])
    rows: Floats = examples.reshape(len(examples), width).astype(np.float64, order="C")
    rows[~np.isfinite(rows).all(axis=1)] = 0
    return rows


def with_constant(rows: Floats) -> NDArray[np.float32]:
    """Return rows of norm 1, or zeros, with the constant 0.3 appended to each."""
    found = np.full((len(rows), rows.shape[1] + 1), CONSTANT, np.float32)
    found[:, :-1] = unit(rows)
    return found
