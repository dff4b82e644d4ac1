"""Certified keys: no client takes part in a sum with a key that the roster does not certify."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import Run, make_client, make_roster, make_setup, private_of, sent

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.identities import Identity, Roster
from fedldp.secure_sum.messages import KEYS_BYTES, SIGNATURE_BYTES, SumKind, pack, unpack
from fedldp.secure_sum.server import SecureSumServer

N, T, D = 5, 4, 2
RECORD = KEYS_BYTES + SIGNATURE_BYTES
SETUP = make_setup(N, T, D, untrusted=2)
ROSTER = make_roster(range(N))


def identity(index: int, roster: Roster = ROSTER, private: int | None = None) -> Identity:
    return Identity(
        roster=roster, index=index, private=private_of(index if private is None else private)
    )


def client(index: int, round: int = 1, roster: Roster = ROSTER) -> SecureSumClient:
    return make_client(SETUP, index, round, identity=identity(index, roster))


def all_keys(change: dict[int, bytes] | None = None) -> bytes:
    message = SecureSumServer(SETUP, 1, ROSTER).collect_keys(
        sent(client(u).advertise() for u in range(N))
    )
    return pack(SumKind.ALL_KEYS, 1, unpack(SumKind.ALL_KEYS, 1, message, RECORD) | (change or {}))


def record(
    index: int, *, signer: int | None = None, round: int = 1, roster: Roster = ROSTER,
    setup: Any = SETUP, secrets: int = 9,
) -> bytes:  # fmt: skip
    """Return keys that do not belong to the client, signed in some way by someone."""
    stream = Stream.simulation(seed=secrets, round=1, client=index, purpose="other keys")
    keys = bytes(stream.bytes(KEYS_BYTES))
    who = index if signer is None else signer
    signature = replace(identity(who, roster), index=who).signature(setup, round, keys)
    return keys + signature


FORGED = {
    "another's": record(3, signer=4),
    "of another round": record(3, round=2),
    "of another run": record(3, roster=replace(ROSTER, run="another run")),
    "of other parameters": record(3, setup=make_setup(N, T, D, untrusted=1)),
    "none": record(3)[:KEYS_BYTES] + bytes(SIGNATURE_BYTES),
    "of other keys": record(3, secrets=5)[:KEYS_BYTES] + record(3)[KEYS_BYTES:],
}


@pytest.mark.parametrize("name", FORGED)
def test_a_key_that_is_not_certified_is_refused_and_nothing_is_sent(name: str) -> None:
    with pytest.raises(PrivacyError, match="does not certify the keys of client 3: nothing is"):
        client(0).share_keys(all_keys({3: FORGED[name]}))


@pytest.mark.parametrize("name", FORGED)
def test_the_server_leaves_out_clients_that_are_not_certified(name: str) -> None:
    server = SecureSumServer(SETUP, 1, ROSTER)
    own = sent(client(u).advertise() for u in range(N) if u != 3)
    message = server.collect_keys([*own, (3, pack(SumKind.CLIENT_KEYS, 1, {3: FORGED[name]}))])
    assert sorted(unpack(SumKind.ALL_KEYS, 1, message, RECORD)) == [0, 1, 2, 4]
    assert server.dropped == {"uncertified": 1}


@settings(max_examples=30)
@given(bit=st.integers(0, 8 * RECORD - 1))
def test_one_changed_bit_is_refused(bit: int) -> None:
    honest = unpack(SumKind.ALL_KEYS, 1, all_keys(), RECORD)[3]
    changed = bytearray(honest)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PrivacyError, match="client 3"):
        client(0).share_keys(all_keys({3: bytes(changed)}))


def test_a_client_that_is_not_on_the_roster_is_refused() -> None:
    more = make_roster(range(N + 1))
    stranger = record(N, roster=more)
    honest = unpack(SumKind.ALL_KEYS, 1, all_keys(), RECORD)
    del honest[4]
    with pytest.raises(PrivacyError, match="does not certify the keys of client 5"):
        client(0).share_keys(pack(SumKind.ALL_KEYS, 1, honest | {N: stranger}))


def test_keys_that_were_accepted_are_verified_again_in_later_phases() -> None:
    run = Run(SETUP, {u: np.array([u, -u]) for u in range(N)}, roster=ROSTER)
    run.to_shares()
    lie = all_keys({3: FORGED["another's"]})
    with pytest.raises(PrivacyError, match="client 3"):
        client(0).masked_input(lie, run.shares[0], lambda: np.zeros(D, np.int64))


@pytest.mark.parametrize(
    ("keys", "words"),
    [({0: bytes(31)}, "client 0 has 31 bytes"), ({-1: bytes(32)}, "client -1"),
     ({0: bytes(32), 1: bytes(32)}, "two clients have the same key")],
)  # fmt: skip
def test_a_bad_roster_is_refused(keys: dict[int, bytes], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Roster(run="a run", keys=keys)


def test_an_identity_must_be_on_the_roster() -> None:
    for wrong in ({"private": 1}, {"index": 9}):
        with pytest.raises(PrivacyError, match="the roster has no client"):
            identity(**{"index": 0, **wrong})
    with pytest.raises(PrivacyError, match="5 bytes"):
        Identity(roster=ROSTER, index=0, private=bytes(5))
    with pytest.raises(ConfigError, match="belongs to client 0"):
        make_client(SETUP, 1, identity=identity(0))
    assert private_of(0).hex() not in repr(identity(0))
