"""The server's randomness: for initial weights, choice of clients, noise and secret selections.

This randomness is never part of the public configuration, because anyone who knew it could subtract
the server's noise. A simulation derives it from the seed. A real server derives it from its own
secret, so that a round that is restarted after a crash draws the same values.
"""

from __future__ import annotations

from fedldp.core.randomness import SERVER, Stream
from fedldp.protocol.roles import Draws


def draws_of_seed(seed: int) -> Draws:
    """Return the randomness of a simulation's server."""
    return lambda round: (
        lambda purpose: Stream.simulation(seed=seed, round=round, client=SERVER, purpose=purpose)
    )


def draws_of_secret(secret: bytes, run: str) -> Draws:
    """Return the randomness of a real server in one run, from its secret of 32 bytes."""
    return lambda round: lambda purpose: Stream.derived(secret, "server", run, str(round), purpose)
