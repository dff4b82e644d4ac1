"""The secure sum: exact whoever drops out, what its messages hide, and the cryptography beneath."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import secure_sums
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from secure_sums import Codes, Run, ShiftedMasks, make_client, make_roster, make_setup

from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.secure_sum import client, crypto
from fedldp.secure_sum import messages as masks
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.crypto import (
    PRIME,
    SHARE_BYTES,
    agree,
    combine,
    derive,
    expand,
    public_key,
    split,
    weights_at_zero,
)

D = 3
CODES = st.lists(st.integers(-32767, 32767), min_size=D, max_size=D).map(np.array)
HALVES = st.lists(st.integers(-16383, 16383), min_size=D, max_size=D).map(np.array)
mask_settings = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Draw a sum of up to 6 clients, any of which may drop out before any phase, with keys that a
    roster certifies or without."""
    inputs = draw(st.dictionaries(st.integers(0, 2**32 - 2), CODES, min_size=2, max_size=6))
    most = len(inputs) + draw(st.integers(0, 1))
    threshold = draw(st.integers(most // 2 + 1, most))
    leaves = draw(st.fixed_dictionaries({}, optional={u: st.integers(0, 3) for u in inputs}))
    roster = make_roster(inputs) if draw(st.booleans()) else None
    return Run(make_setup(most, threshold, D), inputs, leaves, roster=roster)


def total_of(codes: list[Codes]) -> Codes:
    return np.sum(codes, axis=0, dtype=np.int64)


# The sum


@settings(max_examples=15)
@given(run=runs())
def test_a_sum_is_exact_whoever_drops_out_and_refused_below_the_threshold(run: Run) -> None:
    if len(run.answering(3)) < run.setup.threshold:
        with pytest.raises(RunError, match="fewer than threshold"):
            run.total()
        return
    found = run.total()
    assert found.dtype == np.int64
    assert found.tolist() == total_of([run.codes[u] for u in run.answering(2)]).tolist()
    assert run.server.survivors == tuple(sorted(run.answering(2)))


@pytest.mark.parametrize("bits", [1, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64])
def test_a_sum_is_exact_modulo_any_power_of_two(bits: int) -> None:
    setup = make_setup(4, 3, bits=bits)
    ends = [2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 0]
    found = Run(setup, dict.fromkeys(range(4), np.array(ends)), {2: 2}).total()
    assert [(int(total) - 3 * end) % 2**bits for total, end in zip(found, ends, strict=True)] == [
        0, 0, 0,
    ]  # fmt: skip
    assert found.min() >= ends[1]
    assert found.max() <= ends[0]


# What the server sees


@pytest.mark.slow
@mask_settings
@given(data=st.data())
def test_other_inputs_with_the_same_sum_give_the_same_view(
    data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Any two survivors trade any amount. The mask of the pair, which the server never computes,
    # differs by that amount, and every byte that the server receives is the same, even of late
    # messages.
    first, second = sorted(data.draw(st.permutations(range(6)))[:2])
    leavers = data.draw(st.lists(st.integers(0, 5), max_size=2, unique=True))
    leaves = {u: 3 if u in (first, second) else data.draw(st.integers(0, 3)) for u in leavers}
    codes = {u: data.draw(HALVES) for u in range(6)}
    moved = data.draw(HALVES)
    setup = make_setup(6, 4, D)
    with monkeypatch.context() as patch:
        shifted_masks = ShiftedMasks(patch)
        run = Run(setup, codes, leaves)
        total = run.total()
        name = ("pair mask", (first, second))
        assert name not in shifted_masks.computed_by_server
        shifted_masks.shifts[name] = moved
        exchanged = {**codes, first: codes[first] + moved, second: codes[second] - moved}
        other = Run(setup, exchanged, leaves)
        assert other.total().tolist() == total.tolist()
    assert (other.seen, other.late) == (run.seen, run.late)


@mask_settings
@given(before=CODES, after=CODES, dropped=st.integers(0, 3))
def test_a_vector_that_arrives_too_late_stays_hidden(
    before: Codes, after: Codes, dropped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server can then compute all pair masks of the client, but not its own mask.
    setup, codes = make_setup(4, 3, D), {u: np.full(D, u) for u in range(4)}
    with monkeypatch.context() as patch:
        shifted_masks = ShiftedMasks(patch)
        run = Run(setup, codes | {dropped: before}, {dropped: 2})
        total = run.total()
        pairs = {("pair mask", tuple(sorted((u, dropped)))) for u in codes if u != dropped}
        assert pairs <= shifted_masks.computed_by_server
        assert ("self mask", (dropped,)) not in shifted_masks.computed_by_server
        shifted_masks.shifts["self mask", (dropped,)] = before - after
        other = Run(setup, codes | {dropped: after}, {dropped: 2})
        assert other.total().tolist() == total.tolist()
    assert len(run.late) == 1
    assert (other.seen, other.late) == (run.seen, run.late)


def test_even_with_the_same_secrets_no_two_sums_share_a_mask_or_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mask that two sums share hides neither: their difference is that of the vectors."""
    keys: dict[tuple[str, tuple[int, ...]], list[bytes]] = defaultdict(list)

    def derived(secret: bytes, purpose: str, context: bytes, *clients: int) -> bytes:
        key = crypto.derive(secret, purpose, context, *clients)
        keys[purpose, clients].append(key)
        return key

    monkeypatch.setattr(masks, "derive", derived)
    monkeypatch.setattr(client, "derive", derived)
    setup, codes = make_setup(3, 2), {u: np.arange(D) for u in range(3)}
    sums = [
        Run(setup, codes),
        Run(setup, codes, round=2),
        Run(make_setup(3, 2, bits=25), codes),
        Run(setup, codes, roster=make_roster(range(3))),
        Run(setup, codes, roster=make_roster(range(3), "another run")),
    ]
    told = partial(SecureSumClient, told=b"something else")
    monkeypatch.setattr(secure_sums, "SecureSumClient", told)
    sums.append(Run(setup, codes))
    for each in sums:
        each.to_survivors()
    assert {purpose for purpose, _ in keys} == {
        "mask key", "self mask", "pair mask", "sharing", "shares",
    }  # fmt: skip
    for (purpose, clients), found in keys.items():
        # A mask key is no mask: pairs agree on secrets with it. Some keys are derived twice.
        each_client = 3 if purpose == "sharing" else 1
        expected = 1 if purpose == "mask key" else len(sums) * each_client
        assert len(set(found)) == expected, (purpose, clients)


@settings(max_examples=20)
@given(data=st.data())
def test_no_message_of_a_client_contains_its_secrets(data: st.DataObject) -> None:
    # Clients reveal a share of one of a peer's secrets, never the secret itself.
    run = Run(make_setup(4, 3), {u: data.draw(CODES) for u in range(4)}, {2: 2})
    run.total()
    everything = b"".join(run.seen + run.late)
    for u in range(4):
        stream = Stream.simulation(seed=7, round=1, client=u, purpose="secure sum")
        secrets = bytes(stream.bytes(96))
        assert not any(secrets[n : n + 16] in everything for n in range(0, 96, 16))


# Parameters


@pytest.mark.parametrize(
    "change",
    [{"num_clients": 1, "threshold": 1}, {"threshold": 2}, {"threshold": 6}, {"size": 0},
     {"bits": 0}, {"bits": 65}, {"untrusted": -1}, {"untrusted": 4, "threshold": 5},
     {"untrusted": 1}],
)  # fmt: skip
def test_parameters_out_of_range_are_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refusal:
        replace(make_setup(5, 3), **change)
    assert re.search("num_clients|threshold|size|bits|untrusted", str(refusal.value))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("index", [-1, 2**32 - 1])
def test_numbers_that_do_not_fit_are_refused(index: int) -> None:
    with pytest.raises(ConfigError, match=f"index = {index}"):
        make_client(make_setup(5, 3), index)


@given(n=st.integers(2, 60), u=st.integers(0, 58), t=st.integers(1, 60))
def test_no_threshold_lets_untrusted_clients_reveal_both_kinds_of_shares(
    n: int, u: int, t: int
) -> None:
    """Untrusted clients reveal both kinds, and the others one kind: fewer than 2 t shares."""
    fits = u <= n - 2 and t <= n and 2 * t > n + u
    try:
        make_setup(n, t, untrusted=u)
    except ConfigError:
        assert not fits
    else:
        assert fits
        assert not any(a >= t and b >= t for a in range(u, n + 1) for b in [n - a + u])


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


@pytest.mark.parametrize("name", ["<u4", "<u8"])
def test_a_mask_is_the_keystream_in_little_endian_words(name: str) -> None:
    dtype = np.dtype(name)
    mask = expand(bytes(32), 1000, dtype)
    assert mask.shape == (1000,)
    assert mask.dtype == dtype
    # AES-256 of the key zero and counter zero: see test_randomness.
    assert mask.tobytes()[:16].hex() == "dc95c078a2408989ad48a21492842087"
