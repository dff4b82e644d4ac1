"""How a site authenticates, for one run: it signs a hello with its identity key.

The hello has the server's nonce, the digest of an agreement that the site accepted, and the receipt
of the run's last answer that left the site. It also names the certificate that the site saw in its
own TLS connection, so a server that the site trusts cannot use the hello to pose as the site at
another server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import Annotated

from cryptography.fernet import Fernet, InvalidToken
from pydantic import Field

from fedldp.deployment.documents import Hex, SignedDocument
from fedldp.deployment.messages import DIGEST_BYTES

NO_DIGEST = bytes(DIGEST_BYTES)
"""Stands for the digest in the hello of a site that does not name an agreement."""
NONCE_LENGTH = 100
"""How many characters a nonce has."""
NONCE = r"^[A-Za-z0-9_-]{97}[AQgw]==$"
"""The form of a nonce. Its 98th character has four unused bits, which are 0, so that each nonce has
one spelling."""
LONGEST = 1024
"""The largest hello, in bytes."""
BEAT_SECONDS = 20.0
"""Seconds between two signs of life of a site, which say nothing else: from the beginning of a
session to its end they have the same bytes, and follow the clock alone, whether or not the site
computes an answer."""
TAG = "fedldp-question"
"""The name of the HTTP header that holds the number of a round request."""
TOKEN_BYTES = 32
"""The length in bytes of a session's token, which the server returns for a hello."""
_SECONDS = 60


class Hello(SignedDocument):
    """A site's hello.

    Attributes:
        nonce: the server's nonce.
        certificate: SHA-256 of the certificate (DER) that the server showed.
        agreement: the digest of the agreement for whose run the site begins a session, or
            ``NO_DIGEST``.
        receipt: the receipt of the run's last answer that left the site, or ``NO_RECEIPT``.
        version: the version of the site's fedldp.
    """

    kind = "hello"
    what = "hello"

    nonce: Annotated[str, Field(pattern=NONCE)]
    certificate: Hex
    agreement: Hex
    receipt: Hex
    version: Annotated[str, Field(max_length=64)]

    def check_read(self, own: Container[str] | None) -> None:
        """Accept any hello: the server checks its signature after what is cheaper to check."""


class Nonces:
    """Nonces, each valid for one use within a minute; only a nonce that was used is stored.

    A nonce is a Fernet token of nothing: the time, something random, and a seal of both.

    Args:
        clock: returns seconds that never decrease.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seal = Fernet(Fernet.generate_key())
        self._used: dict[str, float] = {}

    def fresh(self) -> str:
        """Return a new nonce."""
        return self._seal.encrypt_at_time(b"", int(self._clock())).decode()

    def is_good(self, nonce: str) -> bool:
        """Return whether a nonce was made here in the last minute and is unused."""
        try:
            self._seal.decrypt_at_time(nonce, _SECONDS, int(self._clock()))
        except InvalidToken:
            return False
        return nonce not in self._used

    def use(self, nonce: str) -> None:
        """Make a valid nonce invalid for good."""
        now = self._clock()
        self._used = {each: until for each, until in self._used.items() if until > now}
        self._used[nonce] = now + _SECONDS + 1
