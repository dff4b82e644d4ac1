"""The masks of the secure sum, as client and server compute them."""

from __future__ import annotations

from fedldp.mechanisms.summing import Words
from fedldp.secure_sum.crypto import KEY_BYTES, agree, derive, expand
from fedldp.secure_sum.messages import SecureSum


def point(client: int) -> int:
    """Return the point of the client's share; 0 is the point of the secret itself."""
    return client + 1


def mask_private(seed: bytes, client: int) -> bytes:
    """Return the client's private mask key, derived from a seed that is split into shares."""
    return derive(seed, "mask key", b"", client)


def self_mask(setup: SecureSum, seed: bytes, context: bytes, client: int) -> Words:
    """Return the client's own mask."""
    return expand(derive(seed, "self mask", context, client), setup.size, setup.dtype)


def add_pair_mask(
    total: Words,
    setup: SecureSum,
    private: bytes,
    keys: bytes,
    context: bytes,
    *,
    client: int,
    peer: int,
) -> None:
    """Add to ``client``'s vector the mask that it shares with ``peer``, or subtract the mask.

    Args:
        total: the vector, shape (d,).
        setup: the parameters.
        private: the private mask key of one of the two.
        keys: both public keys of the other one.
        context: the context of the sum.
        client: the client whose vector it is.
        peer: the other client. The one with the larger number adds, the other one subtracts.
    """
    secret = agree(private, keys[KEY_BYTES:])
    key = derive(secret, "pair mask", context, min(client, peer), max(client, peer))
    mask = expand(key, setup.size, setup.dtype)
    if client > peer:
        total += mask
    else:
        total -= mask
