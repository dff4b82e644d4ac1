"""The only source of randomness in fedldp: one AES-256-CTR keystream per purpose.

In deployment a stream is keyed with 32 fresh bytes from the operating system. In simulation its key
is derived from (seed, round, client, purpose). A draw then depends only on this key, never on the
process or the time, so any number of workers gives the same bits. Both cases use the same
generator. It is faster than numpy's generators, so a fast but insecure mode is not needed.

``PURPOSES`` says which purpose draws from which kind of stream, and nothing draws for a purpose
that it does not name.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedldp.core.errors import PrivacyError

if TYPE_CHECKING:
    import torch

KEY_BYTES = 32

SERVER = -1
"""The client index that the server and the simulator use for their draws."""

_ZEROS = memoryview(bytes(1 << 18))
_FEW_BYTES = 4096
"""Up to this many bytes, copying the output is cheaper than passing a buffer for it."""


ROOM = 15
"""How many bytes longer than its output a buffer must be (the cryptography package asks for it)."""

_FROM_ZERO = modes.CTR(bytes(16))


class Source(Enum):
    """Who draws for a purpose, and whether each draw has a new stream."""

    FRESH = "a client's fresh stream"
    """New for each answer. Noise, and whatever else hides a value, must come from it."""

    KEPT = "a client's kept stream"
    """The same throughout a run: for choices that a client makes only once."""

    ROUND = "the server's stream of a round"
    """New in each round: a server's noise, and whom it selects."""

    RUN = "the server's stream of a run"
    """The stream of round 0: for what the server draws once, before the first round."""

    WORLD = "a simulation's stream"
    """For what nobody draws in a deployment, such as how long a message travels."""


PURPOSES: dict[Source, set[str]] = {
    Source.FRESH: {"augmentation", "batches", "mechanism", "model", "people", "secure sum"},
    Source.KEPT: {"held-out people", "portions", "rows of a person"},
    Source.ROUND: {"dropouts", "mechanism", "noise on *", "participation", "selection"},
    Source.RUN: {"cohorts", "examples", "partition", "rows of a person", "turns", "weights"},
    Source.WORLD: {"arrivals", "delay", "latency"},
}
"""For each source, the purposes that draw from it; "*" at the end stands for any text.

A party draws for a purpose either afresh or once, never both. Papers, and users' own parts, add
their purposes with ``declare``. An own mechanism adds none: its encoder draws for "mechanism".
"""

_OF_ONE_PARTY = ({Source.FRESH, Source.KEPT}, {Source.ROUND, Source.RUN})


def declare(source: Source, *purposes: str) -> None:
    """Add purposes to ``PURPOSES``; call this in the module that draws for them.

    Raises:
        PrivacyError: the same party draws for one of them from its other kind of stream.
    """
    for other in set().union(*(party - {source} for party in _OF_ONE_PARTY if source in party)):
        for purpose, row in product(purposes, PURPOSES[other]):
            if _covers(purpose, row) or _covers(row, purpose):
                raise PrivacyError(
                    f"purpose {purpose!r}: {row!r} draws from {other.value}, so it cannot draw "
                    f"from {source.value} too; choose another name"
                )
    PURPOSES[source].update(purposes)


def _covers(row: str, purpose: str) -> bool:
    """Return whether a row of ``PURPOSES`` names a purpose, or every purpose of another row."""
    return purpose == row or (row.endswith("*") and purpose.startswith(row[:-1]))


def check_purpose(source: Source, purpose: str) -> None:
    """Refuse to draw for a purpose from a source that ``PURPOSES`` does not name for it.

    Raises:
        PrivacyError: ``source`` has no such purpose.
    """
    known = PURPOSES[source]
    if purpose in known or any(_covers(row, purpose) for row in known):
        return
    right = [other for other, rows in PURPOSES.items() if purpose in rows]
    remedy = f"draw from {right[0].value}" if right else "call randomness.declare in its module"
    raise PrivacyError(f"purpose {purpose!r}: it does not draw from {source.value}; {remedy}")


