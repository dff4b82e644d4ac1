"""Every random number of fedldp comes from here: one AES-256-CTR keystream for each purpose.

In deployment a stream is keyed with 32 fresh bytes from the operating system. In simulation its
key is derived from (seed, round, client, purpose), so that a draw depends on what it is for and
never on which process made it or when: any number of workers gives the same bits. The generator is
the same in both cases, and faster than numpy's own, so no fast and insecure mode exists.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

KEY_BYTES = 32

SERVER = -1
"""The client index under which the server and the simulator draw."""

_ZEROS = memoryview(bytes(1 << 18))
_FEW_BYTES = 4096
"""Up to so many, copies cost less than handing memory over."""


class Stream:
    """A keystream: AES-256 in counter mode over zeros, read from its start.

    A stream is used by one reader for one purpose. Two streams with the same 32-byte key are equal.
    """

    def __init__(self, key: bytes, *, simulated: bool) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a stream's key has {KEY_BYTES} bytes, not {len(key)}")
        self.simulated = simulated
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    @classmethod
    def fresh(cls) -> Stream:
        """Return a stream for deployment, keyed by the operating system; it cannot be repeated."""
        return cls(os.urandom(KEY_BYTES), simulated=False)

    @classmethod
    def derived(cls, secret: bytes, *labels: str) -> Stream:
        """Return the stream of a secret of 32 bytes for some labels, always the same.

        Streams of different labels tell nothing of each other, nor of the secret (HKDF, RFC 5869).
        """
        parts = [label.encode() for label in ("fedldp", *labels)]
        info = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        key = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)
        return cls(key, simulated=False)

    @classmethod
    def simulation(cls, *, seed: int, round: int, client: int, purpose: str) -> Stream:
        """Return the stream of (seed, round, client, purpose): for simulation only.

        Whoever knows the seed can undo every randomiser that drew from it.
        """
        label = f"fedldp simulation/{seed}/{round}/{client}/{purpose}"
        return cls(hashlib.blake2b(label.encode(), digest_size=KEY_BYTES).digest(), simulated=True)

    def bound_to(self, digest: Callable[[], bytes]) -> Stream:
        """Return the stream for what is drawn once for an input: for another one, another stream.

        Read before anything else is. Whoever begins anew from a copy of its disk may draw for
        another input; from the same stream, both draws together would tell more than two do. A
        simulation begins anew with its inputs, and keeps its stream.

        Args:
            digest: gives that of the input.
        """
        if self.simulated:
            return self
        return Stream.derived(self.bytes(KEY_BYTES).tobytes(), "bound", digest().hex())

    def bytes(self, count: int) -> NDArray[np.uint8]:
        """Return the next ``count`` bytes of the keystream, shape (count,)."""
        if count <= _FEW_BYTES:
            return np.frombuffer(bytearray(self._encryptor.update(_ZEROS[:count])), np.uint8)
        # cryptography asks for room for one block, less a byte, beyond what it writes.
        buffer = np.empty(count + 15, np.uint8)
        view = buffer.data
        for start in range(0, count, len(_ZEROS)):
            piece = min(len(_ZEROS), count - start)
            self._encryptor.update_into(_ZEROS[:piece], view[start:])
        return buffer[:count]

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
        """Return a torch generator seeded from this stream; as little cryptographic."""
        import torch

        return torch.Generator(device).manual_seed(self.torch_seed())


def numbered_generator(key: int, number: int) -> np.random.Generator:
    """Return generator ``number`` of a ``key`` from a stream: as little cryptographic.

    For many that are made again when they are needed, such as one for each block of clients.
    """
    return np.random.Generator(np.random.Philox(key=[key, number]))


@contextmanager
def torch_seeded(stream: Stream) -> Iterator[None]:
    """Let torch's global generator follow ``stream`` within the block, and restore it after.

    A module's initialiser and its dropout draw from the global generator and take no other.
    """
    import torch

    if torch.cuda.is_available():
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(stream.torch_seed())
            yield
        return
    # torch.manual_seed would format a stack trace for each kind of device that is not there.
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(stream.torch_seed())
    try:
        yield
    finally:
        generator.set_state(state)
