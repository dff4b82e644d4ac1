"""Who released what in which round: the input from which a statement is computed.

Before a run, this follows from the configuration, whose seed decides who takes part. After the run,
it follows from the ledgers. The two must agree. If the server adds the noise, its own releases are
kept separately. Messages that are computed without any data are not releases, and are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.accountants import Side, on_side, releases_nothing
from fedldp.accounting.events import Event
from fedldp.core.errors import ConfigError

Indices = NDArray[np.int32]
ClientIndices = Sequence[int] | NDArray[np.integer]  # many clients may be given as a range

WORD = 32

RoundWords = dict[int, NDArray[np.uint32]]
"""The rounds of several clients, with one array element per client: bit b of word w stands for
round 32 w + b."""

_DENSE = 8
"""Clients are counted in a table of all indices if the table has at most this many entries per
client."""


_FEW_GROUPS = 1000
"""The largest number of groups with equal rounds; beyond it, clients are grouped round by round."""


class Cohort(NamedTuple):
    """Clients that each released the same event in each of the same rounds.

    Attributes:
        clients: their indices, ascending.
        rounds: the rounds, as the bits of an integer.
    """

    clients: Indices
    rounds: int


class ReleaseHistory:
    """What every client releases in a run: event -> clients -> rounds.

    Args:
        blocks: the cohorts of each event. No client may appear twice in a round, not even with two
            different events.
        server: the rounds in which broadcasts release an event, as the bits of an integer.
    """

    def __init__(
        self, blocks: Mapping[Event, Iterable[Cohort]], server: Mapping[Event, int] | None = None
    ) -> None:
        kept = {
            event: tuple(block for block in each if block.rounds and block.clients.size)
            for event, each in blocks.items()
            if not releases_nothing(event)
        }
        self._blocks = {event: each for event, each in kept.items() if each}
        self._server = {event: rounds for event, rounds in (server or {}).items() if rounds}

    @classmethod
    def planned(
        cls,
        groups: Mapping[Event, ClientIndices],
        participants: Mapping[int, ClientIndices | None],
        downlink: Event | None = None,
    ) -> ReleaseHistory:
        """Return what a run will release.

        Args:
            groups: for each event, the clients that release it whenever they take part; every
                client is in exactly one group.
            participants: who takes part in each round; None for all clients.
            downlink: what each round's broadcast releases, if anything.

        >>> event = PureReport(epsilon=1.0)
        >>> ReleaseHistory.planned({event: range(10)}, {1: None, 2: [3, 4]}).histories()
        [Counter({PureReport(epsilon=1.0, idealised=False): 2})]
        """
        members = {event: _indices(clients) for event, clients in groups.items()}
        full = _bits(round for round, chosen in participants.items() if chosen is None)
        blocks = {event: [Cohort(clients, full)] for event, clients in members.items()}
        events = list(members)
        size = 1 + max((int(each[-1]) for each in members.values() if each.size), default=-1)
        # Use the smallest type possible, because numpy sorts 16-bit values in one pass.
        group_of = np.full(size, len(events), np.min_scalar_type(len(events)))
        for group, clients in enumerate(members.values()):
            group_of[clients] = group
        if sum(each.size for each in members.values()) != np.sum(group_of < len(events)):
            raise ConfigError(
                "a client releases two priced events in the same round; count them as one event"
            )
        for round, chosen in participants.items():
            if chosen is None or len(chosen) == 0:
                continue
            clients = _indices(chosen)
            assert clients[0] >= 0
            assert np.all(np.diff(clients) > 0)  # every client appears once
            groups_there = group_of[clients]
            order = np.argsort(groups_there, kind="stable")
            found, starts = np.unique(groups_there[order], return_index=True)
            for group, part in zip(found, np.split(clients[order], starts[1:]), strict=True):
                blocks[events[group]].append(Cohort(part, 1 << round))
        return cls(blocks, {} if downlink is None else {downlink: _bits(participants)})

    @classmethod
    def joined(cls, parts: Sequence[ReleaseHistory]) -> ReleaseHistory:
        """Return what is released in several parts of a run, which have no round in common."""
        blocks: dict[Event, list[Cohort]] = {}
        server: Counter[Event] = Counter()
        for part in parts:
            for event, each in part._blocks.items():
                blocks.setdefault(event, []).extend(each)
            for event, bits in part._server.items():
                server[event] |= bits
        return cls(blocks, server)

    @property
    def events(self) -> list[Event]:
        """The events that clients release."""
        return list(self._blocks)

    def of_side(self, side: Side) -> ReleaseHistory:
        """Return what clients release if neighbours differ in ``side``."""
        seen: dict[Event, list[Cohort]] = {}
        for event, blocks in self._blocks.items():
            seen.setdefault(on_side(event, side), []).extend(blocks)
        return ReleaseHistory(seen)

    def of_server(self) -> ReleaseHistory:
        """Return what the server's broadcasts release, as if one client released it."""
        nobody = np.zeros(1, np.int32)
        return ReleaseHistory(
            {event: [Cohort(nobody, bits)] for event, bits in self._server.items()}
        )

    def before(self, round: int) -> ReleaseHistory:
        """Return what is released in the rounds before ``round``."""
        earlier = (1 << round) - 1
        blocks = {
            event: [Cohort(clients, rounds & earlier) for clients, rounds in each]
            for event, each in self._blocks.items()
        }
        return ReleaseHistory(
            blocks, {event: bits & earlier for event, bits in self._server.items()}
        )

    def histories(self) -> list[Counter[Event]]:
        """Return the distinct histories of clients: how often each event was released.

        Of the clients that release a certain event and no other, only the client with the most
        releases is listed, because it bears the greatest cost.
        """
        events = self.events
        counted = [_counts(blocks) for blocks in self._blocks.values()]
        if len(events) == 1:  # a shortcut, because there may be a million clients
            return [Counter({events[0]: int(counted[0][1].max())})]
        clients = _joined([clients for clients, _ in counted])
        numbers = np.repeat(np.arange(len(events)), [each.size for each, _ in counted])
        times = _joined([times for _, times in counted])
        order = np.argsort(clients, kind="stable")
        _, starts, kinds = np.unique(clients[order], return_index=True, return_counts=True)
        found: list[Counter[Event]] = []
        for kind in np.unique(kinds):
            at = order[starts[kinds == kind][:, None] + np.arange(kind)]  # shape (clients, events)
            if kind == 1:
                most = np.zeros(len(events), np.int64)
                np.maximum.at(most, numbers[at[:, 0]], times[at[:, 0]])
                found += [Counter({events[i]: int(most[i])}) for i in np.flatnonzero(most)]
                continue
            rows = np.unique(np.concatenate([numbers[at], times[at]], axis=1), axis=0).tolist()
            for row in rows:
                pairs = zip(row[:kind], row[kind:], strict=True)
                found.append(Counter({events[i]: count for i, count in pairs}))
        return found

    def crowds(self) -> dict[Event, Counter[int]]:
        """Return, for each event, the number of participants in each round that released it."""
        found: dict[Event, Counter[int]] = {}
        for event, blocks in self._blocks.items():
            sizes: Counter[int] = Counter()
            for clients, rounds in blocks:
                for round in rounds_of(rounds):
                    sizes[round] += clients.size
            found[event] = sizes
        return found

    def costs_as(self, other: ReleaseHistory) -> bool:
        """Return whether clients have the same histories here, in crowds that are as small."""
        return self._costs() == other._costs()

    def _costs(self) -> tuple[set[frozenset[tuple[Event, int]]], dict[Event, int]]:
        histories = {frozenset(history.items()) for history in self.histories()}
        return histories, {event: min(sizes.values()) for event, sizes in self.crowds().items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReleaseHistory):
            return NotImplemented
        return (
            self._server == other._server
            and self._blocks.keys() == other._blocks.keys()
            and all(_equal(each, other._blocks[event]) for event, each in self._blocks.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        clients, server = len(self._blocks), len(self._server)
        return f"ReleaseHistory of {clients} events of clients, {server} of a server"


def most_of(histories: Iterable[Counter[Event]]) -> Counter[Event]:
    """Return a history with every event as often as in that of ``histories`` with most of it."""
    most: Counter[Event] = Counter()
    for history in histories:
        for event, times in history.items():
            most[event] = max(most[event], times)
    return most


def rounds_of(bits: int) -> Iterator[int]:
    """Yield the rounds that are set as bits of an integer, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def blocks_of(clients: NDArray[np.integer], words: RoundWords) -> list[Cohort]:
    """Return the cohorts of one event.

    If hardly any two clients took part in the same rounds, clients are grouped round by round.

    Args:
        clients: their indices, ascending.
        words: the rounds of each client.
    """
    indices = clients.astype(np.int32)
    first, group = groups_of_equal(list(words.values()), indices.size)
    if first.size > _FEW_GROUPS:
        return [
            Cohort(indices[there], 1 << word * WORD + bit)
            for word, bits in words.items()
            for bit in range(WORD)
            if (there := bits & np.uint32(1 << bit) != 0).any()
        ]
    order = np.argsort(group, kind="stable")
    members = np.split(indices[order], np.cumsum(np.bincount(group))[:-1])
    return [
        Cohort(each, sum(int(bits[row]) << word * WORD for word, bits in words.items()))
        for row, each in zip(first.tolist(), members, strict=True)
    ]


def groups_of_equal(
    columns: Sequence[NDArray[Any]], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group rows that are equal in each of some columns.

    Args:
        columns: the columns.
        size: the number of rows.

    Returns:
        The first row of each group, ascending, and the group of each row.
    """
    group = np.zeros(size, np.int64)
    for column in columns:
        if size and (column != column[0]).any():
            found, place = np.unique(column, return_inverse=True)
            _, group = np.unique(group * found.size + place, return_inverse=True)
    if size and not group.any():
        return np.zeros(1, np.int64), group
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[group]


def _indices(clients: ClientIndices) -> Indices:
    if isinstance(clients, range):
        return np.arange(clients.start, clients.stop, clients.step, dtype=np.int32)
    found = np.asarray(clients, dtype=np.int32)
    return found if np.all(found[1:] >= found[:-1]) else np.sort(found)


def _bits(rounds: Iterable[int]) -> int:
    bits = 0
    for round in rounds:
        bits |= 1 << round
    return bits


def _joined(parts: Sequence[NDArray[np.integer]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def _counts(blocks: Sequence[Cohort]) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the clients of some blocks, ascending, and how often each client appears."""
    if len(blocks) == 1:
        ((clients, rounds),) = blocks
        return clients, np.broadcast_to(np.int64(rounds.bit_count()), clients.shape)
    low = min(int(block.clients[0]) for block in blocks)
    span = 1 + max(int(block.clients[-1]) for block in blocks) - low
    if span <= _DENSE * sum(block.clients.size for block in blocks):
        table = np.zeros(span, np.int32)
        for clients, rounds in blocks:
            table[clients - low] += rounds.bit_count()
        found = np.flatnonzero(table)
        return found + low, table[found]
    every = _joined([block.clients for block in blocks])
    times = np.repeat([b.rounds.bit_count() for b in blocks], [b.clients.size for b in blocks])
    found, place = np.unique(every, return_inverse=True)
    return found, np.bincount(place, times).astype(np.int64)


def _equal(some: Sequence[Cohort], others: Sequence[Cohort]) -> bool:
    """Return whether the same clients appear in the same rounds, however they are grouped."""
    places, other_places = _places(some), _places(others)
    if places.keys() != other_places.keys():
        return False
    for pair in {(tuple(there), tuple(other_places[round])) for round, there in places.items()}:
        one, other = (
            np.sort(_joined([blocks[place].clients for place in each]))
            for blocks, each in zip((some, others), pair, strict=True)
        )
        if not np.array_equal(one, other):
            return False
    return True


def _places(blocks: Sequence[Cohort]) -> dict[int, list[int]]:
    """Return, for each round, the places of the blocks that have it."""
    found: dict[int, list[int]] = {}
    for place, block in enumerate(blocks):
        for round in rounds_of(block.rounds):
            found.setdefault(round, []).append(place)
    return found
