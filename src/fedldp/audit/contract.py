"""A mechanism's duties, whatever its epsilon: refuse non-numbers, and write readable reports.

An encoder never gives a mechanism NaN or infinity, so no epsilon is false because a mechanism
accepts them. But such a mechanism breaks its contract, and does not protect those who call it
directly. And if ``aggregate`` raises on an honest report, the games that use the server's estimate
find nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedldp.audit.game import Planned
from fedldp.audit.observations import AuditKeys, needs_simulated
from fedldp.audit.results import GameResult
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism


@dataclass(frozen=True, kw_only=True)
class ContractCheck(Planned):
    """A mechanism's duties besides its epsilon.

    Attributes:
        mechanism: the checked mechanism.
    """

    certain = True
    mechanism: Mechanism

    @property
    def size(self) -> int:
        """The number of coordinates of a report, d."""
        return self.lines[0].size

    @property
    def title(self) -> str:
        """A description of the check, for a progress line."""
        return f"{self.mechanism!r}, d = {self.size}, its contract"

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Return a row for each broken duty; none if all are kept."""
        (line,) = self.lines
        simulated = needs_simulated(self.mechanism, self.size)
        (stream,) = keys.draws(1, self.title, simulated=simulated).streams(0, 1)
        return [
            line.result(
                attack=broken,
                verdict="fails its contract",
                note="certain: found without trials",
            )
            for broken in (*self._taken(stream), *self._unread(stream))
        ]

    def _taken(self, stream: Stream) -> Iterator[str]:
        """Yield each non-number not refused properly, as the whole input or as one coordinate."""
        for name, value in (("NaN", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf)):
            one = np.ones(self.size)
            one[-1] = value
            for values in (np.full(self.size, value), one):
                try:
                    self.mechanism.encode(values.copy(), stream)
                except PrivacyError:
                    continue
                except Exception as error:
                    yield f"encode of {name} raises {_named(error)} instead of a PrivacyError"
                else:
                    yield f"encode accepts {name}, which it must refuse with a PrivacyError"
                break

    def _unread(self, stream: Stream) -> Iterator[str]:
        """Yield why the server cannot read an honest report."""
        try:
            payload = self.mechanism.encode(np.zeros(self.size), stream)
        except Exception:  # refusing a finite vector is an outcome that the games observe
            return
        try:
            aggregate = self.mechanism.aggregate(self.size)
            aggregate.add(payload)
            mean = np.asarray(aggregate.mean())
        except Exception as error:
            yield (
                f"aggregate raises {_named(error)} on an honest report, so no attack used the "
                "server's estimate"
            )
            return
        if mean.shape != (self.size,):
            yield f"aggregate returns a mean of shape {mean.shape}, not {(self.size,)}"
        elif not np.isfinite(mean).all():
            yield "aggregate returns NaN or infinity for an honest report"


def _named(error: Exception) -> str:
    said = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
    return said if len(said) <= 120 else f"{said[:117]}..."
