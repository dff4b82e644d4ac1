"""Public features of images: fixed functions of one image at a time, which no data set made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedldp.data.examples import Examples


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


_KEPT: WeakKeyDictionary[Examples, tuple[ExampleMap, Examples]] = WeakKeyDictionary()
"""Features of examples that are still in use, with the map that they were made by."""


@dataclass(frozen=True, eq=False)
class MapOnce:
    """Applies a map to examples, and keeps their features as long as somebody has the examples.

    A run trains and tests on the same examples in every round, and runs of a comparison on those
    of the run before. What is kept never leaves this process, and changes no bit: a map looks at
    one example at a time.

    Attributes:
        map: the function; None: examples stay as they are.
    """

    map: ExampleMap | None

    def __call__(self, examples: Examples) -> Examples:
        """Return the examples with their features in place of what they were."""
        if self.map is None:
            return examples
        kept = _KEPT.get(examples)
        if kept is None or kept[0] is not self.map:
            kept = self.map, replace(examples, features=self.map(examples.features))
            _KEPT[examples] = kept
        return kept[1]
