"""Secret sharing, masks and keys of the secure sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.secure_sum import crypto
from fedldp.secure_sum.crypto import (
    PRIME,
    SHARE_BYTES,
    agree,
    combine,
    derive,
    expand,
    public_key,
    seal,
    split,
    unseal,
    weights_at_zero,
)

SECRETS = st.binary(min_size=16, max_size=16)
POINTS = st.lists(st.integers(1, 2**32 - 1), min_size=2, max_size=6, unique=True)


def stream(purpose: str = "sharing") -> Stream:
    return Stream.simulation(seed=3, round=1, client=0, purpose=purpose)


def recovered(shares: Sequence[tuple[int, bytes]]) -> bytes | None:
    return combine(weights_at_zero([p for p, _ in shares]), [share for _, share in shares])


# Secret sharing


def test_the_modulus_is_the_least_prime_above_all_secrets() -> None:
    # Miller-Rabin: at most one composite number in 4^40 passes for these bases.
    def passes(n: int, base: int) -> bool:
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        power = pow(base, odd, n)
        return power in (1, n - 1) or any(
            (power := power * power % n) == n - 1 for _ in range(twos - 1)
        )

    assert PRIME == 2**128 + 51
    assert all(passes(PRIME, base) for base in range(2, 42))
    assert not any(passes(n, 3) for n in range(2**128 + 1, PRIME, 2))
    assert PRIME < 1 << 8 * SHARE_BYTES


@settings(max_examples=30)
@given(secret=SECRETS, points=POINTS, data=st.data())
def test_any_threshold_of_the_shares_recover_the_secret(
    secret: bytes, points: list[int], data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(2, len(points)))
    shares = list(zip(points, split(secret, threshold, points, stream()), strict=True))
    for chosen in combinations(shares, threshold):
        assert recovered(chosen) == secret
    for chosen in combinations(shares, threshold - 1):
        assert recovered(chosen) != secret


@settings(max_examples=30)
@given(secret=SECRETS, other=SECRETS, points=POINTS, data=st.data())
def test_fewer_shares_are_consistent_with_every_secret(
    secret: bytes, other: bytes, points: list[int], data: st.DataObject
) -> None:
    # For any t - 1 shares and any other secret, there is a share of one more point that gives that
    # secret. So the shares reveal nothing about it.
    threshold = data.draw(st.integers(2, len(points)))
    shares = dict(zip(points, split(secret, threshold, points, stream()), strict=True))
    chosen = data.draw(st.permutations(points))[:threshold]
    weights = weights_at_zero(chosen)
    known = sum(
        w * int.from_bytes(shares[p], "little")
        for w, p in zip(weights[:-1], chosen[:-1], strict=True)
    )
    last = (int.from_bytes(other, "little") - known) * pow(weights[-1], -1, PRIME) % PRIME
    fitting = [*(shares[p] for p in chosen[:-1]), last.to_bytes(17, "little")]
    assert combine(weights, fitting) == other


def test_every_set_of_fewer_shares_is_uniform_in_a_small_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The function is run with all coefficients of a field of seven numbers
    monkeypatch.setattr(crypto, "PRIME", 7)

    class Script(Stream):
        def __init__(self, coefficients: tuple[int, ...]) -> None:
            super().__init__(bytes(32), simulated=True)
            self._own = b"".join(c.to_bytes(32, "little") for c in coefficients)

        def bytes(self, count: int) -> NDArray[np.uint8]:
            return np.frombuffer(self._own[:count], np.uint8)

    for secret in range(7):
        seen = Counter(
            tuple(
                int.from_bytes(share, "little")
                for share in split(secret.to_bytes(16, "little"), 3, (1, 2, 5), Script(drawn))
            )
            for drawn in product(range(7), repeat=2)
        )
        for pair in combinations(range(3), 2):
            views = Counter(tuple(shares[i] for i in pair) for shares in seen.elements())
            assert len(views) == 49  # each pair of values once, whatever the secret
            assert set(views.values()) == {1}


# Keys, boxes and masks


def test_key_agreement_as_published() -> None:
    # RFC 7748, section 6.1.
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert agree(alice, public_key(bob)).hex() == shared
    assert agree(bob, public_key(alice)).hex() == shared


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_of_low_order_is_refused(public: bytes) -> None:
    with pytest.raises(PrivacyError, match="low order"):
        agree(bytes(range(32)), public)


def test_every_argument_changes_the_key() -> None:
    keys = {
        derive(secret, purpose, context, *clients)
        for secret in (b"a" * 16, b"b" * 16)
        for purpose in ("one", "two", "")
        for context in (b"", b"x")
        for clients in ((), (1,), (2,), (1, 2), (2, 1))
    }
    assert len(keys) == 2 * 3 * 2 * 5


@given(content=st.binary(max_size=40))
def test_a_box_opens_only_with_its_key(content: bytes) -> None:
    box = seal(bytes(32), content)
    assert len(box) == len(content) + 16
    assert unseal(bytes(32), box) == content
    with pytest.raises(PrivacyError):
        unseal(bytes(31) + b"x", box)


@pytest.mark.parametrize("name", ["<u4", "<u8"])
def test_a_mask_is_the_keystream_in_little_endian_words(name: str) -> None:
    dtype = np.dtype(name)
    mask = expand(bytes(32), 1000, dtype)
    assert mask.shape == (1000,)
    assert mask.dtype == dtype
    # AES-256 of the key zero and counter zero: see test_randomness.
    assert mask.tobytes()[:16].hex() == "dc95c078a2408989ad48a21492842087"
