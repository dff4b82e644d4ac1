"""Committees: several secure sums in one round, whose totals the server adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from secure_sums import make_roster, private_of

import fedldp
from fedldp.accounting.events import Event, InClear
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import SumInPath, _in_sum
from fedldp.core.errors import PrivacyError
from fedldp.core.kinds import AT_MOST_UNTRUSTED, HONEST_SUMMANDS, SMALLEST_COMMITTEE
from fedldp.core.randomness import Stream
from fedldp.mechanisms.summing import counts_of_bits
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import ClientRole, Encoder, Sender, Senders, ServerRole, State, Update
from fedldp.protocol.server_loop import Delivery, Loop, Round
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Counted, Report, Reports, RoundRequest, Sensitive
from fedldp.secure_sum.client import KEYS, Phase, summed_client
from fedldp.secure_sum.identities import Identity
from fedldp.secure_sum.messages import Committees, SecureSum
from fedldp.secure_sum.server import SecureSumServer, SumOfRound, summed_server
from fedldp.simulation.plan import plan, problem_of

SUM = {"channel": "sum", "rounds": 2}


def lines_of(recipe: str, **settings: Any) -> dict[tuple[str, str], Guarantee]:
    config = fedldp.recipe(recipe, **settings)
    privacy = plan(config, problem_of(config, None)).privacy
    assert (SMALLEST_COMMITTEE in privacy.warnings) == (config.committee is not None)
    return {
        (line.unit, line.kind): line
        for line in privacy.guarantees
        if line.adversary == "summing-server"
    }


def test_every_client_is_in_one_committee_and_none_is_too_small() -> None:
    for clients in range(2, 60):
        for least in range(2, clients + 1):
            dealt = Committees.of_size(clients, least)
            members = [dealt.members(each) for each in range(dealt.number)]
            assert sorted(c for each in members for c in each) == list(range(clients))
            assert all(dealt.of(c) == each for each, part in enumerate(members) for c in part)
            sizes = {len(each) for each in members}
            assert {dealt.fewest, dealt.most} == sizes
            assert least <= dealt.fewest <= dealt.most <= dealt.fewest + 1
            assert dealt.most < 2 * least or dealt.number == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("untrusted", "committee", "fewest"), [(0, 20, 20), (3, 20, 20), (1, 8, 8)]
)
def test_the_lines_for_bits_are_those_of_a_run_of_the_smallest_committee(
    untrusted: int, committee: int, fewest: int
) -> None:
    """Other sums hide nothing, so each figure is that of one committee alone."""
    settings = {**SUM, "untrusted_clients": untrusted}
    found = lines_of(
        "quickstart", num_clients=41 if committee > 8 else 65, committee=committee, **settings
    )
    alone = lines_of("quickstart", num_clients=fewest, **settings)
    whole = lines_of("quickstart", num_clients=41, **settings)
    assert found.keys() == alone.keys() == whole.keys()
    for unit, line in found.items():
        assert line.epsilon == alone[unit].epsilon > whole[unit].epsilon
        assert line.lower is None  # it would need all summands of every sum
        assert line.assumptions >= {
            HONEST_SUMMANDS(clients=fewest - untrusted, among="committee"),
            AT_MOST_UNTRUSTED(clients=untrusted, among="committee"),
        }


def test_clients_that_refuse_may_all_be_in_the_smallest_committee() -> None:
    """If ledgers let fewer clients answer, all missing ones are assumed to be in the smallest
    committee."""
    path = SumInPath(untrusted_clients=0, committees=True, in_other_sums=30)
    assert [_in_sum(path, 1, released) for released in (40, 35, 31, 20)] == [10, 5, 1, 1]


SIZE, RUN = 40, "a run"
DEALT = Committees.of_size(11, 3)  # sizes 4, 4 and 3
SUMMING = counts_of_bits(SIZE, DEALT.most)


def bits_of(client: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(client).integers(0, 2, SIZE, np.uint8)


@dataclass(frozen=True)
class KnownBits:
    """An encoder of bits that a test knows."""

    def event(self, phase: int = 0, round: int = 1) -> Event:
        return InClear(what="known bits")

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        return each_alone(self._report, update, broadcast, senders)

    def _report(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        payload = np.packbits(bits_of(sender.index)).tobytes()
        return Report(round=broadcast.round, size=SIZE, payload=payload, chunk=SIZE)


def encoder_of(client: int) -> Encoder:
    setup = SecureSum.of(SUMMING, DEALT.most, 3, 1)
    roster = make_roster(range(DEALT.clients), RUN).of(DEALT.members(DEALT.of(client)))
    identity = Identity(roster=roster, index=client, private=private_of(client))
    plain = ClientRole(local_update=None, encoder=KnownBits())  # type: ignore[arg-type]
    return summed_client(plain, SUMMING, setup, identity).encoder


@dataclass
class Clients:
    """A transport to clients in this process; ``gone`` says which ones no longer answer."""

    gone: Callable[[int, int], bool] = lambda client, phase: False
    stores: dict[int, MemoryStore] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)
    told: dict[tuple[int, int], Broadcast] = field(default_factory=dict)

    def answer(self, client: int, phase: int, told: Broadcast) -> Report:
        sender = Sender(
            index=client,
            num_examples=Sensitive(1),
            fresh=lambda purpose: Stream.fresh(),
            kept=lambda purpose: Stream.fresh(),
            store=self.stores.setdefault(client, MemoryStore()),
            phase=phase,
        )
        return alone(encoder_of(client), Sensitive(None), told, sender)

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        for client in reversed(clients):  # the order does not matter
            self.asked.append((client, request.phase))
            if not self.gone(client, request.phase):
                told = request.to(client).broadcast
                self.told[client, request.phase] = told
                yield client, self.answer(client, request.phase, told)


def held(clients: Clients) -> tuple[list[Counted], list[SumOfRound], Round]:
    """Run one round; return its totals, the outcomes that were reported, and its record."""
    totals: list[Counted] = []
    heard: list[SumOfRound] = []
    records: list[Round] = []

    def kept(state: State, reports: Any, draw: Any) -> Any:
        totals.extend(reports)
        return state.next(state.weights), {}

    server = summed_server(
        ServerRole(initial=partial(State, np.zeros(SIZE, np.float32)), aggregate=kept),  # type: ignore[arg-type]
        SUMMING,
        SecureSum.of(SUMMING, DEALT.most, 3, 1),
        committees=DEALT,
        roster=make_roster(range(DEALT.clients), RUN),
        heard=heard.append,
    )
    loop = Loop(
        run=RUN, server=server, rounds=1, participants=lambda round: range(DEALT.clients),
        transport=clients, draws=draws_of_seed(0), evaluate=lambda broadcast: None,
    )  # fmt: skip
    first = State(weights=np.zeros(SIZE, np.float32))
    loop.go(first, lambda state, record: records.append(record))
    return totals, heard, records[0]


def test_the_sums_of_committees_are_those_of_their_members_and_add_up_to_one_sum() -> None:
    totals, heard, record = held(Clients())
    expected = [sum(bits_of(c).astype(int) for c in DEALT.members(k)) for k in range(3)]
    assert [total.ones.tolist() for total in totals] == [each.tolist() for each in expected]
    assert [total.reports for total in totals] == [4, 4, 3]
    assert (
        sum(t.ones for t in totals).tolist()
        == sum(bits_of(c).astype(int) for c in range(11)).tolist()
    )  # type: ignore[union-attr]
    assert record.metrics["clients_in_sum"] == 11
    assert [(s.fewest, s.clients, s.complete) for s in heard] == [
        (3, tuple(range(11)), False), (3, tuple(range(11)), True),
    ]  # fmt: skip


@pytest.mark.parametrize("phase", Phase)
def test_a_committee_that_lacks_its_quorum_is_left_out_and_the_others_count(phase: int) -> None:
    """Clients 2 and 5 of the third committee (of 3) leave; the first committee loses 1 of 4."""
    clients = Clients(gone=lambda client, now: client in (0, 2, 5) and now >= phase)
    totals, heard, record = held(clients)
    first = DEALT.members(0) if phase == Phase.UNMASK else [3, 6, 9]
    expected = [sum(bits_of(c).astype(int) for c in each) for each in (first, DEALT.members(1))]
    assert [total.ones.tolist() for total in totals] == [each.tolist() for each in expected]
    assert record.metrics["clients_in_sum"] == len(first) + 4
    # If the third committee reached the last phase, its masks might have been removed.
    assert heard[-1].fewest == 3
    assert set(heard[-1].clients) == {*first, *DEALT.members(1)} | (
        set(DEALT.members(2)) if phase == Phase.UNMASK else set()
    )
    # No client of a finished sum is asked again.
    assert not [c for c, now in clients.asked if DEALT.of(c) == 2 and now > phase]


def test_a_client_accepts_no_keys_of_another_committee() -> None:
    """So clients of other committees that collude with a server do not help it in this
    committee."""
    clients = Clients()
    held(clients)
    own, other = (clients.told[c, Phase.SHARE_KEYS] for c in (0, 1))
    again = Clients()
    for client in (0, 1, 3, 4):
        again.answer(client, Phase.ADVERTISE, clients.told[client, Phase.ADVERTISE])
    assert own.public[KEYS].tobytes() != other.public[KEYS].tobytes()
    with pytest.raises(PrivacyError, match="lacks this client"):
        again.answer(1, Phase.SHARE_KEYS, own)
    # A list of this client and strangers, all with their own signatures
    setup, roster = SecureSum.of(SUMMING, DEALT.most, 3, 1), make_roster(range(11), RUN)
    server = SecureSumServer(
        setup, 1, roster, clients.told[0, Phase.ADVERTISE].public["sum_told"].tobytes()
    )
    mixed = Clients()
    sent = [
        (c, mixed.answer(c, Phase.ADVERTISE, clients.told[c, Phase.ADVERTISE]).payload)
        for c in (0, 1, 3, 6)
    ]
    told = Broadcast(
        round=1, weights=np.empty(0, np.float32),
        public={KEYS: np.frombuffer(server.collect_keys(sent), np.uint8)},
    )  # fmt: skip
    with pytest.raises(PrivacyError, match="the roster does not certify the keys of client 1"):
        mixed.answer(0, Phase.SHARE_KEYS, told)
