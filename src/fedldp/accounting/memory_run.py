"""What a simulation's clients released in one run, compactly, and as a JSON-ready record.

Clients that did the same share one object; and in a record those with the same latest round stand
together, their indices as ranges or bits. So a million clients are a few lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedldp.accounting.check import check_count
from fedldp.accounting.events import Event
from fedldp.accounting.ledger import QUESTION_BYTES, AskedOtherwise
from fedldp.errors import ConfigError


class State(NamedTuple):
    """What a client released in one run.

    Attributes:
        round: the latest.
        answered: in that round: exchange, question and event, by exchange.
        kinds: what it released in all rounds: event and exchange.
        rounds: of each kind, as the bits of an integer.
    """

    round: int
    answered: tuple[tuple[int, bytes, Event], ...]
    kinds: tuple[tuple[Event, int], ...]
    rounds: tuple[int, ...]

    def history(self) -> list[tuple[Event, int]]:
        """Return the events, and how often each was released."""
        each = zip(self.kinds, self.rounds, strict=True)
        return [(event, rounds.bit_count()) for (event, _), rounds in each]

    def after(self, round: int, exchange: int, question: bytes, event: Event) -> State:
        """Return the state after one more answer, in the latest round or a later one."""
        answered: tuple[tuple[int, bytes, Event], ...] = ((exchange, question, event),)
        if self.round == round:
            answered = tuple(sorted(self.answered + answered, key=lambda each: each[0]))
        taken = dict(zip(self.kinds, self.rounds, strict=True))
        taken[event, exchange] = taken.get((event, exchange), 0) | 1 << round
        return State(round, answered, tuple(taken), tuple(taken.values()))

    def merged(self, other: State) -> State:
        """Return a state that has counted all that this one and ``other``, of one client, have.

        Raises:
            AskedOtherwise: they released different things in one round.
        """
        if self is other or self == other:
            return self
        taken = dict(zip(self.kinds, self.rounds, strict=True))
        for (event, exchange), rounds in zip(other.kinds, other.rounds, strict=True):
            for (mine, there), done in taken.items():
                if there == exchange and mine != event and done & rounds:
                    raise AskedOtherwise(f"a round was released as {mine}, and as {event}")
            taken[event, exchange] = taken.get((event, exchange), 0) | rounds
        latest = max(self, other, key=lambda state: state.round)
        answered = {each[0]: each for each in latest.answered}
        if self.round == other.round:
            for each in (*self.answered, *other.answered):
                if answered.setdefault(each[0], each) != each:
                    raise AskedOtherwise(f"round {self.round} was released for two questions")
        in_order = tuple(answered[exchange] for exchange in sorted(answered))
        return State(latest.round, in_order, tuple(taken), tuple(taken.values()))


NOTHING = State(-1, (), (), ())
"""The state of a client that has released nothing."""


class Cohort(NamedTuple):
    """Clients that differ in the rounds alone.

    Attributes:
        shape: the state of one of them.
        clients: ascending.
        rounds: of each client, those of each kind.
    """

    shape: State
    clients: list[int]
    rounds: list[tuple[int, ...]]


@dataclass(eq=False)
class Run:
    """What was released in one run.

    Attributes:
        states: by client.
        answers: by exchange and client: the beginning of a digest of what was sent, in the latest
            round alone, as an integer.
        server: the rounds whose broadcasts released an event, as the bits of an integer.
    """

    states: dict[int, State] = field(default_factory=dict)
    answers: dict[int, dict[int, int]] = field(default_factory=dict)
    server: dict[Event, int] = field(default_factory=dict)
    # States of the latest round, by what is in them, and what is in them, by itself.
    _states: dict[tuple[object, ...], State] = field(default_factory=dict)
    _parts: dict[tuple[object, ...], tuple[Any, ...]] = field(default_factory=dict)
    _latest: int = -1

    def put(self, client: int, state: State) -> None:
        """Take ``state`` as that of a client, and forget its answers in a round before."""
        if self.states.get(client, NOTHING).round < state.round:
            for by_client in self.answers.values():
                by_client.pop(client, None)
        if state.round > self._latest:
            self._states.clear()
            self._parts.clear()
            self._latest = state.round
        answered = self._parts.setdefault(state.answered, state.answered)
        kinds = self._parts.setdefault(state.kinds, state.kinds)
        key = (state.round, id(answered), id(kinds), state.rounds)
        self.states[client] = self._states.setdefault(
            key, State(state.round, answered, kinds, state.rounds)
        )

    def cohorts(self) -> list[Cohort]:
        """Return the clients by what they share but for the rounds, ascending in each cohort."""
        found: dict[tuple[int, int, int], Cohort] = {}
        for client in sorted(self.states):
            state = self.states[client]
            key = state.round, id(state.answered), id(state.kinds)
            cohort = found.get(key)
            if cohort is None:
                cohort = found[key] = Cohort(state, [], [])
            cohort.clients.append(client)
            cohort.rounds.append(state.rounds)
        return list(found.values())

    def extract(self, clients: Iterable[int]) -> Run:
        """Return what these clients released."""
        states = {client: self.states[client] for client in clients if client in self.states}
        answers = {
            exchange: {client: each[client] for client in states if client in each}
            for exchange, each in self.answers.items()
        }
        return Run(states, answers)

    def absorb(self, other: Run) -> None:
        """Count all that ``other`` has counted; what both have counted once.

        Raises:
            AskedOtherwise: a client released one thing here and another there. Then this run holds
                at least what it held before.
        """
        merged: dict[tuple[int, int], State] = {}  # by two objects: alike clients share them
        for client, theirs in other.states.items():
            mine = self.states.get(client, theirs)
            pair = id(mine), id(theirs)
            if pair not in merged:
                merged[pair] = mine.merged(theirs)
            self.put(client, merged[pair])
            if theirs.round == merged[pair].round:
                for exchange, answers in other.answers.items():
                    if client in answers:
                        self.answers.setdefault(exchange, {})[client] = answers[client]
        for event, rounds in other.server.items():
            self.server[event] = self.server.get(event, 0) | rounds

    def to_record(self, events: dict[Event, int]) -> dict[str, Any]:
        """Return a JSON-ready record, in which an event is its place among ``events``."""

        def place(event: Event) -> int:
            return events.setdefault(event, len(events))

        groups = [
            {
                "round": shape.round,
                "answered": [[x, asked.hex(), place(e)] for x, asked, e in shape.answered],
                "kinds": [[place(event), exchange] for event, exchange in shape.kinds],
                "clients": pack_indices(clients),
                "rounds": [_pack(column) for column in zip(*rounds, strict=True)],
            }
            for shape, clients, rounds in self.cohorts()
        ]
        return {
            "server": [[place(event), f"{rounds:x}"] for event, rounds in self.server.items()],
            "groups": groups,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], events: Mapping[int, Event]) -> Run:
        """Return the run of a record. What was answered is known, and not what the answers were.

        Raises:
            ConfigError, LookupError, ValueError, TypeError: the record is damaged.
        """
        run = cls(server={events[place]: int(rounds, 16) for place, rounds in record["server"]})
        for group in record["groups"]:
            answered = tuple((x, bytes.fromhex(q), events[e]) for x, q, e in group["answered"])
            if any(len(question) != QUESTION_BYTES for _, question, _ in answered):
                raise ConfigError("a question's digest is cut")
            kinds = tuple((events[event], exchange) for event, exchange in group["kinds"])
            for exchange in (*(x for x, _, _ in answered), *(x for _, x in kinds)):
                check_count("exchange", exchange)
            clients = unpack_indices(group["clients"])
            check_count("client", clients[0])
            columns = [_unpack(column, len(clients)) for column in group["rounds"]]
            shared: dict[tuple[int, ...], State] = {}
            for client, rounds in zip(clients, zip(*columns, strict=True), strict=True):
                state = shared.get(rounds)
                if state is None:
                    if max(bits.bit_length() for bits in rounds) != group["round"] + 1:
                        raise ConfigError("a latest round is damaged")
                    state = shared[rounds] = State(group["round"], answered, kinds, rounds)
                run.states[client] = state
        return run


def pack_indices(indices: Sequence[int]) -> list[int] | dict[str, Any]:
    """Return ascending indices as first and last of each range, or as bits, whichever is less.

    >>> pack_indices([0, 1, 2, 7])
    [0, 2, 7, 7]
    """
    each = np.asarray(indices, np.int64)
    ends = np.flatnonzero(np.diff(each) != 1)
    first, last = each[np.append(0, ends + 1)], each[np.append(ends, each.size - 1)]
    span = int(each[-1] - each[0]) + 1
    if 16 * first.size <= span / 4:  # in digits, about
        return np.stack([first, last], axis=1).ravel().tolist()
    there = np.zeros(span, np.bool_)
    there[each - each[0]] = True
    return {"first": int(each[0]), "bits": np.packbits(there).tobytes().hex()}


def unpack_indices(packed: list[int] | Mapping[str, Any]) -> list[int]:
    """Return the indices that ``pack_indices`` has packed.

    Raises:
        ConfigError, LookupError, ValueError, TypeError: they are damaged.
    """
    if isinstance(packed, Mapping):
        bits = np.frombuffer(bytes.fromhex(packed["bits"]), np.uint8)
        found: list[int] = (np.flatnonzero(np.unpackbits(bits)) + packed["first"]).tolist()
        return found
    ranges = [range(a, b + 1) for a, b in zip(packed[::2], packed[1::2], strict=True)]
    if any(not each for each in ranges) or sorted(packed) != packed:
        raise ConfigError("ranges of clients are damaged")
    return [index for each in ranges for index in each]


def _pack(column: Sequence[int]) -> list[int | str]:
    """Return integers as the bytes that each takes, and their hexadecimals; once, if all equal."""
    width = (max(column).bit_length() + 7) // 8
    alike = min(column) == max(column)
    each = (value.to_bytes(width, "big") for value in (column[:1] if alike else column))
    return [width, b"".join(each).hex()]


def _unpack(packed: Sequence[Any], count: int) -> list[int]:
    width, text = packed
    raw = bytes.fromhex(text)
    values = [int.from_bytes(raw[at : at + width], "big") for at in range(0, len(raw), width)]
    values = values * count if len(values) == 1 else values
    if len(values) != count or len(raw) % width:
        raise ConfigError("rounds are damaged")
    return values
