"""Refusals by clients and servers of the secure sum; a client that refuses has sent nothing."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import Run, collect_masked, column, make_client, make_setup, sent

from fedldp.core.errors import PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.summing import signed
from fedldp.secure_sum import server
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.messages import (
    KEYS_BYTES,
    SEALED_BYTES,
    SumKind,
    pack,
    unpack,
)
from fedldp.secure_sum.server import NoSum, SecureSumServer, Suspects

N, T, D = 5, 3, 2
VALUES = np.array([25, -50])


def shared(leaves: dict[int, int] | None = None) -> Run:
    """Return a sum after phase 1."""
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)}, leaves or {})
    run.to_shares()
    return run


@pytest.fixture
def run() -> Run:
    return shared()


def survivors(*clients: int, round: int = 1) -> bytes:
    return pack(SumKind.ALL_SURVIVORS, round, dict.fromkeys(clients, b""))


def unmask(run: Run, client: int, *alive: int) -> bytes:
    return run.clients[client].unmask(run.keys, run.shares[client], survivors(*alive))


def masked(client: SecureSumClient, keys: bytes, shares: bytes, values: Any = VALUES) -> bytes:
    return client.masked_input(keys, shares, lambda: values)


# Both shares of one client


@settings(max_examples=15)
@given(asked=st.lists(st.lists(st.integers(0, N - 1), unique=True), min_size=1, max_size=4))
def test_no_requests_get_both_shares(asked: list[list[int]]) -> None:
    run = shared()
    answers = set()
    for alive in asked:
        try:
            answers.add(unmask(run, 0, *alive))
        except PrivacyError:
            continue
    assert len(answers) <= 1  # one answer has room for only one share of each client
    assert all(len(answer) == 13 + 17 * N for answer in answers)


def test_a_recreated_client_refuses_by_what_it_remembers(run: Run) -> None:
    memory: dict[str, bytes] = {}

    def anew() -> SecureSumClient:
        stream = Stream.simulation(seed=7, round=1, client=0, purpose="secure sum")
        return SecureSumClient(run.setup, 1, 0, stream, memory.setdefault)

    alive, shares = survivors(*range(N)), run.shares[0]
    first = [
        anew().share_keys(run.keys),
        masked(anew(), run.keys, shares),
        anew().unmask(run.keys, shares, alive),
    ]
    assert sorted(memory) == ["keys", "shares", "survivors", "told", "values"]
    fewer = column({u: run.rows[u] for u in range(N - 1)}, 0)
    for ask in (
        lambda: anew().share_keys(keys_with(run, {4: bytes(range(64))})),
        lambda: masked(anew(), run.keys, fewer),
        lambda: masked(anew(), run.keys, shares, -VALUES),
        lambda: anew().unmask(run.keys, fewer, survivors(*range(N - 1))),
        lambda: anew().unmask(run.keys, shares, survivors(*range(N - 1))),
    ):
        with pytest.raises(PrivacyError, match="another answer"):
            ask()
    assert first == [
        anew().share_keys(run.keys),
        masked(anew(), run.keys, shares),
        anew().unmask(run.keys, shares, alive),
    ]


@pytest.mark.parametrize(
    ("alive", "reason"),
    [((0, 1), "fewer than threshold = 3"), ((), "fewer than threshold"),
     ((1, 2, 3), "lacks this client"), ((0, 1, 2, 9), "not there before"),
     ((0, 1, 2, 4), "not there before")],
)  # fmt: skip
def test_other_sets_of_survivors_are_refused(alive: tuple[int], reason: str) -> None:
    run = shared({4: 1})  # client 4 has not shared its keys
    with pytest.raises(PrivacyError, match=reason):
        unmask(run, 0, *alive)


# Masked vectors


def test_a_client_that_refuses_does_not_read_its_vector(run: Run) -> None:
    """A client deletes what it keeps from earlier rounds when it stores its vector of this one."""

    def never() -> Any:
        raise AssertionError("nothing of it is sent")

    rows = dict(run.rows)
    few = column({u: rows[u] for u in (0, 1)}, 0)
    for keys, shares in [(b"", b""), (run.keys, b""), (b"", run.shares[0]), (run.keys, few)]:
        with pytest.raises((PrivacyError, RunError)):
            run.clients[0].masked_input(keys, shares, never)


@pytest.mark.parametrize(
    "values",
    [np.array([0.0, math.nan]), np.array([1.0, 2.0]), np.zeros(3, np.int64),
     np.zeros((1, 2), np.int64), np.int64(1), [0, 0], np.array([True, False])],
)  # fmt: skip
def test_a_bad_vector_of_integers_is_refused(run: Run, values: Any) -> None:
    with pytest.raises(PrivacyError):
        masked(run.clients[0], run.keys, run.shares[0], values)


# Keys


def complains(client: SecureSumClient, keys: bytes, shares: bytes, *accused: int) -> None:
    """Check that a client complains and sends neither a vector nor a share in this sum."""

    def never() -> Any:
        raise AssertionError("nothing of it is sent")

    message = client.masked_input(keys, shares, never)
    record = b"".join(peer.to_bytes(4, "little") for peer in accused)
    assert message == pack(SumKind.CLIENT_COMPLAINT, 1, {client.index: record})
    assert client.masked_input(keys, shares, never) == message
    with pytest.raises(PrivacyError, match="do not open"):
        client.unmask(keys, shares, survivors(*range(N)))


def keys_with(run: Run, change: dict[int, bytes]) -> bytes:
    return pack(SumKind.ALL_KEYS, 1, unpack(SumKind.ALL_KEYS, 1, run.keys, KEYS_BYTES) | change)


def new_run() -> Run:
    run = shared()
    run.clients = {u: make_client(run.setup, u) for u in run.codes}
    return run


@pytest.mark.parametrize(
    ("change", "reason"),
    [({0: bytes(range(64))}, "other keys for this client"),
     ({1: bytes(64)}, "the same"),
     ({1: bytes(32) + bytes(range(32))}, "low order"),
     ({9: bytes(range(64))}, "num_clients = 5")],
)  # fmt: skip
def test_other_keys_are_refused(change: dict[int, bytes], reason: str) -> None:
    run = new_run()
    with pytest.raises(PrivacyError, match=reason):
        run.clients[0].share_keys(keys_with(run, change))


def test_a_mask_key_of_low_order_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)})
    box_key = unpack(SumKind.CLIENT_KEYS, 1, run.clients[1].advertise(), KEYS_BYTES)[1][:32]
    monkeypatch.setattr(run.clients[1], "_keys", lambda: box_key + bytes(32))
    monkeypatch.setattr(server, "has_low_order", lambda key: False)
    run.to_shares()
    with pytest.raises(PrivacyError, match="low order"):
        run.masked(0)


def test_clients_with_different_weights_do_not_open_each_others_shares() -> None:
    """A digest of what the system sends is in the context of all keys."""
    run = new_run()
    stream = Stream.simulation(seed=7, round=1, client=4, purpose="secure sum")
    odd = SecureSumClient(run.setup, 1, 4, stream, told=b"others")
    rows = run.rows | unpack(SumKind.CLIENT_SHARES, 1, odd.share_keys(run.keys), N * SEALED_BYTES)
    complains(run.clients[0], run.keys, column(rows, 0), 4)


# Sealed shares

SHARED = new_run()


@settings(max_examples=10)
@given(sender=st.integers(0, N - 1), bit=st.integers(0, 8 * SEALED_BYTES - 1))
def test_a_box_with_one_bit_changed_is_refused(sender: int, bit: int) -> None:
    run, recipient = SHARED, 2
    rows = dict(run.rows)
    row = bytearray(rows[sender])
    row[recipient * SEALED_BYTES + bit // 8] ^= 1 << bit % 8
    shares = column(rows | {sender: bytes(row)}, recipient)
    complains(make_client(run.setup, recipient), run.keys, shares, sender)


@settings(max_examples=25)
@given(
    taken=st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)),
    given_as=st.integers(0, N - 1),
)
def test_a_box_in_another_place_is_refused(taken: tuple[int, int], given_as: int) -> None:
    # A box from another sender, for another recipient, or the client's own share sent back
    run, recipient = SHARED, 2
    if taken == (given_as, recipient):
        return
    rows = dict(run.rows)
    sender, place = taken
    box = rows[sender][place * SEALED_BYTES : (place + 1) * SEALED_BYTES]
    row = bytearray(rows[given_as])
    row[recipient * SEALED_BYTES : (recipient + 1) * SEALED_BYTES] = box
    shares = column(rows | {given_as: bytes(row)}, recipient)
    complains(make_client(run.setup, recipient), run.keys, shares, given_as)


def test_too_few_shares_or_not_the_clients_own_are_refused(run: Run) -> None:
    rows = dict(run.rows)
    for clients, reason in [((0, 1), "U2 has 2 clients"), ((1, 2, 3), "lacks this client")]:
        shares = column({u: rows[u] for u in clients}, 0)
        with pytest.raises(PrivacyError, match=reason):
            masked(run.clients[0], run.keys, shares)


# Other rounds


def test_a_message_of_another_round_is_refused(run: Run) -> None:
    later = {u: make_client(run.setup, u, round=2) for u in range(N)}
    with pytest.raises(RunError, match="round 2: expected ALL_KEYS of this round"):
        later[0].share_keys(run.keys)
    server = SecureSumServer(run.setup, 2)
    with pytest.raises(NoSum, match="0 clients sent CLIENT_KEYS"):
        server.collect_keys(sent(run.seen[:N]))
    assert server.dropped == {"malformed": N}
    keys = server.collect_keys(sent(client.advertise() for client in later.values()))
    shares = server.collect_shares(sent(client.share_keys(keys) for client in later.values()))
    with pytest.raises(RunError, match="expected OWN_SHARES"):
        masked(later[0], keys, run.shares[0])
    with pytest.raises(RunError, match="expected ALL_SURVIVORS"):
        later[0].unmask(keys, shares[0], survivors(*range(N)))


# The server: what one client sends costs only that client's place


@pytest.fixture
def told() -> Run:
    """Return a sum in which clients 0 to 3 have answered phase 2, and client 4 has not."""
    run = shared()
    run.seen = [run.masked(u) for u in range(4)]
    return run


def finish(run: Run, messages: list[tuple[int | None, bytes]]) -> list[int]:
    """Close phase 2 with these messages; return the sum of the clients that are in it."""
    alive = collect_masked(run.server, messages)
    there = run.server.survivors
    revealed = [run.clients[u].unmask(run.keys, run.shares[u], alive) for u in there]
    return signed(run.server.unmask(sent(revealed)), run.setup.bits).tolist()


def forged(client: int, size: int = 4 * D) -> bytes:
    return pack(SumKind.CLIENT_SUM, 1, {client: bytes(size)})


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        (4, forged(4, 4 * D - 1), "malformed"),
        (4, b"", "malformed"),
        (4, forged(3), "malformed"),  # in another client's name
        (4, pack(SumKind.CLIENT_SUM, 1, {3: bytes(4 * D), 4: bytes(4 * D)}), "malformed"),
        (4, pack(SumKind.CLIENT_SUM, 2, {4: bytes(4 * D)}), "malformed"),
        (4, pack(SumKind.CLIENT_SHARES, 1, {4: bytes(4 * D)}), "malformed"),
        (4, pack(SumKind.CLIENT_COMPLAINT, 1, {4: bytes(3)}), "malformed"),
        (4, pack(SumKind.CLIENT_COMPLAINT, 1, {3: bytes(4)}), "malformed"),
        (0, forged(0), "repeated"),
        (9, forged(9), "not asked"),
        (None, forged(4), "unnamed"),
    ],
)
def test_a_malformed_message_of_one_client_is_left_out(
    told: Run, sender: int | None, message: bytes, reason: str
) -> None:
    assert finish(told, [*sent(told.seen), (sender, message)]) == [6, -6]
    assert told.server.dropped == {reason: 1}
    assert told.server.survivors == (0, 1, 2, 3)


@pytest.mark.parametrize("phase", range(4))
def test_a_round_in_which_too_many_lie_has_no_sum(phase: int) -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)})
    nothing: list[tuple[int | None, bytes]] = [(u, b"\0" * 13) for u in range(N)]
    masked = partial(collect_masked, run.server)
    calls = [run.server.collect_keys, run.server.collect_shares, masked]
    if phase > 0:
        run.to_shares() if phase < 3 else run.to_survivors()
    call = [*calls, run.server.unmask][phase]
    with pytest.raises(NoSum, match=f"round 1: 0 clients sent .* threshold = {T}"):
        call(nothing)


def test_the_server_refuses_more_clients_than_it_can_add() -> None:
    setup = make_setup(4, 3)
    with pytest.raises(RunError, match="choose fewer"):
        SecureSumServer(setup, 1).collect_keys(
            sent(make_client(setup, u).advertise() for u in range(5))
        )


@pytest.mark.parametrize(
    "keys",
    [bytes(64), bytes(range(32)) * 2, bytes(range(32)) + bytes(32),
     bytes([1]) + bytes(31) + bytes(range(32))],
)  # fmt: skip
def test_keys_that_would_stop_all_other_clients_are_left_out(keys: bytes) -> None:
    setup = make_setup(N, T, D)
    server = SecureSumServer(setup, 1)
    own = [make_client(setup, u).advertise() for u in range(4)]
    server.collect_keys([(4, pack(SumKind.CLIENT_KEYS, 1, {4: keys})), *sent(own)])
    assert server.dropped == {"unfit keys": 1}


def test_the_server_notices_wrong_shares_of_a_mask_key() -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)}, {3: 2})
    run.to_survivors()
    there, alive = (0, 1, 2, 4), run.survivors
    revealed = [run.clients[u].unmask(run.keys, run.shares[u], alive) for u in there]
    wrong = bytearray(revealed[0])
    wrong[13 + 17 * 3] ^= 1
    with pytest.raises(NoSum, match="shares of client 3 are wrong"):
        run.server.unmask(sent([bytes(wrong), *revealed[1:]]))
    assert signed(run.server.unmask(sent(revealed)), run.setup.bits).tolist() == [7, -7]


def test_a_complaint_costs_one_sum_and_names_both() -> None:
    setup = make_setup(N, T, D)
    run = Run(setup, {u: np.array([u, -u]) for u in range(N)})
    run.to_shares()
    rows = dict(run.rows)
    run.shares[4] = column(rows | {4: bytes(N * SEALED_BYTES)}, 4)
    assert (
        run.masked(4)[0] == SumKind.CLIENT_COMPLAINT
    )  # about client 4 itself: the server altered its box
    rows[4] = bytes(N * SEALED_BYTES)
    run.clients = {u: make_client(setup, u) for u in range(N)}
    run.shares = {u: column(rows, u) for u in range(N)}
    with pytest.raises(NoSum, match="0 clients sent CLIENT_SUM"):
        collect_masked(run.server, sent(run.masked(u) for u in range(N)))
    assert run.server.complaints == dict.fromkeys(range(N), (4,))


@pytest.mark.parametrize(
    ("complaints", "liars", "spared"),
    [
        ({}, 1, [0, 1, 2, 3, 4, 5]),
        ({0: (5,), 1: (5,), 2: (5,)}, 1, [0, 1, 2, 3, 4]),  # it sealed wrong shares
        ({5: (0, 1, 2)}, 1, [0, 1, 2, 3, 4]),  # it accuses everybody
        ({5: (0,)}, 1, [1, 2, 3, 4]),  # nobody can tell which one lies
        ({0: (5,)}, 0, [1, 2, 3, 4]),
        ({4: (0,), 5: (0,)}, 2, [1, 2, 3, 5]),
        ({5: (5,)}, 1, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_clients_left_out_after_complaints(
    complaints: dict[int, tuple[int, ...]], liars: int, spared: list[int]
) -> None:
    suspects = Suspects(liars)
    suspects.note(complaints)
    assert suspects.spared(range(6)) == spared


@settings(max_examples=25)
@given(data=st.data(), liars=st.integers(1, 3))
def test_no_more_honest_clients_are_left_out_than_liars(data: st.DataObject, liars: int) -> None:
    pairs = data.draw(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9))))
    complaints: dict[int, list[int]] = {}
    for one, other in pairs:
        if min(one, other) < liars:  # honest clients do not complain about each other
            complaints.setdefault(one, []).append(other)
    suspects = Suspects(liars)
    suspects.note(complaints)
    out = set(range(10)) - set(suspects.spared(range(10)))
    assert len([u for u in out if u >= liars]) <= len([u for u in out if u < liars])


def test_messages_name_each_client_once_and_in_order() -> None:
    message = survivors(1, 2)
    header = message[:9]
    for body in (message[13:] + message[9:13], message[9:13] * 2, message[9:] + b"\0"):
        with pytest.raises(RunError, match="malformed"):
            unpack(SumKind.ALL_SURVIVORS, 1, header + body, 0)
