"""Secret sharing, masks and keys of the secure sum."""

from __future__ import annotations

import sys
from itertools import combinations

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import Shamir
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedldp.errors import ConfigError, PrivacyError
from fedldp.parts.secure_sum_crypto import (
    agree,
    combine,
    derive,
    expand,
    public_key,
    seal,
    split,
    unseal,
)
from fedldp.randomness import Stream

SECRETS = st.binary(min_size=16, max_size=16)
POINTS = st.lists(st.integers(1, 2**32 - 1), min_size=2, max_size=6, unique=True)


def stream(purpose: str = "sharing") -> Stream:
    return Stream.simulation(seed=3, round=1, client=0, purpose=purpose)


class Script(Stream):
    """A stream that gives what it is told to."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__(bytes(32), simulated=True)
        self.pieces = pieces

    def bytes(self, count: int) -> NDArray[np.uint8]:
        piece = self.pieces.pop(0)
        assert len(piece) == count
        return np.frombuffer(piece, np.uint8)


# Secret sharing


@settings(max_examples=30, deadline=None)
@given(secret=SECRETS, points=POINTS, data=st.data())
def test_any_threshold_of_the_shares_recover_the_secret(
    secret: bytes, points: list[int], data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(2, len(points)))
    shares = list(zip(points, split(secret, threshold, points, stream()), strict=True))
    for chosen in combinations(shares, threshold):
        assert combine(chosen) == secret
    for chosen in combinations(shares, threshold - 1):
        assert combine(chosen) != secret


@settings(max_examples=30, deadline=None)
@given(secret=SECRETS, other=SECRETS, points=POINTS, data=st.data())
def test_fewer_shares_fit_every_secret(
    secret: bytes, other: bytes, points: list[int], data: st.DataObject
) -> None:
    # For any t - 1 shares and any other secret there is exactly one polynomial; drawn with the
    # same probability, it gives the same shares.
    threshold = data.draw(st.integers(2, len(points)))
    shares = dict(zip(points, split(secret, threshold, points, stream()), strict=True))
    known = data.draw(st.permutations(points))[: threshold - 1]
    polynomial = [(0, other), *((point, shares[point]) for point in known)]
    drawn = [combine([(x ^ p, y) for x, y in polynomial]) for p in points[: threshold - 1]]
    again = dict(zip(points, split(other, threshold, points, Script(drawn)), strict=True))
    assert [again[point] for point in known] == [shares[point] for point in known]


@settings(max_examples=20, deadline=None)
@given(secret=SECRETS, threshold=st.integers(2, 5))
def test_the_librarys_own_shares_are_of_the_same_kind(secret: bytes, threshold: int) -> None:
    theirs = Shamir.split(threshold, 5, secret)
    assert combine(theirs[-threshold:]) == secret
    drawn = [share for _, share in theirs[: threshold - 1]]
    assert split(secret, threshold, range(1, 6), Script(drawn)) == [share for _, share in theirs]


def test_shares_follow_the_stream() -> None:
    first, same = (split(bytes(16), 3, range(1, 6), stream()) for _ in range(2))
    assert first == same
    assert not set(first) & set(split(bytes(16), 3, range(1, 6), stream("other")))


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Crypto.Protocol.SecretSharing", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedldp\[baselines\]'") as refusal:
        split(bytes(16), 2, [1, 2], stream())
    assert "Crypto" in str(refusal.value)
    assert "\n" not in str(refusal.value)


# Keys, boxes and masks


def test_agreement_as_published() -> None:
    # RFC 7748, section 6.1.
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert agree(alice, public_key(bob)).hex() == shared
    assert agree(bob, public_key(alice)).hex() == shared


def test_two_holders_of_keys_agree() -> None:
    first, second = (bytes(stream(name).bytes(32)) for name in ("first", "second"))
    assert agree(first, public_key(second)) == agree(second, public_key(first))
    assert agree(first, public_key(first)) != agree(first, public_key(second))


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_of_low_order_is_refused(public: bytes) -> None:
    with pytest.raises(PrivacyError, match="low order"):
        agree(bytes(range(32)), public)


def test_every_argument_makes_another_key() -> None:
    keys = {
        derive(secret, purpose, context, *clients)
        for secret in (b"a" * 16, b"b" * 16)
        for purpose in ("one", "two", "")
        for context in (b"", b"x")
        for clients in ((), (1,), (2,), (1, 2), (2, 1))
    }
    assert len(keys) == 2 * 3 * 2 * 5


@given(content=st.binary(max_size=40))
def test_a_box_opens_with_its_key_alone(content: bytes) -> None:
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
