"""Local randomisers: one file each, found by a scan of this package.

A mechanism is one frozen object. It works on normalised coordinates (see ``bounding.Ranges``),
bounds them itself, and turns them into bytes whose distribution it answers for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.randomness import Stream
from fedldp.registry import scan


@dataclass(frozen=True, kw_only=True)
class MechanismSettings:
    """What a run's configuration says about its mechanism.

    Attributes:
        epsilon: the budget, of one weight or of a client's report in one round; see
            ``Mechanism.epsilon_unit``.
        delta: for mechanisms with an approximate guarantee.
        clip: the norm bound on the normalised vector; which norm is the mechanism's.
        size: the number of coordinates, d.
        integer_bits: of a random comparison, where the mechanism makes them.
    """

    epsilon: float
    delta: float
    clip: float
    size: int
    integer_bits: Literal[64, 32] = 64


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
    epsilon_unit: ClassVar[Literal["weight", "client-round"]]
    """What the setting ``epsilon`` is the budget of."""

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: MechanismSettings) -> Self:
        """Return the mechanism that a run's settings ask for.

        Raises:
            ConfigError: a setting is out of range for this mechanism.
        """

    @abstractmethod
    def event(self, size: int) -> Event:
        """Return what a report of ``size`` values releases: the mechanism's privacy claim as data.

        It must hold for every value of whatever ranges the broadcast carries.
        """

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
