"""The randomness of a client and of the server in one run.

A client has fresh streams for each answer and kept streams for once-only choices. A simulation
derives both kinds from its seed. A real client takes fresh bytes from the operating system, and
derives kept streams from its secret. A restart therefore repeats the same choice, and another run
makes a different one. A client that drew a once-only choice again would randomise the same example
several times, but its ledger would be charged only once.

The server's randomness is for initial weights, choice of clients, noise and secret selections. It
is never part of the public configuration, because anyone who knew it could subtract the server's
noise. A simulation derives it from the seed. A real server derives it from its own secret, so that
a round that is restarted after a crash draws the same values.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fedldp.core.errors import PrivacyError, os_errors
from fedldp.core.locks import sync
from fedldp.core.randomness import KEY_BYTES, SERVER, Source, Stream, check_purpose
from fedldp.protocol.roles import Draw, Draws


class Keys(Protocol):
    """The source of a client's streams in one run.

    Both methods raise ``PrivacyError`` for a purpose that does not draw from this kind of stream;
    see ``randomness.PURPOSES``.

    Attributes:
        simulated: whether the keys come from a seed; such keys protect nothing.
    """

    @property
    def simulated(self) -> bool: ...

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return a stream for one purpose in one phase of a round."""
        ...

    def kept(self, purpose: str) -> Stream:
        """Return the stream for a purpose that the client draws only once in the run."""
        ...


@dataclass(frozen=True)
class SimulationKeys:
    """The keys of one simulated client.

    Attributes:
        seed: the seed of the simulation.
        client: the client's number.
    """

    seed: int
    client: int
    simulated: bool = field(default=True, init=False)

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return the simulation's stream for the round; see ``Keys``."""
        check_purpose(Source.FRESH, purpose)
        if phase:
            purpose = f"{purpose}, exchange {phase}"
        return Stream.simulation(seed=self.seed, round=round, client=self.client, purpose=purpose)

    def kept(self, purpose: str) -> Stream:
        """Return the simulation's stream for round 0; see ``Keys``."""
        check_purpose(Source.KEPT, purpose)
        return Stream.simulation(seed=self.seed, round=0, client=self.client, purpose=purpose)


@dataclass(frozen=True)
class SecretKeys:
    """The keys of a real client in one run.

    Attributes:
        secret: 32 bytes that only this client has, and that it stores permanently; see
            ``read_secret``.
        run: the name of the run; each run has its own streams.
        entropy: a function that returns fresh random bytes, such as ``os.urandom``.

    Raises:
        PrivacyError: ``secret`` is not 32 bytes long.
    """

    secret: bytes = field(repr=False)
    run: str
    entropy: Callable[[int], bytes] = field(default=os.urandom, repr=False)  # noqa: TID251  # client keys
    simulated: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise PrivacyError(f"secret: it has {len(self.secret)} bytes, not {KEY_BYTES}")

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return a stream from fresh random bytes, never used before; see ``Keys``."""
        check_purpose(Source.FRESH, purpose)
        return Stream(self.entropy(KEY_BYTES), simulated=False)

    def kept(self, purpose: str) -> Stream:
        """Return the stream derived from the secret for this run and purpose; see ``Keys``."""
        check_purpose(Source.KEPT, purpose)
        return Stream.derived(self.secret, "client", self.run, purpose)


@dataclass(frozen=True)
class TrialKeys:
    """The keys of a client that takes part in many trials, each with its own secret.

    The streams are derived from the secret, so a trial can be repeated. They can still be marked as
    streams of a deployment, so that a mechanism draws from them as it does in a deployment.

    Attributes:
        secret: 32 bytes, different in every trial.
        streams_simulated: whether the streams are marked as simulated.
        again: whether every fresh stream is new, as in a deployment; if not, the same round, phase
            and purpose always get the same stream.
    """

    secret: bytes = field(repr=False)
    streams_simulated: bool
    again: bool = False
    simulated: bool = field(default=True, init=False)
    _drawn: list[None] = field(default_factory=list, init=False, repr=False, compare=False)

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return a stream for one purpose in one phase of a round; see ``Keys``."""
        check_purpose(Source.FRESH, purpose)
        number = len(self._drawn) if self.again else 0
        self._drawn.append(None)
        return self.labelled("fresh", round, phase, purpose, number)

    def kept(self, purpose: str) -> Stream:
        """Return the stream for a purpose that is drawn only once in the run; see ``Keys``."""
        check_purpose(Source.KEPT, purpose)
        return self.labelled("kept", purpose)

    def labelled(self, *labels: object) -> Stream:
        """Return the trial's stream with some labels, for draws that are not the client's own."""
        text = "/".join(map(str, labels)).encode()
        key = hashlib.blake2b(text, key=self.secret, digest_size=KEY_BYTES).digest()
        return Stream(key, simulated=self.streams_simulated)


def read_secret(path: Path) -> bytes:
    """Return the secret in a file; a missing file is created, readable only by its owner.

    A client that loses its secret must leave the run, because it would draw its once-only choices
    again. So an empty or truncated file is refused, and never replaced.

    Raises:
        PrivacyError: the file cannot be created or read, others may read it, or it is damaged.
    """
    with os_errors(f"secret {path}", "check the path", PrivacyError):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(KEY_BYTES))  # noqa: TID251
                file.flush()
                os.fsync(file.fileno())
        if path.stat().st_mode & 0o077:
            raise PrivacyError(f"secret {path}: others may read it; run chmod 600 on it")
        secret = path.read_bytes()
        # Also sync a folder that already existed, because the process that created it may have been
        # killed before it reached this line.
        sync(path.parent)
    if len(secret) != KEY_BYTES:
        raise PrivacyError(
            f"secret {path}: it is damaged; restore it from a copy, or take part in new runs only"
        )
    return secret


def draws_of_seed(seed: int) -> Draws:
    """Return the randomness of a simulation's server."""

    def stream(round: int, purpose: str) -> Stream:
        return Stream.simulation(seed=seed, round=round, client=SERVER, purpose=purpose)

    return _draws(stream)


def draws_of_secret(secret: bytes, run: str) -> Draws:
    """Return the randomness of a real server in one run, from its secret of 32 bytes."""
    return _draws(lambda round, purpose: Stream.derived(secret, "server", run, str(round), purpose))


def _draws(stream: Callable[[int, str], Stream]) -> Draws:
    """Return a server's randomness, given the stream for a round and a purpose.

    Noise from round 0's streams is refused, because it would repeat, and so are once-only choices
    from others; see ``check_purpose``.
    """

    def draws(round: int) -> Draw:
        def draw(purpose: str) -> Stream:
            check_purpose(Source.ROUND if round else Source.RUN, purpose)
            return stream(round, purpose)

        return draw

    return draws
