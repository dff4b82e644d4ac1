"""Fixed-point codes of clipped values, whose sums over clients are exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.bounding import check_releasable
from fedldp.errors import ConfigError

LARGEST_BITS = 52
SMALLEST_CLIP, LARGEST_CLIP = 1e-9, 1e9


@dataclass(frozen=True, kw_only=True)
class ClippedCodes:
    """Codes of values in [-clip, clip].

    A value v, clipped to that range, has the code round(v / clip * L), L = 2^(bits - 1) - 1, to the
    nearest integer, halves to even. A decoded sum is off by at most clip/(2 L) for each client, by
    rounding alone.

    Attributes:
        clip: bound on the magnitude of a value, from 1e-9 to 1e9.
        bits: of one code, from 2 to 52.

    Raises:
        ConfigError: an argument is out of range.
    """

    clip: float
    bits: int

    def __post_init__(self) -> None:
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise ConfigError(
                f"clip = {self.clip:g}: give a number from {SMALLEST_CLIP:g} to {LARGEST_CLIP:g}"
            )
        if not 2 <= self.bits <= LARGEST_BITS:
            raise ConfigError(f"code_bits = {self.bits}: give an integer from 2 to {LARGEST_BITS}")

    @property
    def largest(self) -> int:
        """The code of ``clip``, L."""
        return (1 << (self.bits - 1)) - 1

    def sum_bits(self, num_clients: int) -> int:
        """Return the bits of a modulus under which the sum of so many codes is exact.

        Raises:
            ConfigError: they are more than 64.
        """
        more = (num_clients - 1).bit_length()
        if self.bits + more > 64:
            raise ConfigError(
                f"code_bits = {self.bits}: the sum of {num_clients} clients does not fit into 64 "
                f"bits; give at most {64 - more}"
            )
        return self.bits + more

    def encode(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return the codes of ``values``, of the same shape.

        Raises:
            PrivacyError: the values are not finite floats.
        """
        check_releasable(values)
        clipped = np.clip(values.astype(np.float64), -self.clip, self.clip)
        return np.rint(clipped / self.clip * self.largest).astype(np.int64)

    def decode(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values that ``codes`` stand for; sums of codes stand for sums of values."""
        return codes.astype(np.float64) * (self.clip / self.largest)
