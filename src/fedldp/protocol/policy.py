"""What a client has agreed to answer, checked before it reads any example."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fedldp.core.bounding import within_largest_weight
from fedldp.protocol.wire import Layout, Reason, RoundRequest, Vector


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One run's terms; a request outside them is refused.

    Attributes:
        run: the run's name.
        rounds: how many rounds the run has.
        phases: the number of requests in one round.
        layout: the model's layout.
        trains_in: the phase in which the client trains, whose request carries the weights; requests
            of other phases may carry no weights.
        initial: digest of the weights that the run begins with. If it is None, the client accepts
            any weights that the server sends.
    """

    run: str
    rounds: int
    phases: int
    layout: Layout
    trains_in: int = 0
    initial: bytes | None = None

    def refuses(self, request: RoundRequest) -> Reason | None:
        """Return why a request is refused, or None if it is not; this depends on nothing private.

        The weights and every public number sent with them must lie within
        ``core.bounding.LARGEST_WEIGHT``. Otherwise a server could choose finite weights so large
        that training overflows for some examples only.
        """
        broadcast = request.broadcast
        if request.run != self.run:
            return Reason.UNKNOWN_RUN
        if not 1 <= broadcast.round <= self.rounds or not 0 <= request.phase < self.phases:
            return Reason.WRONG_ROUND
        ranges = broadcast.ranges
        weighty = request.phase == self.trains_in or broadcast.weights.size > 0
        if broadcast.weights.shape != (self.layout.size if weighty else 0,):
            return Reason.OUT_OF_RANGE
        if ranges is not None and ranges.sizes != self.layout.sizes:
            return Reason.OUT_OF_RANGE
        if not all(map(within_largest_weight, (broadcast.weights, *broadcast.public.values()))):
            return Reason.OUT_OF_RANGE
        begins = broadcast.round == 1 and broadcast.weights.size > 0
        if begins and self.initial not in (None, digest_of_weights(broadcast.weights)):
            return Reason.OTHER_WEIGHTS
        return None


def digest_of_weights(weights: Vector) -> bytes:
    """Return the 32-byte SHA-256 of float32 weights, little-endian, in the order of a layout."""
    return hashlib.sha256(weights.astype("<f4", copy=False).tobytes()).digest()
