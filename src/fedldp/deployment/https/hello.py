"""How a site authenticates, for one run: it signs a hello with its identity key.

The hello has the server's nonce, the digest of an agreement that the site accepted, and the receipt
of the run's last answer that left the site. The signature also covers the certificate that the site
saw in its own TLS connection, so a server that the site trusts cannot use the signature to pose as
the site at another server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.core.errors import WireError
from fedldp.deployment.identity import PUBLIC_BYTES, SIGNATURE_BYTES, is_signed
from fedldp.deployment.messages import DIGEST_BYTES, NO_RECEIPT, RECEIPT_BYTES

NO_DIGEST = bytes(DIGEST_BYTES)
"""Stands for the digest in the hello of a site that does not name an agreement."""
_PURPOSE = b"fedldp link hello\x02"
_RANDOM, _MAC = 16, 16
_NONCE = struct.Struct(f">d{_RANDOM}s{_MAC}s")
NONCE_BYTES = _NONCE.size
LONGEST_VERSION = 64
_HELLO = struct.Struct(
    f"<{NONCE_BYTES}s{PUBLIC_BYTES}s{DIGEST_BYTES}s{RECEIPT_BYTES}s{SIGNATURE_BYTES}s"
)
LONGEST = _HELLO.size + LONGEST_VERSION
"""The largest hello, in bytes."""
BEAT_SECONDS = 20.0
"""Seconds between two signs of life of a site, which say nothing else: from the beginning of a
session to its end they have the same bytes, and follow the clock alone, whether or not the site
computes an answer."""
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
        digest: the digest of the agreement for whose run the site begins a session, or
            ``NO_DIGEST``.
        receipt: the receipt of the run's last answer that left the site, or ``NO_RECEIPT``.
        version: the version of the site's fedldp.
        signature: the signature by the site's key.
    """

    nonce: bytes
    public: str
    digest: bytes
    receipt: bytes
    version: str
    signature: bytes = b""

    @classmethod
    def signed(
        cls,
        key: Ed25519PrivateKey,
        nonce: bytes,
        certificate: bytes,
        version: str,
        digest: bytes = NO_DIGEST,
        receipt: bytes = NO_RECEIPT,
    ) -> SignedHello:
        """Return a hello, signed with ``key``, to the server that showed ``certificate`` (DER)."""
        public = key.public_key().public_bytes_raw().hex()
        hello = cls(nonce, public, digest, receipt, version)
        return replace(hello, signature=key.sign(hello._to_sign(certificate)))

    def is_for(self, certificate: bytes) -> bool:
        """Return whether the key signed this hello for the server with ``certificate`` (DER)."""
        return is_signed(self.public, self.signature, self._to_sign(certificate))

    def pack(self) -> bytes:
        """Return the hello as bytes."""
        public = bytes.fromhex(self.public)
        head = _HELLO.pack(self.nonce, public, self.digest, self.receipt, self.signature)
        return head + self.version.encode()

    @classmethod
    def read(cls, body: bytes) -> SignedHello:
        """Return the hello in ``body``.

        Raises:
            WireError: the body is not a hello.
        """
        version = body[_HELLO.size :].decode("ascii", "replace")
        if not _HELLO.size < len(body) <= LONGEST or not version.isprintable():
            raise WireError("a malformed hello")
        nonce, public, digest, receipt, signature = _HELLO.unpack_from(body)
        return cls(nonce, public.hex(), digest, receipt, version, signature)

    def _to_sign(self, certificate: bytes) -> bytes:
        unsigned = replace(self, signature=bytes(SIGNATURE_BYTES))
        return _PURPOSE + hashlib.sha256(certificate).digest() + unsigned.pack()


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
