"""The layout of a model's parameters in one flat vector."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedldp.protocol.wire.types import Vector


@dataclass(frozen=True)
class Layout:
    """The layout of a model's parameters in one flat vector.

    Attributes:
        names: the parameters' names, in order.
        shapes: their shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(int(np.prod(shape)) for shape in self.shapes))

    @property
    def size(self) -> int:
        """The number of coordinates, d."""
        return sum(self.sizes)

    def split(self, vector: Vector) -> dict[str, Vector]:
        """Return views of ``vector``, shape (d,), by parameter name, each in its own shape."""
        pieces = np.split(vector, np.cumsum(self.sizes)[:-1])
        return {
            name: piece.reshape(shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }
