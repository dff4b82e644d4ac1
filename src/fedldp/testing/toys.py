"""Toys for tests: a mechanism, a local update and a preset, each as small as can be.

Nobody may take them for real ones. The scan does not find them, so no list shows them, and a
configuration names them by their address, such as ``fedldp.testing.toys:toy``. Their statements
therefore say that this address states them, and a site accepts them only by its policy's
``own_code``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition, Local
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import Offers, Positive
from fedldp.core.bounding import check_releasable
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import exp_below, log_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms import BitMechanism, MechanismSettings
from fedldp.protocol.roles import Batch, Client, LocalUpdate, Update
from fedldp.protocol.wire import Broadcast, Sensitive

if TYPE_CHECKING:
    import torch

    from fedldp.algorithms.composition import Algorithm

TOY = "fedldp.testing.toys:toy"
"""The system that ``toy`` is, for settings and files."""
TOY_BITS = "fedldp.testing.toys:ToyBits"
"""The mechanism ``ToyBits``, for settings and files."""

_WORDS = 256


@dataclass(frozen=True)
class ToyBits(BitMechanism):
    """One bit for each coordinate, drawn by comparing a single random byte with a threshold.

    The coarse thresholds make the smallest epsilons impossible, and the estimate is that of the
    value rounded to a grid (``expected``).

    Guarantee: pure ``epsilon`` for a coordinate, and d times that for d coordinates. The bit is 1
    for a share of the bytes between Tmin/256 and 1 - Tmin/256, whatever the value is.

    Args:
        epsilon: the budget for one coordinate, from 0.02 to 5.5.

    Raises:
        ConfigError: ``epsilon`` is out of range.
    """

    name: ClassVar[str] = "toy_bits"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "weight"

    epsilon: float

    def __post_init__(self) -> None:
        if not 0.02 <= self.epsilon <= 5.5:
            raise ConfigError(f"epsilon = {self.epsilon:g}: give a number from 0.02 to 5.5")

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> ToyBits:
        """Return the mechanism that spends ``settings.epsilon`` on a coordinate."""
        return cls(settings.epsilon)

    @property
    def least(self) -> int:
        """Tmin: how many of the 256 bytes give the bit 1 for a value of -1."""
        return math.ceil(_WORDS / (1 + exp_below(Fraction(self.epsilon))))

    @property
    def scale(self) -> float:
        """K: a bit stands for K or -K."""
        return _WORDS / (_WORDS - 2 * self.least)

    def event(self, size: int) -> BinaryRandomizedResponse:
        """Return ``size`` independent bits, with the epsilon that the bytes give."""
        odds = Fraction(_WORDS - self.least, self.least)
        return BinaryRandomizedResponse(epsilon=log_up(odds), coordinates=size)

    def thresholds(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return how many bytes give the bit 1, for each of ``values``."""
        above = (self.bound(values) + 1) / 2 * (_WORDS - 2 * self.least)
        return self.least + above.astype(np.int64)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return one bit for each coordinate; see ``Mechanism.encode``."""
        check_releasable(values)
        flat = values.reshape(-1)
        drawn = stream.integers(flat.size, np.uint8)
        return np.packbits(drawn < self.thresholds(flat)).tobytes()

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` clipped to [-1, 1]."""
        return np.clip(values.astype(np.float64), -1, 1)

    def expected(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` as the thresholds round them."""
        return self.scale * (2 * self.thresholds(values) / _WORDS - 1)

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return K^2 minus the square of the expected value."""
        return self.scale**2 - self.expected(values) ** 2

    @classmethod
    def examples(cls) -> Sequence[ToyBits]:
        """Return instances for the contract tests."""
        return [cls(1.0), cls(0.02), cls(5.5)]


def nothing(broadcast: Broadcast, client: Client) -> None:
    """Do nothing: the hook of a ``MeanStep`` that has none."""


@dataclass
class MeanStep(LocalUpdate):
    """A local update without a model: the change of the weights is the client's mean example.

    Attributes:
        hook: called in every training, after the call is counted.
        calls: how often a client has trained.
    """

    hook: Callable[[Broadcast, Client], None] = nothing
    calls: int = 0

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the weights of each client of the batch."""
        rows = [self._trained(broadcast, client) for client in batch]
        return Sensitive(Update(rows=np.stack(rows)))

    def _trained(self, broadcast: Broadcast, client: Client) -> Any:
        self.calls += 1
        self.hook(broadcast, client)
        mean = client.examples.features.mean(axis=0).reshape(-1)
        return broadcast.weights + np.resize(mean, broadcast.weights.shape)


@dataclass(frozen=True, kw_only=True)
class ToyLocal(Local):
    """The part that ``MeanStep`` is in a composition."""

    def __call__(self, algorithm: Algorithm, device: torch.device) -> Any:
        """Return the local update."""
        return MeanStep()


class ToySettings(Offers):
    """The settings of the toy."""

    epsilon: Positive = 1.0
    """budget for one weight"""


@preset(ToySettings)
def toy(settings: Settings) -> Composition:
    """Each client sends its mean example, by ``ToyBits``."""
    return Composition(
        local=ToyLocal(),
        bound=Unbounded(send="update"),
        calibration=Fixed(every=ToyBits(settings.epsilon)),
    )
