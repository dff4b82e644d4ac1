"""Compact releases against the tables that they represent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import quick
from hypothesis import given
from hypothesis import strategies as st
from ledger_helpers import ONE, One, asked
from tables import DOWNLINK, Table, released, stated, table_of

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    InClear,
    NoRelease,
    PerRecord,
    PureReport,
)
from fedldp.accounting.releases import Cohort, ReleaseHistory, blocks_of, rounds_of
from fedldp.accounting.statement import SCHEMA_VERSION, ShufflerInPath, SumInPath
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.facts import Method
from fedldp.core.kinds import ONE_COORDINATE, SHUFFLED_MESSAGES
from fedldp.ledgers.columns import MemoryLedger
from fedldp.simulation.engine import simulate
from fedldp.simulation.result import read_run

TWO = PureReport(epsilon=2.0)
KEYS = NoRelease(what="public keys")
CLEAR = InClear(what="weights")
CHEAP = PerRecord(record=ONE, client=CLEAR)
CHEAPER = PerRecord(record=ONE, client=TWO)
FREE = PerRecord(record=KEYS, client=CLEAR)
EVENTS = [ONE, TWO, CLEAR, CHEAP, CHEAPER, FREE]

tables: st.SearchStrategy[Table] = st.dictionaries(
    st.integers(0, 12),
    st.dictionaries(st.integers(DOWNLINK, 6), st.sampled_from(EVENTS), min_size=1, max_size=8),
    max_size=6,
)


def histories_of(table: Table) -> set[frozenset[tuple[Event, int]]]:
    """Return the distinct histories, counted one client and round at a time."""
    by_client: dict[int, Counter[Event]] = {}
    for by_round in table.values():
        for client, event in by_round.items():
            by_client.setdefault(client, Counter())[event] += 1
    kept: set[frozenset[tuple[Event, int]]] = set()
    for history in by_client.values():
        if len(history) == 1:
            ((event, times),) = history.items()
            others = (h[event] for h in by_client.values() if set(h) == {event})
            if times < max(others):
                continue
        kept.add(frozenset(history.items()))
    return kept


def same(found: Iterable[Counter[Event]], expected: set[frozenset[tuple[Event, int]]]) -> None:
    assert sorted(map(sorted_items, found)) == sorted(sorted_items(dict(h)) for h in expected)


def sorted_items(history: Any) -> list[tuple[str, int]]:
    return sorted((repr(event), times) for event, times in history.items())


def seen(table: Table, neighbours: str) -> Table:
    """Return what clients release in a table, for one kind of neighbours."""
    found: dict[int, dict[int, Event]] = {}
    for round, by_client in table.items():
        for client, event in by_client.items():
            one = getattr(event, neighbours) if isinstance(event, PerRecord) else event
            if client != DOWNLINK and not isinstance(one, NoRelease):
                found.setdefault(round, {})[client] = one
    return found


@pytest.mark.slow
@given(table=tables, other=tables, round=st.integers(0, 13))
def test_every_query_of_a_statement_agrees_with_the_table(
    table: Table, other: Table, round: int
) -> None:
    releases = released(table)
    assert table_of(releases) == {r: dict(sorted(table[r].items())) for r in sorted(table)}
    for neighbours in ("client", "record"):
        mine = releases.of_side(neighbours)  # type: ignore[arg-type]
        expected = seen(table, neighbours)
        assert table_of(mine) == {r: dict(sorted(expected[r].items())) for r in sorted(expected)}
        same(mine.histories(), histories_of(expected))
        sizes: dict[Event, Counter[int]] = {}
        for round_of, by_client in expected.items():
            for event, size in Counter(by_client.values()).items():
                sizes.setdefault(event, Counter())[round_of] = size
        assert mine.crowds() == sizes
        assert set(mine.events) == set(sizes)
    broadcasts = Counter(one[DOWNLINK] for one in table.values() if DOWNLINK in one)
    assert sum(releases.of_server().histories(), Counter()) == broadcasts
    assert releases.before(round) == released({r: one for r, one in table.items() if r < round})
    assert (releases == released(other)) == (table == other)
    assert releases == released(table)


groups = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, n - 1), min_size=1, max_size=9),  # the group of each client
        st.dictionaries(st.integers(1, 9), st.none() | st.sets(st.integers(0, 8)), max_size=6),
    )
)


@given(groups, st.booleans())
def test_a_plan_and_the_ledgers_after_it_agree(drawn: Any, noisy: bool) -> None:
    group_of, chosen = drawn
    clients = range(len(group_of))
    events = [PureReport(epsilon=float(group)) for group in group_of]
    rounds = {r: None if c is None else sorted(c & set(clients)) for r, c in chosen.items()}
    downlink = TWO if noisy else None
    members = {
        event: [client for client in clients if events[client] == event] for event in set(events)
    }
    planned = ReleaseHistory.planned(members, rounds, downlink)
    ledger = MemoryLedger()
    table: dict[int, dict[int, Event]] = {}
    for round in sorted(rounds):
        there = rounds[round]
        table[round] = {client: events[client] for client in (clients if there is None else there)}
        for client in table[round]:
            One(ledger, client).release("run", round, 0, asked("?"), KEYS, bytes)
            One(ledger, client).release("run", round, 1, asked("?"), events[client], bytes)
        if downlink is not None:
            ledger.count_downlink("run", round, downlink)
            table[round][DOWNLINK] = downlink
    assert planned == ledger.releases("run") == released(table)
    assert sorted(map(sorted_items, planned.histories())) == sorted(
        map(sorted_items, ledger.releases("run").histories())
    )
    assert planned.crowds() == ledger.releases("run").crowds()


def words_of(rounds: list[int]) -> dict[int, Any]:
    """Return rounds, given as the bits of integers, in columns."""
    last = max(bits.bit_length() for bits in rounds)
    return {
        word: np.array([bits >> 32 * word & 2**32 - 1 for bits in rounds], np.uint32)
        for word in range(last // 32 + 1)
    }


@given(st.lists(st.sampled_from([1, 3, 2**31, 2**32, 2**70 + 5, 2**64 - 1]), min_size=1))
def test_clients_with_the_same_history_are_one_block(rounds: list[int]) -> None:
    clients = np.arange(len(rounds)) * 3
    blocks = blocks_of(clients, words_of(rounds))
    assert sorted(bits for _, bits in blocks) == sorted(set(rounds))
    for members, bits in blocks:
        assert [c for c, r in zip(clients, rounds, strict=True) if r == bits] == members.tolist()


def test_clients_with_mostly_different_histories_are_grouped_by_round() -> None:
    generator = np.random.default_rng(5)
    there = generator.random((3000, 20)) < 0.4
    there[:, 0] = True
    rounds = [sum(1 << int(r) for r in np.flatnonzero(row)) for row in there]
    clients = np.sort(generator.permutation(5000)[:3000])
    blocks = blocks_of(clients, words_of(rounds))
    assert len(blocks) <= 24
    found = {(c, r) for each, bits in blocks for r in rounds_of(bits) for c in each.tolist()}
    pairs = {(c, r) for c, bits in zip(clients, rounds, strict=True) for r in rounds_of(bits)}
    assert found == pairs
    assert sum(each.size for each, _ in blocks) == len(pairs)
    each = [Cohort(np.array([c], np.int32), bits) for c, bits in zip(clients, rounds, strict=True)]
    assert ReleaseHistory({ONE: blocks}) == ReleaseHistory({ONE: each})
    assert ReleaseHistory({ONE: blocks}) != ReleaseHistory({ONE: each[1:]})
    (most,) = ReleaseHistory({ONE: blocks}).histories()
    assert most == {ONE: there.sum(1).max()}


def test_a_client_in_no_group_cannot_take_part() -> None:
    for chosen in ([5], [-1], [2, 9], [1, 1]):
        with pytest.raises((AssertionError, IndexError)):
            ReleaseHistory.planned({ONE: range(3)}, {1: chosen})
    with pytest.raises(ConfigError, match="two priced events"):
        ReleaseHistory.planned({ONE: range(3), TWO: [2]}, {1: None})


def test_messages_without_data_are_no_releases() -> None:
    releases = released({1: {0: KEYS, 1: ONE}, 2: {0: KEYS}})
    assert releases == released({1: {1: ONE}})
    alone = released({1: {0: KEYS}})
    assert alone == released({}) == ReleaseHistory({})
    for delta in (0.0, 1e-5):
        for shuffler in (None, ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)):
            found = stated(alone, delta, shuffler=shuffler)
            lines = [(x.unit, x.kind, x.epsilon, x.delta) for x in found]
            assert lines == [("client-round", "pure", 0.0, 0.0), ("client-run", "pure", 0.0, 0.0)]
    # Even if a client's input is sent in clear, it need not depend on a single record.
    kinds = {line.unit: line.kind for line in stated({1: {0: FREE}})}
    assert kinds == {"record": "pure", "client-round": "none", "client-run": "none"}


# Lines say on whose word they rely


@pytest.mark.parametrize(
    ("own", "event", "by"),
    [
        ((), ONE, "fedldp"),
        (("mine:Noise",), ONE, "mine:Noise"),
        (("mine:System", "mine:Noise"), ONE, "mine:System, mine:Noise"),
        (("mine:Noise",), CLEAR, "fedldp"),  # an absent guarantee relies on nobody's word
    ],
)
def test_a_line_says_on_whose_word_it_relies(own: tuple[str, ...], event: Event, by: str) -> None:
    found = stated({1: dict.fromkeys(range(3), event)}, own_code=own)
    assert {line.stated_by for line in found} == {by}


def nested(method: Method | None) -> Iterator[Method]:
    while method is not None:
        yield method
        method = method.values.get("of")


def test_no_lower_bound_is_shown_for_a_users_own_code() -> None:
    bits = BinaryRandomizedResponse(epsilon=1.0, coordinates=8)
    shuffler = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    path = {"shuffler": shuffler, "summed": SumInPath(untrusted_clients=1)}
    table = {1: dict.fromkeys(range(100), bits)}
    ours, theirs = (stated(table, **path, own_code=own) for own in ((), ("mine:Bits",)))
    methods = [each for line in ours for each in nested(line.method)]
    assert ONE_COORDINATE(tight="exact") in methods
    assert any(each.values["lower"] for each in SHUFFLED_MESSAGES.among(methods))
    adversaries = {line.adversary for line in ours if line.lower is not None}
    assert adversaries == {"server", "shuffled-server", "summing-server"}
    assert all(line.lower is None for line in theirs)
    for line, same in zip(theirs, ours, strict=True):
        assert line.epsilon == same.epsilon
        methods = list(nested(line.method))
        assert ONE_COORDINATE(tight="exact") not in methods
        assert all(each.values["lower"] is None for each in SHUFFLED_MESSAGES.among(methods))


def test_a_statement_of_another_schema_version_is_refused(tmp_path: Path) -> None:
    simulate(quick(rounds=1), recipe="quickstart", out=tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    found = json.loads(path.read_text())
    found["privacy"]["schema_version"] = SCHEMA_VERSION + 1
    path.write_text(json.dumps(found))
    with pytest.raises(RunError, match="schema_version"):
        read_run(tmp_path / "run")
