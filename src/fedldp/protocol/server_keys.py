"""The server's randomness: for initial weights, choice of clients, noise and secret selections.

This randomness is never part of the public configuration, because anyone who knew it could subtract
the server's noise. A simulation derives it from the seed. A real server derives it from its own
secret, so that a round that is restarted after a crash draws the same values.
"""

from __future__ import annotations

from fedldp.core.randomness import SERVER, Source, Stream, check_purpose
from fedldp.protocol.roles import Draw, Draws


def draws_of_seed(seed: int) -> Draws:
    """Return the randomness of a simulation's server."""

    def draws(round: int) -> Draw:
        def draw(purpose: str) -> Stream:
            _check(round, purpose)
            return Stream.simulation(seed=seed, round=round, client=SERVER, purpose=purpose)

        return draw

    return draws


def draws_of_secret(secret: bytes, run: str) -> Draws:
    """Return the randomness of a real server in one run, from its secret of 32 bytes."""

    def draws(round: int) -> Draw:
        def draw(purpose: str) -> Stream:
            _check(round, purpose)
            return Stream.derived(secret, "server", run, str(round), purpose)

        return draw

    return draws


def _check(round: int, purpose: str) -> None:
    """Refuse noise from round 0's streams, which would repeat, and once-only choices elsewhere.

    Raises:
        PrivacyError: see ``check_purpose``.
    """
    check_purpose(Source.ROUND if round else Source.RUN, purpose)
