"""What a client keeps from one of its rounds to the next, and never sends."""

from __future__ import annotations

import numpy as np

from fedldp.protocol.roles import Client
from fedldp.protocol.wire import Vector

_KEPT = "state"


def kept_before(client: Client, round: int, first: Vector) -> Vector:
    """Return the state in which a client begins a round.

    A round that is repeated, as after a crash, begins in the state in which it began before.

    Args:
        client: the client.
        round: the round.
        first: the state before the client's first round.
    """
    again = client.store.known(_KEPT, round)
    if again is not None:
        return again["begun"]
    for earlier in range(round - 1, 0, -1):
        found = client.store.known(_KEPT, earlier)
        if found is not None:
            return found["ended"]
    return first


def keep(client: Client, round: int, begun: Vector, ended: Vector) -> None:
    """Keep a client's state at the end of a round; one that is not finite leaves it as it was."""
    after = ended if np.isfinite(ended).all() else begun
    client.store.arrays(_KEPT, lambda: {"begun": begun, "ended": after}, round=round)
