"""What the two sides of the secure sum refuse; a client that refuses has sent nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secure_sums import Run, make_client, make_setup

from fedldp.errors import PrivacyError, RunError
from fedldp.parts.secure_sum import SecureSumClient, SecureSumServer
from fedldp.parts.secure_sum_messages import KEYS_BYTES, SEALED_BYTES, Kind, pack, unpack
from fedldp.randomness import Stream

N, T, D = 5, 3, 2
VALUES = np.array([0.25, -0.5])


@pytest.fixture
def run() -> Run:
    """Return a sum after phase 1."""
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)})
    run.to_shares()
    return run


def survivors(*clients: int, round: int = 1) -> bytes:
    return pack(Kind.ALL_SURVIVORS, round, dict.fromkeys(clients, b""))


def unmask(run: Run, client: int, *alive: int) -> bytes:
    return run.clients[client].unmask(run.keys, run.shares, survivors(*alive))


def masked(client: SecureSumClient, keys: bytes, shares: bytes, values: Any = VALUES) -> bytes:
    return client.masked_input(keys, shares, lambda: values)


# Both shares of one client


def test_who_asks_for_both_shares_of_a_client_gets_one(run: Run) -> None:
    first = unmask(run, 0, 0, 1, 2, 3)
    assert unmask(run, 0, 0, 1, 2, 3) == first  # a message that was lost is made again
    for others in [(0, 1, 2, 4), (0, 1, 2, 3, 4), (0, 1, 2)]:
        with pytest.raises(PrivacyError, match="another answer"):
            unmask(run, 0, *others)
    assert unmask(run, 0, 0, 1, 2, 3) == first


@settings(max_examples=15, deadline=None)
@given(asked=st.lists(st.lists(st.integers(0, N - 1), unique=True), min_size=1, max_size=4))
def test_whatever_is_asked_never_both(asked: list[list[int]]) -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)})
    run.to_shares()
    answers = set()
    for alive in asked:
        try:
            answers.add(unmask(run, 0, *alive))
        except PrivacyError:
            continue
    assert len(answers) <= 1  # and one answer has room for one share of each client
    assert all(len(answer) == 13 + 16 * N for answer in answers)


def test_the_two_answers_would_have_told_both() -> None:
    # Two clients made from one stream, without what the first was asked: what the refusal is for.
    setup = make_setup(N, T, D)
    run = Run(setup, {u: np.array([u, -u]) for u in range(N)})
    run.to_shares()
    one, other = (
        unpack(
            Kind.CLIENT_REVEALED,
            1,
            make_client(setup, 0).unmask(run.keys, run.shares, survivors(0, 1, 2, *more)),
            16 * N,
        )[0]
        for more in ((3,), (4,))
    )
    assert [one[16 * u : 16 * u + 16] == other[16 * u : 16 * u + 16] for u in range(N)] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_client_that_is_made_anew_refuses_by_what_it_remembers(run: Run) -> None:
    memory: dict[str, bytes] = {}

    def anew() -> SecureSumClient:
        stream = Stream.simulation(seed=7, round=1, client=0, purpose="secure sum")
        return SecureSumClient(run.setup, 1, 0, stream, memory.setdefault)

    alive, boxes = survivors(*range(N)), unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    first = [
        anew().share_keys(run.keys),
        masked(anew(), run.keys, run.shares),
        anew().unmask(run.keys, run.shares, alive),
    ]
    assert sorted(memory) == ["keys", "shares", "survivors", "values"]
    fewer = pack(Kind.ALL_SHARES, 1, {u: boxes[u] for u in range(N - 1)})
    for ask in (
        lambda: anew().share_keys(keys_with(run, {4: bytes(range(64))})),
        lambda: masked(anew(), run.keys, fewer),
        lambda: masked(anew(), run.keys, run.shares, -VALUES),
        lambda: anew().unmask(run.keys, fewer, survivors(*range(N - 1))),
        lambda: anew().unmask(run.keys, run.shares, survivors(*range(N - 1))),
    ):
        with pytest.raises(PrivacyError, match="another answer"):
            ask()
    assert first == [
        anew().share_keys(run.keys),
        masked(anew(), run.keys, run.shares),
        anew().unmask(run.keys, run.shares, alive),
    ]


@pytest.mark.parametrize(
    ("alive", "reason"),
    [((0, 1), "fewer than threshold = 3"), ((), "fewer than threshold"),
     ((1, 2, 3), "lacks this client"), ((0, 1, 2, 9), "not there before")],
)  # fmt: skip
def test_other_sets_of_survivors_are_refused(run: Run, alive: tuple[int], reason: str) -> None:
    with pytest.raises(PrivacyError, match=reason):
        unmask(run, 0, *alive)


def test_a_survivor_must_have_shared_its_keys() -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)}, {4: 1})
    run.to_shares()
    with pytest.raises(PrivacyError, match="not there before"):
        unmask(run, 0, 0, 1, 2, 4)


# Masked vectors


def test_a_second_vector_under_the_same_masks_is_refused(run: Run) -> None:
    client = run.clients[0]
    first = masked(client, run.keys, run.shares)
    assert masked(client, run.keys, run.shares) == first
    with pytest.raises(PrivacyError, match="another answer"):
        masked(client, run.keys, run.shares, -VALUES)


def test_a_client_that_refuses_does_not_ask_what_it_would_mask(run: Run) -> None:
    """What a client keeps of earlier rounds goes when it keeps its vector of this one."""

    def never() -> Any:
        raise AssertionError("nothing of it is sent")

    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    few = pack(Kind.ALL_SHARES, 1, {u: rows[u] for u in (0, 1)})
    for keys, shares in [(b"", b""), (run.keys, b""), (b"", run.shares), (run.keys, few)]:
        with pytest.raises((PrivacyError, RunError)):
            run.clients[0].masked_input(keys, shares, never)


def test_so_are_other_peers_for_the_same_vector(run: Run) -> None:
    # The difference of the two would be one pair's mask.
    client = run.clients[0]
    masked(client, run.keys, run.shares)
    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    del rows[4]
    with pytest.raises(PrivacyError, match="another answer"):
        masked(client, run.keys, pack(Kind.ALL_SHARES, 1, rows))


@pytest.mark.parametrize(
    "values",
    [np.array([0.0, math.nan]), np.array([math.inf, 0.0]), np.array([1, 2]), np.zeros(3),
     np.zeros((1, 2)), np.float64(1.0), [0.0, 0.0], np.array([0.0, 0.0], np.float16)],
)  # fmt: skip
def test_what_is_no_finite_vector_is_refused(run: Run, values: Any) -> None:
    with pytest.raises(PrivacyError):
        masked(run.clients[0], run.keys, run.shares, values)


# Keys


def keys_with(run: Run, change: dict[int, bytes]) -> bytes:
    return pack(Kind.ALL_KEYS, 1, unpack(Kind.ALL_KEYS, 1, run.keys, KEYS_BYTES) | change)


def new_run() -> Run:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)})
    run.to_shares()
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


def test_a_client_with_a_mask_key_of_low_order_gets_no_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)})
    box_key = unpack(Kind.CLIENT_KEYS, 1, run.clients[1].advertise(), KEYS_BYTES)[1][:32]
    monkeypatch.setattr(run.clients[1], "_keys", lambda: box_key + bytes(32))
    run.to_shares()
    with pytest.raises(PrivacyError, match="low order"):
        run.masked(0)


def test_a_second_set_of_keys_is_refused() -> None:
    run = new_run()
    client = run.clients[0]
    first = client.share_keys(run.keys)
    assert client.share_keys(run.keys) == first
    with pytest.raises(PrivacyError, match="another answer"):
        client.share_keys(keys_with(run, {4: bytes(range(64))}))


def test_clients_that_were_told_different_keys_do_not_open_each_others_shares() -> None:
    # The server gives client 4 a key of its own where client 0 stands, and keeps the rest.
    run = new_run()
    lie = keys_with(run, {0: bytes(range(64))})
    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    told = unpack(Kind.CLIENT_SHARES, 1, run.clients[4].share_keys(lie), N * SEALED_BYTES)
    with pytest.raises(PrivacyError, match="altered"):
        masked(run.clients[1], run.keys, pack(Kind.ALL_SHARES, 1, rows | told))


# Sealed shares

SHARED = new_run()


@settings(max_examples=40, deadline=None)
@given(sender=st.integers(0, N - 1), bit=st.integers(0, 8 * SEALED_BYTES - 1), late=st.booleans())
def test_a_box_with_one_bit_changed_is_refused(sender: int, bit: int, late: bool) -> None:
    run, recipient = SHARED, 2
    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    row = bytearray(rows[sender])
    row[recipient * SEALED_BYTES + bit // 8] ^= 1 << bit % 8
    shares = pack(Kind.ALL_SHARES, 1, rows | {sender: bytes(row)})
    client = make_client(run.setup, recipient)
    ask = (
        partial(client.unmask, survivors=survivors(*range(N))) if late else partial(masked, client)
    )
    with pytest.raises(PrivacyError, match="altered"):
        ask(keys=run.keys, shares=shares)
    client = make_client(run.setup, recipient + 1)  # boxes for others are not its business
    assert masked(client, run.keys, shares)


@settings(max_examples=25, deadline=None)
@given(
    taken=st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)),
    given_as=st.integers(0, N - 1),
)
def test_a_box_in_another_place_is_refused(taken: tuple[int, int], given_as: int) -> None:
    # From another sender, for another recipient, or the client's own sent back.
    run, recipient = SHARED, 2
    if taken == (given_as, recipient):
        return
    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    sender, place = taken
    box = rows[sender][place * SEALED_BYTES : (place + 1) * SEALED_BYTES]
    row = bytearray(rows[given_as])
    row[recipient * SEALED_BYTES : (recipient + 1) * SEALED_BYTES] = box
    shares = pack(Kind.ALL_SHARES, 1, rows | {given_as: bytes(row)})
    with pytest.raises(PrivacyError, match="altered"):
        masked(make_client(run.setup, recipient), run.keys, shares)


def test_too_few_shares_or_not_the_clients_own_are_refused(run: Run) -> None:
    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    for clients, reason in [((0, 1), "U2 has 2 clients"), ((1, 2, 3), "lacks this client")]:
        shares = pack(Kind.ALL_SHARES, 1, {u: rows[u] for u in clients})
        with pytest.raises(PrivacyError, match=reason):
            masked(run.clients[0], run.keys, shares)


@pytest.mark.parametrize("change", [{"clip": 2.0}, {"bits": 17}, {"threshold": 4}, {"size": 3}])
def test_clients_with_other_parameters_do_not_open_each_others_shares(
    run: Run, change: dict[str, Any]
) -> None:
    stream = Stream.simulation(seed=7, round=1, client=4, purpose="secure sum")
    odd = SecureSumClient(replace(run.setup, **change), 1, 4, stream)
    rows = unpack(Kind.ALL_SHARES, 1, run.shares, N * SEALED_BYTES)
    rows |= unpack(Kind.CLIENT_SHARES, 1, odd.share_keys(run.keys), N * SEALED_BYTES)
    with pytest.raises(PrivacyError, match="altered"):
        masked(run.clients[0], run.keys, pack(Kind.ALL_SHARES, 1, rows))


# Other rounds


def in_round(message: bytes, round: int) -> bytes:
    """Return a message as a forger would rewrite it: for another round."""
    return message[:1] + round.to_bytes(8, "little") + message[9:]


def test_a_message_of_another_round_is_refused(run: Run) -> None:
    later = {u: make_client(run.setup, u, round=2) for u in range(N)}
    with pytest.raises(RunError, match="round 2: not a message ALL_KEYS of this round"):
        later[0].share_keys(run.keys)
    server = SecureSumServer(run.setup, 2)
    with pytest.raises(RunError, match="not a message CLIENT_KEYS"):
        server.collect_keys(run.seen[:N])
    keys = server.collect_keys([client.advertise() for client in later.values()])
    shares = server.collect_shares([client.share_keys(keys) for client in later.values()])
    with pytest.raises(RunError, match="not a message ALL_SHARES"):
        masked(later[0], keys, run.shares)
    with pytest.raises(RunError, match="not a message ALL_SURVIVORS"):
        later[0].unmask(keys, shares, survivors(*range(N)))


def test_a_replay_under_the_number_of_this_round_is_refused_too(run: Run) -> None:
    # The worst case: the clients have the very secrets of the round that is replayed.
    later = {u: make_client(run.setup, u, round=2) for u in range(N)}
    keys = in_round(run.keys, 2)
    later[0].share_keys(keys)
    with pytest.raises(PrivacyError, match="altered"):
        masked(later[0], keys, in_round(run.shares, 2))


def test_other_rounds_have_other_masks(run: Run) -> None:
    later = {u: make_client(run.setup, u, round=2) for u in range(N)}
    server = SecureSumServer(run.setup, 2)
    keys = server.collect_keys([client.advertise() for client in later.values()])
    shares = server.collect_shares([client.share_keys(keys) for client in later.values()])
    for u in range(N):
        second = masked(later[u], keys, shares)
        first = masked(run.clients[u], run.keys, run.shares)
        differ = np.frombuffer(first[13:], np.uint8) != np.frombuffer(second[13:], np.uint8)
        assert differ.sum() > 4  # of 8 bytes


# The server


def test_the_server_refuses_who_answers_twice_or_was_not_asked(run: Run) -> None:
    own, other = run.masked(0), run.masked(1)
    stranger = pack(Kind.CLIENT_SUM, 1, {9: bytes(4 * D)})
    for messages in ([own, other, own], [own, other, stranger]):
        with pytest.raises(RunError, match="answered twice, or was not asked"):
            run.server.collect_masked(messages)


@pytest.mark.parametrize("cut", [0, 5, 13, -1])
def test_the_server_refuses_what_is_cut_short(run: Run, cut: int) -> None:
    with pytest.raises(RunError, match="round 1"):
        run.server.collect_masked([run.masked(0)[:cut]])


def test_the_server_refuses_a_message_for_several_clients(run: Run) -> None:
    both = pack(Kind.CLIENT_SUM, 1, {0: bytes(4 * D), 1: bytes(4 * D)})
    with pytest.raises(RunError, match="2 records"):
        run.server.collect_masked([both])


def test_the_server_refuses_more_clients_than_it_can_add() -> None:
    setup = make_setup(4, 3)
    with pytest.raises(RunError, match="choose fewer"):
        SecureSumServer(setup, 1).collect_keys(
            [make_client(setup, u).advertise() for u in range(5)]
        )


def test_the_server_notices_wrong_shares_of_a_mask_key() -> None:
    run = Run(make_setup(N, T, D), {u: np.array([u, -u]) for u in range(N)}, {3: 2})
    run.to_survivors()
    revealed = [run.clients[u].unmask(run.keys, run.shares, run.survivors) for u in (0, 1, 2, 4)]
    wrong = bytearray(revealed[0])
    wrong[13 + 16 * 3] ^= 1
    with pytest.raises(RunError, match="shares of client 3 are wrong"):
        run.server.unmask([bytes(wrong), *revealed[1:]])
    assert run.server.unmask(revealed).tolist() == [7, -7]


def test_messages_name_a_client_once_and_in_order() -> None:
    message = survivors(1, 2)
    header = message[:9]
    for body in (message[13:] + message[9:13], message[9:13] * 2, message[9:] + b"\0"):
        with pytest.raises(RunError, match="malformed"):
            unpack(Kind.ALL_SURVIVORS, 1, header + body, 0)
