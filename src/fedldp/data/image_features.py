"""Public features of images: fixed functions of one image at a time, which no data set made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedldp.data.examples import Examples
from fedldp.data.oriented_gradients import OrientedGradients


class ExampleMap(Protocol):
    """A public function of one example at a time.

    The features of an example have the same bits whatever else is in the batch: nothing is fitted
    on examples. No example is refused, for a refusal would tell of it.

    Attributes:
        size: the length of a feature vector.
        digest: 64 hexadecimal digits that tell the function from all others.
    """

    @property
    def size(self) -> int: ...

    @property
    def digest(self) -> str: ...

    def __call__(self, examples: NDArray[np.float32], /) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        ...


def digest_of(*parts: object) -> str:
    """Return the digest of a function that ``parts`` tell from all others."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class HardGradients:
    """Oriented gradients in 4 x 4 cells and 8 directions, as the study has them, of norm 1.

    Attributes:
        input_shape: (channels, height, width) of an image.

    Raises:
        ConfigError: the examples are no images, or have fewer than 4 x 4 pixels.
    """

    input_shape: tuple[int, ...]
    _of: OrientedGradients = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_of", OrientedGradients(self.input_shape, 4, 8))

    @property
    def size(self) -> int:
        """The length of a feature vector: 128."""
        return self._of.size

    @property
    def digest(self) -> str:
        """See ``ExampleMap``."""
        return digest_of("oriented-gradients", 1, self.input_shape, 4, 8)

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of images; see ``OrientedGradients``."""
        return self._of(images)


@dataclass(eq=False)
class MapOnce:
    """Applies a map to examples, and keeps the features of those that it was given last.

    A run trains and tests on the same examples in every round. What is kept never leaves this
    process, and changes no bit: a map looks at one example at a time.

    Attributes:
        map: the function; None: examples stay as they are.
    """

    map: ExampleMap | None
    _last: tuple[Examples, Examples] | None = field(default=None, init=False, repr=False)

    def __call__(self, examples: Examples) -> Examples:
        """Return the examples with their features in place of what they were."""
        if self.map is None:
            return examples
        if self._last is None or self._last[0] is not examples:
            self._last = examples, Examples(self.map(examples.features), examples.labels)
        return self._last[1]

    def __getstate__(self) -> dict[str, object]:
        return {"map": self.map, "_last": None}
