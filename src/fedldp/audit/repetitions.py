"""A game that finds repeating noise: pairs of coordinates of one long report are trials.

The game is for events that state independent and identical coordinates. The adversary encodes ones,
and finds the lag at which the codes of two coordinates agree most (by a Fourier transform). In
every pair of coordinates at this lag, the game then moves the first coordinate from 1 to -1. The
adversary knows the second coordinate, which reveals the first if both draw the same noise. Pairs
have no coordinate in common, so by the event's own statement each pair is a trial, as in a game of
coordinates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.coordinate_codes import FoundCodes, coordinate_codes
from fedldp.audit.events import LowerBound, Score, best, lower_bound
from fedldp.audit.observations import AuditKeys
from fedldp.mechanisms import Mechanism


@dataclass(frozen=True, kw_only=True)
class RepetitionGame:
    """The adversary sees many pairs of coordinates and guesses if the first of each is 1 or -1.

    Attributes:
        mechanism: the attacked mechanism.
        size: coordinates of a report; the game finds noise that repeats after at most half as many
            coordinates.
    """

    mechanism: Mechanism
    size: int

    @property
    def label(self) -> str:
        """The label that separates this game's streams from other games'."""
        return f"{self.mechanism!r}/{self.size}/repetitions"

    @cached_property
    def found(self) -> FoundCodes:
        """What reveals each coordinate of a report; ``play`` needs its codes."""
        return coordinate_codes(self.mechanism, self.size)

    def play(self, keys: AuditKeys, confidence: float) -> LowerBound:
        """Return the bound for one coordinate, at delta 0."""
        lag = self._lag(self._codes(np.ones(self.size), keys, "lag"))
        places = np.arange(self.size - lag)
        firsts = places[places // lag % 2 == 0]
        turned = np.ones(self.size)
        turned[firsts] = -1.0

        def pairs(purpose: str) -> list[NDArray[Any]]:
            found = []
            for side, values in enumerate((np.ones(self.size), turned)):
                codes = self._codes(values, keys, f"{purpose} {side}")
                found.append(np.column_stack([codes[firsts], codes[firsts + lag]]))
            return found

        events = best(_scores(), *pairs("explore"), delta=0.0, trials=len(firsts))
        fresh = pairs("count")
        found = lower_bound(
            events,
            lambda event, side: event.hits(fresh[side]),
            len(firsts),
            delta=0.0,
            confidence=confidence,
        )
        return replace(found, attack=f"two coordinates {lag:,} apart; {found.attack}")

    def _codes(self, values: NDArray[np.float64], keys: AuditKeys, purpose: str) -> NDArray[Any]:
        (stream,) = keys.draws(1, self.label, purpose, simulated=False).streams(0, 1)
        codes = self.found.codes
        assert codes is not None
        try:
            return codes.codes(self.mechanism.encode(values, stream))
        except Exception:  # a refusal has nothing that could repeat
            return np.zeros(self.size, np.int64)

    def _lag(self, codes: NDArray[Any]) -> int:
        """Return the lag, at most half the report, at which codes agree by most deviations."""
        centred = codes - codes.mean()
        spectrum = np.fft.rfft(centred, 2 * self.size)
        agreement = np.fft.irfft(np.abs(spectrum) ** 2)[1 : self.size // 2 + 1]
        pairs = self.size - np.arange(1, len(agreement) + 1)
        return 1 + int(np.argmax(np.abs(agreement) / np.sqrt(pairs)))


def _scores() -> Iterable[tuple[str, Score]]:
    yield "their difference", lambda pairs: (pairs[:, 0] - pairs[:, 1]).astype(np.float64)
    yield "their absolute difference", lambda pairs: np.abs(pairs[:, 0] - pairs[:, 1]).astype(float)
    yield "their sum", lambda pairs: pairs.sum(1).astype(np.float64)
