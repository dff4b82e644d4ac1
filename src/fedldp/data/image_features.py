"""Public features of images: fixed functions of one image at a time, not fitted to data."""

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

    The features of an example are bit for bit the same, whatever else is in the batch, because
    nothing is fitted on examples. No example is refused, because a refusal would reveal something
    about it.

    Attributes:
        size: the length of a feature vector.
        digest: 64 hexadecimal digits that distinguish the function from all others.
    """

    @property
    def size(self) -> int: ...

    @property
    def digest(self) -> str: ...

    def __call__(self, examples: NDArray[np.float32], /) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        ...


def digest_of(*parts: object) -> str:
    """Return the digest of a function; ``parts`` distinguish it from all others."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_KEPT: WeakKeyDictionary[Examples, tuple[ExampleMap, Examples]] = WeakKeyDictionary()
"""Features of examples that are still in use, with the map that made them."""


@dataclass(frozen=True, eq=False)
class MapOnce:
    """Applies a map to examples, and keeps their features as long as the examples exist.

    A run trains and tests on the same examples in every round, and the runs of a comparison share
    examples. The kept features never leave this process, and keeping them does not change any
    result, because a map looks at one example at a time.

    Attributes:
        map: the function; None leaves examples as they are.
    """

    map: ExampleMap | None

    def __call__(self, examples: Examples) -> Examples:
        """Return the examples with their features in place of the original values."""
        if self.map is None:
            return examples
        kept = _KEPT.get(examples)
        if kept is None or kept[0] is not self.map:
            kept = self.map, replace(examples, features=self.map(examples.features))
            _KEPT[examples] = kept
        return kept[1]
