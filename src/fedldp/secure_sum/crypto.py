"""The cryptography of the secure sum: keys, key agreement, sealed boxes, masks, secret sharing.

Every result depends only on a function's arguments, so a message that is made again is the same as
before.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.mechanisms.summing import Words

SECRET_BYTES = 16
PRIME = 2**128 + 51
"""The smallest prime above all secrets; shares are integers modulo it."""
SHARE_BYTES = 17
TAG_BYTES = 16

_DRAWN_BYTES = 32  # enough for a coefficient to stay uniform after reduction


def derive(secret: bytes, purpose: str, context: bytes, *clients: int) -> bytes:
    """Return the 32-byte key of ``secret`` for one purpose, context and sequence of clients.

    Source: HKDF with SHA-256, RFC 5869.
    """
    info = struct.pack(f"<{len(clients)}I", *clients) + purpose.encode()
    return HKDF(SHA256(), KEY_BYTES, salt=context, info=info).derive(secret)


def public_key(private: bytes) -> bytes:
    """Return the 32-byte X25519 public key of a private key of 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """Return the 32-byte secret that two holders of X25519 keys share (RFC 7748).

    Raises:
        PrivacyError: ``public`` has low order, so the secret would be known to everybody.
    """
    try:
        peer = X25519PublicKey.from_public_bytes(public)
        return X25519PrivateKey.from_private_bytes(private).exchange(peer)
    except ValueError as error:
        raise PrivacyError("a public key of low order gives no secret: nothing is sent") from error


def has_low_order(public: bytes) -> bool:
    """Return whether agreement with this key gives a secret that everybody knows."""
    try:
        agree(bytes(KEY_BYTES), public)
    except PrivacyError:
        return True
    return False


def seal(key: bytes, content: bytes) -> bytes:
    """Return ``content`` encrypted and authenticated by AES-256-GCM, 16 bytes longer.

    A key seals only one content, because it is derived for one sender, recipient, round and set of
    keys. So the nonce can be zero.
    """
    return AESGCM(key).encrypt(bytes(12), content, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Return the content of ``sealed``.

    Raises:
        PrivacyError: the content was not sealed under this key, or was changed afterwards.
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
    """Return shares of ``secret``, 17 bytes each, at ``points``; any ``threshold`` recover it.

    Guarantee: fewer shares are independent of the secret, up to 2^-127 for each coefficient. The
    shares are values of a polynomial of degree ``threshold`` - 1. Its value at 0 is the secret, and
    its other coefficients are uniform.

    Args:
        secret: 16 bytes.
        threshold: at least 2, at most the number of points.
        points: distinct, from 1 to 2^128 - 1.
        stream: 32 bytes of it are read for each coefficient.

    Source: Shamir 1979, over the field of integers modulo ``PRIME``; the polynomials
    are evaluated by Horner's rule.
    """
    drawn = bytes(stream.bytes(_DRAWN_BYTES * (threshold - 1)))
    coefficients = [
        int.from_bytes(drawn[start : start + _DRAWN_BYTES], "little") % PRIME
        for start in range(0, len(drawn), _DRAWN_BYTES)
    ]
    coefficients.append(int.from_bytes(secret, "little"))
    shares = []
    for point in points:
        value = 0
        for coefficient in coefficients:
            value = (value * point + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "little"))
    return shares


def weights_at_zero(points: Sequence[int]) -> list[int]:
    """Return the weights that ``combine`` gives to shares at ``points``, which are distinct.

    They are the same for every secret that was shared among these points.
    """
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def combine(weights: Sequence[int], shares: Sequence[bytes]) -> bytes | None:
    """Return the secret from exactly ``threshold`` shares; None if the result cannot be a secret.

    Args:
        weights: the weights of the shares' points; see ``weights_at_zero``.
        shares: the shares, in the order of ``weights``.
    """
    numbers = (int.from_bytes(share, "little") for share in shares)
    value = sum(w * n for w, n in zip(weights, numbers, strict=True)) % PRIME
    return value.to_bytes(SECRET_BYTES, "little") if value < 1 << 8 * SECRET_BYTES else None
