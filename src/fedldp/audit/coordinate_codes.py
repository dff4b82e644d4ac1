"""What a report reveals of each coordinate: a piece of its payload, or the server's estimate.

Some games count the coordinates of one report as trials. Each trial must depend on one coordinate
only: bits of two coordinates may show twice the epsilon of one coordinate, even if the mechanism is
correct. Only the mechanism's own ``aggregate`` says which bits belong to which coordinate. The
games look at the first of the following that passes its check:

- *Pieces.* The payload is cut into d equal pieces. The check replaces a random half of the pieces
  with those of another report; then each estimate must be the estimate from the report that
  supplied the piece. If a bit lies in another coordinate's piece, differs between the two reports
  and changes the estimate, each try detects it with probability 1/2. With a layout that does not
  fit the pieces, thousands of bits lie in another coordinate's piece.
- *Estimates.* The server's estimates are computed from the report alone, so a bound on them is a
  bound on the report, whatever the layout: all signs before all magnitudes, for example. An
  estimate must not depend on other coordinates. The check flips some bits, one at a time; none may
  change two estimates.
- *Nothing.* These games are not played, and the audit says why.

The games look at whole pieces, because bits that ``aggregate`` does not read may reveal something,
too. Such a bit counts as part of the coordinate in whose piece it lies. So a sound mechanism that
fills it from another coordinate may still be reported as a bug. Estimates do not show such bits, so
the audit says how many flipped bits changed no estimate. Games on whole reports look at all bits,
in fewer trials.

The checks see only the layout of the few reports that they use. They miss a layout that depends on
the values or on the stream, and a misplaced bit that is the same in all these reports. They also
miss dependence between estimates that no single flipped bit shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.observations import AuditKeys, Floats
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.packing import packed_bytes

_SPLICED = 2
"""How many times a random half of a report's pieces is replaced with another report's pieces."""
_DIFFERENT = 16
"""How many estimates must differ between reports: equal estimates say nothing about pieces."""
_FLIPPED = 32
"""How many bits are flipped at each end of a payload, where a header or a checksum may be, and how
many at random positions."""
_LARGEST = 1e12
"""The limit on estimates, so that their squares can be added."""
_NO_PIECES = "the server's estimates do not each depend on one of d equal pieces of the payload"


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The pieces of a payload, one for each coordinate.

    Attributes:
        size: d, coordinates of a report.
        width: bits per piece, from 1 to 32, or 40, 48 or 56.
    """

    missing: ClassVar[int] = -1
    """The code that stands for each coordinate if an answer is missing."""

    size: int
    width: int

    @classmethod
    def of(cls, mechanism: Mechanism, size: int) -> Pieces | None:
        """Return the pieces of a mechanism's reports; None if no width fits."""
        try:
            width, rest = divmod(mechanism.payload_bits(size), size)
        except Exception:  # the mechanism does not accept so many coordinates
            return None
        fits = not rest and (1 <= width <= 32 or width in (40, 48, 56))
        return cls(size=size, width=width) if fits else None

    def codes(self, payload: bytes) -> NDArray[np.int64]:
        """Return the number that each piece stands for, shape (d,).

        Raises:
            ValueError: the payload has the wrong length.
        """
        rows = np.frombuffer(payload, np.uint8)
        if self.width == 1:
            return np.unpackbits(rows, count=self.size).astype(np.int64)
        if self.width % 8 == 0:
            places = 256 ** np.arange(self.width // 8, dtype=np.int64)  # little-endian
            return rows.reshape(self.size, -1) @ places
        bits = np.unpackbits(rows, count=self.size * self.width).reshape(self.size, self.width)
        return bits @ (1 << np.arange(self.width, dtype=np.int64))

    def fit(self, payload: bytes) -> bool:
        """Return whether a payload has the length of d pieces."""
        return len(payload) == packed_bytes(self.size * self.width)

    def spliced(self, payload: bytes, other: bytes, chosen: NDArray[np.bool_]) -> bytes:
        """Return ``payload`` with the chosen pieces of ``other``; both fit."""
        mask = np.packbits(np.repeat(chosen, self.width))
        rows, others = (np.frombuffer(each, np.uint8) for each in (payload, other))
        return (rows & ~mask | others & mask).tobytes()


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """The server's estimate of each coordinate, from one report alone.

    Attributes:
        mechanism: the mechanism, whose ``aggregate`` reads the report.
        size: d, coordinates of a report.
    """

    missing: ClassVar[float] = -2 * _LARGEST
    """The code that stands for each coordinate if an answer is missing or unreadable."""

    mechanism: Mechanism
    size: int

    def codes(self, payload: bytes) -> Floats:
        """Return the estimates, clipped to absolute values of at most 1e12, shape (d,).

        Raises:
            ValueError: the server cannot read the payload.
        """
        found = _estimate(self.mechanism, self.size, payload)
        if found is None:
            raise ValueError("the server cannot read this report")
        return np.clip(found, -_LARGEST, _LARGEST)


CoordinateCodes = Pieces | Estimates


@dataclass(frozen=True, kw_only=True)
class FoundCodes:
    """What the games of coordinates can look at.

    Attributes:
        codes: what reveals each coordinate; None if nothing does.
        left_out: what these games leave out, and why, for the reader; empty if they see all bits.
    """

    codes: CoordinateCodes | None
    left_out: str = ""


def coordinate_codes(mechanism: Mechanism, size: int) -> FoundCodes:
    """Return what reveals each coordinate of a mechanism's reports, found from a few reports.

    The layout does not depend on an audit's seed, so these reports always use the same streams.
    """
    keys, label = AuditKeys(0), f"{mechanism!r}/{size}/layout"
    generator = keys.generator(label)
    ones = np.ones(size)
    inputs = [ones, -ones, *generator.uniform(-1, 1, (2, size))]
    streams = keys.draws(len(inputs), label, simulated=False).streams(0, len(inputs))
    reports = []
    for values, stream in zip(inputs, streams, strict=True):
        try:
            reports.append(bytes(mechanism.encode(values.copy(), stream)))
        except Exception:  # a refusal has no layout
            continue
    if len(reports) < 2:
        return _none("encode refuses values between -1 and 1")
    estimates = [_estimate(mechanism, size, report) for report in reports]
    read = [(r, e) for r, e in zip(reports, estimates, strict=True) if e is not None]
    if len(read) < len(reports):
        return _none("the server cannot read an honest report")
    pieces = Pieces.of(mechanism, size)
    if pieces is not None and _are_coordinates(pieces, mechanism, read, generator):
        return FoundCodes(codes=pieces)
    return _of_estimates(mechanism, size, read, generator)


_Read = list[tuple[bytes, Floats]]
"""Reports, each with the server's estimate."""


def _are_coordinates(
    pieces: Pieces, mechanism: Mechanism, read: _Read, generator: np.random.Generator
) -> bool:
    """Return whether each estimate depends on its own piece only."""
    if not all(pieces.fit(report) for report, _ in read):
        return False
    different = 0
    for (report, estimate), (other, of_other) in zip(read[::2], read[1::2], strict=False):
        different += int((estimate != of_other).sum())
        for _ in range(_SPLICED):
            chosen = generator.random(pieces.size) < 0.5
            spliced = pieces.spliced(report, other, chosen)
            found = _estimate(mechanism, pieces.size, spliced)
            if found is None or not np.array_equal(found, np.where(chosen, of_other, estimate)):
                return False
    return different >= _DIFFERENT


def _of_estimates(
    mechanism: Mechanism, size: int, read: _Read, generator: np.random.Generator
) -> FoundCodes:
    """Return the estimates, if no flipped bit changes two of them."""
    changed = list(_changed(mechanism, size, read, generator))
    if max(changed, default=0) > 1:
        return _none(f"{_NO_PIECES}, and a flipped bit changes several of them")
    if 1 not in changed:
        return _none(f"{_NO_PIECES}, and no flipped bit changes one of them")
    unread = changed.count(0)
    left_out = (
        f"{unread} of {len(changed)} flipped bits changed no estimate; only games on whole reports "
        "look at bits that aggregate does not read"
    )
    return FoundCodes(
        codes=Estimates(mechanism=mechanism, size=size), left_out=left_out if unread else ""
    )


def _changed(
    mechanism: Mechanism, size: int, read: _Read, generator: np.random.Generator
) -> Iterator[int]:
    """Yield, for each flipped bit of a readable payload, how many estimates it changes."""
    fewest = 8 * min(len(report) for report, _ in read)
    ends = np.arange(min(_FLIPPED, fewest))
    anywhere = generator.integers(0, fewest, _FLIPPED)
    flipped = np.unique(np.concatenate([ends, fewest - 1 - ends, anywhere]))
    for number, at in enumerate(flipped.tolist()):
        report, estimate = read[number % len(read)]
        rows = np.frombuffer(report, np.uint8).copy()
        rows[at // 8] ^= 128 >> at % 8
        found = _estimate(mechanism, size, rows.tobytes())
        if found is not None:
            yield int((found != estimate).sum())


def _none(why: str) -> FoundCodes:
    return FoundCodes(codes=None, left_out=f"not played, because {why}")


def _estimate(mechanism: Mechanism, size: int, payload: bytes) -> Floats | None:
    """Return the server's estimate from one report, shape (d,); None if it is unreadable."""
    try:
        aggregate = mechanism.aggregate(size)
        aggregate.add(payload)
        found: NDArray[Any] = np.asarray(aggregate.mean(), np.float64)
    except Exception:  # reading a malformed payload may raise anything
        return None
    return found if found.shape == (size,) and np.isfinite(found).all() else None
