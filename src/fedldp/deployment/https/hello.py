"""How a site authenticates: it signs the server's nonce and certificate with its identity key.

The certificate is the one that the site saw in its own TLS connection, so a server that the site
trusts cannot use the signature to pose as the site at another server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.core.errors import WireError
from fedldp.deployment.identity import PUBLIC_BYTES, SIGNATURE_BYTES, is_signed

_PURPOSE = b"fedldp link hello\x01"
_RANDOM, _MAC = 16, 16
_NONCE = struct.Struct(f">d{_RANDOM}s{_MAC}s")
NONCE_BYTES = _NONCE.size
LONGEST_VERSION = 64
LONGEST = NONCE_BYTES + PUBLIC_BYTES + SIGNATURE_BYTES + LONGEST_VERSION
"""The largest hello, in bytes."""
TAG = "fedldp-question"
"""The name of the HTTP header that holds the number of a round request."""
TOKEN_BYTES = 32
"""The length in bytes of a session's token, which the server returns for a hello."""
_SECONDS = 60.0


@dataclass(frozen=True)
class SignedHello:
    """A site's hello.

    Attributes:
        nonce: the server's nonce.
        public: the site's key, 64 hexadecimal digits.
        signature: the signature by that key.
        version: the version of the site's fedldp.
    """

    nonce: bytes
    public: str
    signature: bytes
    version: str

    @classmethod
    def signed(
        cls, key: Ed25519PrivateKey, nonce: bytes, certificate: bytes, version: str
    ) -> SignedHello:
        """Return a hello, signed with ``key``, to the server that showed ``certificate`` (DER)."""
        public = key.public_key().public_bytes_raw().hex()
        signature = key.sign(_to_sign(nonce, public, certificate, version))
        return cls(nonce, public, signature, version)

    def is_for(self, certificate: bytes) -> bool:
        """Return whether the key signed this hello for the server with ``certificate`` (DER)."""
        signed = _to_sign(self.nonce, self.public, certificate, self.version)
        return is_signed(self.public, self.signature, signed)

    def pack(self) -> bytes:
        """Return the hello as bytes."""
        head = self.nonce + bytes.fromhex(self.public) + self.signature
        return head + self.version.encode()

    @classmethod
    def read(cls, body: bytes) -> SignedHello:
        """Return the hello in ``body``.

        Raises:
            WireError: the body is not a hello.
        """
        ends = [NONCE_BYTES, NONCE_BYTES + PUBLIC_BYTES]
        ends.append(ends[-1] + SIGNATURE_BYTES)
        version = body[ends[2] :].decode("ascii", "replace")
        if not ends[2] < len(body) <= LONGEST or not version.isprintable():
            raise WireError("a malformed hello")
        nonce, public, signature = body[: ends[0]], body[ends[0] : ends[1]], body[ends[1] : ends[2]]
        return cls(nonce, public.hex(), signature, version)


class Nonces:
    """Nonces, each valid for one use within a minute; only a nonce that was used is stored.

    Args:
        clock: returns seconds that never decrease.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = os.urandom(32)
        self._used: dict[bytes, float] = {}

    def fresh(self) -> bytes:
        """Return a new nonce."""
        made, random = self._clock(), os.urandom(_RANDOM)
        return _NONCE.pack(made, random, self._mac(made, random))

    def is_good(self, nonce: bytes) -> bool:
        """Return whether a nonce was made here in the last minute and is unused."""
        made, random, mac = _NONCE.unpack(nonce)
        known = hmac.compare_digest(mac, self._mac(made, random))
        return known and self._clock() - made <= _SECONDS and nonce not in self._used

    def use(self, nonce: bytes) -> None:
        """Make a valid nonce invalid for good."""
        now = self._clock()
        self._used = {each: until for each, until in self._used.items() if until >= now}
        self._used[nonce] = now + _SECONDS

    def _mac(self, made: float, random: bytes) -> bytes:
        content = struct.pack(">d", made) + random
        return hmac.digest(self._secret, content, hashlib.sha256)[:_MAC]


def _to_sign(nonce: bytes, public: str, certificate: bytes, version: str) -> bytes:
    seen = hashlib.sha256(certificate).digest()
    return _PURPOSE + nonce + bytes.fromhex(public) + seen + version.encode()
