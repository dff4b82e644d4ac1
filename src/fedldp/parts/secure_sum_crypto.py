"""The cryptography of the secure sum: keys, key agreement, sealed boxes, masks, secret sharing.

Everything is a function of its arguments, so that a message that is made twice is the same twice.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedldp.errors import PrivacyError
from fedldp.randomness import Stream
from fedldp.registry import import_extra

KEY_BYTES = 32
SECRET_BYTES = 16
"""Bytes of a shared secret and of its shares: elements of the field with 2^128 elements."""
TAG_BYTES = 16

Words = NDArray[np.unsignedinteger]


def derive(secret: bytes, purpose: str, context: bytes, *clients: int) -> bytes:
    """Return the 32-byte key of ``secret`` for one purpose, context and sequence of clients.

    Source: HKDF with SHA-256, RFC 5869.
    """
    info = struct.pack(f"<{len(clients)}I", *clients) + purpose.encode()
    return HKDF(SHA256(), KEY_BYTES, salt=context, info=info).derive(secret)


def public_key(private: bytes) -> bytes:
    """Return the X25519 public key, 32 bytes, of a private key of 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """Return the secret, 32 bytes, that two holders of X25519 keys share (RFC 7748).

    Raises:
        PrivacyError: ``public`` has low order, so that everybody would know the secret.
    """
    try:
        peer = X25519PublicKey.from_public_bytes(public)
        return X25519PrivateKey.from_private_bytes(private).exchange(peer)
    except ValueError as error:
        raise PrivacyError("a public key of low order gives no secret: nothing is sent") from error


def seal(key: bytes, content: bytes) -> bytes:
    """Return ``content`` encrypted and authenticated by AES-256-GCM, 16 bytes longer.

    A key seals one content only: it is derived for one sender, recipient, round and set of keys.
    That is why the nonce can be zero.
    """
    return AESGCM(key).encrypt(bytes(12), content, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Return the content of ``sealed``.

    Raises:
        PrivacyError: it was not sealed under this key, or was changed since.
    """
    try:
        return AESGCM(key).decrypt(bytes(12), sealed, None)
    except InvalidTag as error:
        raise PrivacyError(
            "sealed shares were altered, or made for another client, round, set of keys or "
            "configuration: nothing is sent"
        ) from error


def expand(key: bytes, size: int, dtype: np.dtype[np.unsignedinteger]) -> Words:
    """Return the mask of ``key``: AES-256-CTR as uniform words, shape (size,)."""
    return Stream(key, simulated=False).bytes(size * dtype.itemsize).view(dtype)


def split(secret: bytes, threshold: int, points: Sequence[int], stream: Stream) -> list[bytes]:
    """Return shares of ``secret``, 16 bytes, at ``points``; any ``threshold`` of them recover it.

    Guarantee: fewer shares are independent of the secret. The shares are the values of a random
    polynomial of degree ``threshold`` - 1 whose value at 0 is the secret. Its values at the first
    ``threshold`` - 1 points are uniform and determine it: they are drawn, and give the others.

    Args:
        secret: 16 bytes.
        threshold: at least 2, at most the number of points.
        points: distinct, from 1 to 2^128 - 1.
        stream: 16 bytes of it are read for each share that is drawn.

    Cost: n - threshold + 1 interpolations of threshold^2 products in the field each, in Python; for
    more than about 30 points this is the slowest step of a sum.

    Source: Shamir 1979, over the field with 2^128 elements.
    """
    drawn = [bytes(stream.bytes(SECRET_BYTES)) for _ in range(threshold - 1)]
    known = [(0, secret), *zip(points, drawn, strict=False)]
    return drawn + [_value_at(point, known) for point in points[threshold - 1 :]]


def combine(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the secret of exactly ``threshold`` shares, given as (point, share)."""
    return _value_at(0, shares)


def _value_at(point: int, known: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the value at ``point`` of the polynomial through ``known``.

    The library interpolates at 0. Addition in this field is XOR, so it does so at any point after
    a shift of all points. Its own ``split`` takes no stream and draws anew at every call.
    """
    shamir: Any = import_extra("Crypto.Protocol.SecretSharing", extra="baselines").Shamir
    value: bytes = shamir.combine([(other ^ point, share) for other, share in known])
    return value
