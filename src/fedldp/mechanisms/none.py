"""No randomiser: unprotected values, 32 bits each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import InClear
from fedldp.core.bounding import check_releasable
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports, check_block

_WORD = np.dtype("<f4")


@dataclass(frozen=True)
class Plain(Mechanism):
    """Send every value as a float of 32 bits, little-endian.

    Guarantee: none. The event says what is sent in the clear.

    Args:
        what: what is sent, described for readers of the event.
        signs: whether to send only the signs of the values, as -1, 0 or 1.
    """

    name: ClassVar[str] = "none"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"
    is_setting: ClassVar[bool] = False

    what: str = "weights"
    signs: bool = False

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> Plain:
        """Return the mechanism, whatever the settings are."""
        return cls()

    def event(self, size: int) -> InClear:
        """Return the event of values sent in the clear."""
        return InClear(what=self.what)

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return 32 bits for each value; see ``Mechanism.encode``. Nothing is drawn."""
        check_releasable(values)
        return self._words(values).tobytes()

    def encode_many(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        """Return rows of values, as ``encode`` packs them; see ``Mechanism.encode_many``."""
        check_block(values, streams)
        return np.ascontiguousarray(self._words(values)).view(np.uint8)

    def payload_bits(self, size: int) -> int:
        """Return 32 for each value."""
        return 8 * _WORD.itemsize * size

    def aggregate(self, size: int) -> PlainSum:
        """Return an empty sum of reports of ``size`` values."""
        return PlainSum(size)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return ``values`` unchanged, or their signs."""
        wide = values.astype(np.float64)
        return np.sign(wide) if self.signs else wide

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return zeros."""
        return np.zeros(values.shape)

    def _words(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        return (np.sign(values) if self.signs else values).astype(_WORD)

    @classmethod
    def examples(cls) -> Sequence[Plain]:
        """Return instances for tests."""
        return [cls(), cls("signs-of-weights", signs=True)]


class PlainSum(SummedReports):
    """The sum of reports, in float64."""

    def __init__(self, size: int) -> None:
        super().__init__(np.zeros(size), size * _WORD.itemsize)

    def read(self, payload: bytes) -> None:
        """Add the values of a report."""
        self._sum += np.frombuffer(payload, _WORD)


def read_plain(payload: bytes, size: int) -> NDArray[np.float64]:
    """Return the float32 values of a payload that was not randomised, shape (size,)."""
    return np.frombuffer(payload, _WORD).astype(np.float64)
