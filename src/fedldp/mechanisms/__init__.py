"""Local randomisers: one file each, found by a scan of this package.

A mechanism is one frozen object. It works on normalised coordinates (see ``bounding.Ranges``),
bounds them itself, and turns them into bytes whose distribution it answers for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.randomness import Stream
from fedldp.registry import scan


class Aggregate(ABC):
    """A running estimate of the mean of many reports, in O(d) memory whatever their number."""

    @abstractmethod
    def add(self, payload: bytes) -> None:
        """Take in one whole report."""

    @abstractmethod
    def mean(self) -> NDArray[np.float64]:
        """Return the unbiased estimate of the mean input, shape (d,), in normalised coordinates.

        Raises:
            RunError: nothing was added.
        """


class Mechanism(ABC):
    """A local randomiser of one vector.

    Subclasses are frozen dataclasses that check their parameters when they are made.
    """

    name: ClassVar[str]

    @abstractmethod
    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Bound, randomise and pack ``values``, shape (d,), in normalised coordinates.

        Raises:
            PrivacyError: ``values`` may not be released (see ``bounding.check_releasable``).
        """

    @abstractmethod
    def payload_bits(self, size: int) -> int:
        """Return the bits of a report of ``size`` values, before padding to whole bytes."""

    @abstractmethod
    def aggregate(self, size: int) -> Aggregate:
        """Return an empty aggregate of reports of ``size`` values."""

    @abstractmethod
    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` as bounded: what a report is an unbiased estimate of, shape (d,)."""

    @abstractmethod
    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the variance of one report's estimate of each of ``values``, shape (d,)."""

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence[Mechanism]:
        """Return instances, with extreme parameters among them, for the contract tests."""


def mechanisms() -> dict[str, type[Mechanism]]:
    """Return every mechanism by its name."""
    return {m.name: m for m in scan(__name__, Mechanism)}  # type: ignore[type-abstract]
