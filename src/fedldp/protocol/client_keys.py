"""A client's randomness: fresh for what is new in every answer, kept for what is drawn once.

A simulation derives both from its seed. Outside one, what is fresh comes from the operating system,
and what is kept from the client's secret: so the same choice comes out again after a restart, and
another one in another run. Whoever drew a once-only choice afresh would randomise one example in
several rounds for the price of one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import KEY_BYTES, Stream


class Keys(Protocol):
    """Where a client's streams come from, for one run.

    Attributes:
        simulated: whether they come from a seed: then they protect nothing by themselves.
    """

    @property
    def simulated(self) -> bool: ...

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return a stream for one purpose in one phase of a round."""
        ...

    def kept(self, purpose: str) -> Stream:
        """Return the stream for a purpose that the client has once in the run."""
        ...


@dataclass(frozen=True)
class SimulationKeys:
    """The keys of one simulated client.

    Attributes:
        seed: the simulation's.
        client: its number.
    """

    seed: int
    client: int
    simulated: bool = field(default=True, init=False)

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return the simulation's stream of the round; see ``Keys``."""
        if phase:
            purpose = f"{purpose}, exchange {phase}"
        return Stream.simulation(seed=self.seed, round=round, client=self.client, purpose=purpose)

    def kept(self, purpose: str) -> Stream:
        """Return the simulation's stream of round 0; see ``Keys``."""
        return Stream.simulation(seed=self.seed, round=0, client=self.client, purpose=purpose)


@dataclass(frozen=True)
class SecretKeys:
    """The keys of a real client in one run.

    Attributes:
        secret: 32 bytes that only this client has, and keeps; see ``read_secret``.
        run: the run; other runs have other streams.
        entropy: gives fresh bytes, as ``os.urandom`` does.

    Raises:
        PrivacyError: ``secret`` has another length.
    """

    secret: bytes = field(repr=False)
    run: str
    entropy: Callable[[int], bytes] = field(default=os.urandom, repr=False)
    simulated: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise PrivacyError(f"secret: it has {len(self.secret)} bytes, not {KEY_BYTES}")

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return a stream that nobody had before; see ``Keys``."""
        return Stream(self.entropy(KEY_BYTES), simulated=False)

    def kept(self, purpose: str) -> Stream:
        """Return the stream derived from the secret for this run and purpose; see ``Keys``."""
        return Stream.derived(self.secret, "client", self.run, purpose)


@dataclass(frozen=True)
class TrialKeys:
    """The keys of a client that is played in many trials, each with a secret of its own.

    They follow from the secret, so that a trial can be repeated, and yet their streams are of a
    deployment's kind where that is asked for: a mechanism then draws as it does there.

    Attributes:
        secret: 32 bytes of the trial.
        streams_simulated: of which kind the streams are.
        again: whether every stream is a new one, as fresh ones of a deployment are; else the same
            purpose has the same.
    """

    secret: bytes = field(repr=False)
    streams_simulated: bool
    again: bool = False
    simulated: bool = field(default=True, init=False)
    _drawn: list[None] = field(default_factory=list, init=False, repr=False, compare=False)

    def fresh(self, round: int, phase: int, purpose: str) -> Stream:
        """Return a stream for one purpose in one phase of a round; see ``Keys``."""
        number = len(self._drawn) if self.again else 0
        self._drawn.append(None)
        return self._stream("fresh", round, phase, purpose, number)

    def kept(self, purpose: str) -> Stream:
        """Return the stream for a purpose that the client has once in the run; see ``Keys``."""
        return self._stream("kept", purpose)

    def _stream(self, *labels: object) -> Stream:
        text = "/".join(map(str, labels)).encode()
        key = hashlib.blake2b(text, key=self.secret, digest_size=KEY_BYTES).digest()
        return Stream(key, simulated=self.streams_simulated)


def read_secret(path: Path) -> bytes:
    """Return the secret in a file, which is made, readable by its owner only, where there is none.

    A client that loses its secret must not go on with the run: it would draw anew what it drew
    once. So a file that is empty or cut short is refused, and never replaced.

    Raises:
        PrivacyError: the file cannot be made or read, others may read it, or it is damaged.
    """
    try:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
        if path.stat().st_mode & 0o077:
            raise PrivacyError(f"secret {path}: others may read it; run chmod 600 on it")
        secret = path.read_bytes()
        # Also one that was there: whoever made it may have been killed before this.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise PrivacyError(f"secret {path}: {error.strerror}; check the path") from error
    if len(secret) != KEY_BYTES:
        raise PrivacyError(
            f"secret {path}: it is damaged; restore it from a copy, or take part in new runs only"
        )
    return secret
