"""Examples of norm 1: of a table's rows after its columns were scaled and centred."""

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

    An example of zeros keeps them, and one that holds NaN or infinity counts as one.

    Attributes:
        input_shape: of an example.
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
    """Return examples as rows of doubles, shape (n, d); zeros where one holds NaN or infinity.

    However the examples lie in memory, each row lies together: so that a sum of it is added up in
    the same order whether it stands alone or among others.
    """
    width = math.prod(examples.shape[1:])
    rows: Floats = examples.reshape(len(examples), width).astype(np.float64, order="C")
    rows[~np.isfinite(rows).all(axis=1)] = 0
    return rows


def with_constant(rows: Floats) -> NDArray[np.float32]:
    """Return rows of norm 1, or zeros, and behind each the constant 0.3."""
    found = np.full((len(rows), rows.shape[1] + 1), CONSTANT, np.float32)
    found[:, :-1] = unit(rows)
    return found