class Stream:
    """A keystream: AES-256 in counter mode over zeros, read from its start.

    Each stream has one reader and one purpose. Two streams with the same 32-byte key give the same
    bytes.
    """

    def __init__(self, key: bytes, *, simulated: bool) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a stream's key has {KEY_BYTES} bytes, not {len(key)}")
        self.simulated = simulated
        self._encryptor = Cipher(algorithms.AES(key), _FROM_ZERO).encryptor()

    @classmethod
    def fresh(cls) -> Stream:
        """Return a stream for deployment, keyed by the operating system and not repeatable."""
        return cls(os.urandom(KEY_BYTES), simulated=False)

    @classmethod
    def derived(cls, secret: bytes, *labels: str) -> Stream:
        """Return the stream that is determined by a 32-byte secret and some labels.

        Streams with different labels reveal nothing about each other or about the secret (HKDF, RFC
        5869).
        """
        parts = [label.encode() for label in ("fedldp", *labels)]
        info = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        key = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)
        return cls(key, simulated=False)

    @classmethod
    def simulation(cls, *, seed: int, round: int, client: int, purpose: str) -> Stream:
        """Return the stream for (seed, round, client, purpose); only simulations may use it.

        Anyone who knows the seed can undo every randomiser that drew from the stream.
        """
        label = f"fedldp simulation/{seed}/{round}/{client}/{purpose}"
        return cls(hashlib.blake2b(label.encode(), digest_size=KEY_BYTES).digest(), simulated=True)

    def bound_to(self, digest: Callable[[], bytes]) -> Stream:
        """Return a stream that depends on an input, for a value that is drawn once for that input.

        Call this before reading anything else from the stream. A client that is restored from a
        copy of its disk may draw for another input; if both draws came from the same stream, they
        would reveal more than two independent draws. A simulation restarts with the same inputs,
        so it keeps its stream.

        Args:
            digest: returns the digest of the input.
        """
        if self.simulated:
            return self
        return Stream.derived(self.bytes(KEY_BYTES).tobytes(), "bound", digest().hex())

    def bytes(self, count: int) -> NDArray[np.uint8]:
        """Return the next ``count`` bytes of the keystream, shape (count,)."""
        if count <= _FEW_BYTES:
            return np.frombuffer(bytearray(self._encryptor.update(_ZEROS[:count])), np.uint8)
        buffer = np.empty(count + ROOM, np.uint8)
        self.fill(buffer, count)
        return buffer[:count]

    def fill(self, buffer: NDArray[np.uint8], count: int) -> None:
        """Write the next ``count`` bytes to the start of ``buffer``.

        Args:
            buffer: contiguous, of at least ``count + ROOM`` bytes, of which the last are not used.
            count: how many bytes to write.
        """
        view = buffer.data
        for start in range(0, count, len(_ZEROS)):
            piece = min(len(_ZEROS), count - start)
            self._encryptor.update_into(_ZEROS[:piece], view[start:])

    def integers(self, count: int, dtype: type[np.signedinteger | np.unsignedinteger]) -> NDArray:  # type: ignore[type-arg]
        """Return ``count`` integers, uniform over the whole range of ``dtype``, shape (count,)."""
        return self.bytes(count * np.dtype(dtype).itemsize).view(dtype)

    def generator(self) -> np.random.Generator:
        """Return a numpy generator seeded from this stream: for batches, samples and partitions.

        It is not cryptographic, so no randomiser of sensitive values may use it.
        """
        return np.random.Generator(np.random.Philox(key=self.integers(2, np.uint64)))

    def torch_seed(self) -> int:
        """Return a seed for torch, from the next eight bytes."""
        return int(self.integers(1, np.int64)[0])

    def torch_generator(self, device: torch.device) -> torch.Generator:
        """Return a torch generator seeded from this stream; it is not cryptographic."""
        import torch

        return torch.Generator(device).manual_seed(self.torch_seed())


def numbered_generator(key: int, number: int) -> np.random.Generator:
    """Return the generator for a stream's ``key`` and a ``number``; it is not cryptographic.

    Use it for many generators that are rebuilt when needed, such as one for each block of clients.
    """
    return np.random.Generator(np.random.Philox(key=[key, number]))


_seeding = threading.RLock()


@contextmanager
def torch_seeded(stream: Stream) -> Iterator[None]:
    """Seed torch's global generator from ``stream`` within the block, and restore it afterwards.

    A module's initialiser and its dropout draw only from the global generator. All threads share
    it, so a block waits for those of other threads: what is drawn follows from the stream alone.
    """
    import torch

    devices = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    with _seeding, torch.random.fork_rng(devices=devices):
        # torch.manual_seed would format a stack trace for each kind of device that is missing.
        seeded = torch if devices else torch.default_generator
        seeded.manual_seed(stream.torch_seed())
        yield


@lru_cache(maxsize=2)  # every round of a run needs the same permutation
def permutation(key: bytes, size: int) -> NDArray[np.int32]:
    """Return a uniform permutation of 0 to ``size`` - 1, unpredictable without the key.

    The order of distinct random integers is uniform; if two are equal, all are drawn again. numpy's
    own permutation draws from a generator that is not cryptographic.
    """
    stream = Stream(key, simulated=True)
    while True:
        numbers = stream.integers(size, np.uint64)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        if np.all(ascending[1:] > ascending[:-1]):
            found = order.astype(np.int32)
            found.flags.writeable = False
            return found
