"""The privacy ledgers of a simulation's clients, all in one."""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fedldp.accounting.budget import Budget, Kind, price, price_of_run
from fedldp.accounting.check import check_count
from fedldp.accounting.events import Event, NoData, from_record, to_record
from fedldp.accounting.ledger import (
    AskedOtherwise,
    Ledger,
    NoLongerKept,
    check_place,
    check_run,
    check_turn,
    went_back,
)
from fedldp.accounting.memory_run import NOTHING, Run, State
from fedldp.accounting.releases import Releases, blocks_of
from fedldp.errors import ConfigError

LARGEST_ROUND = 10**6
"""Of a simulation: rounds are kept as bits."""


class MemoryLedger:
    """What the clients of a simulation have released: for each a ``ledger.Ledger``, by ``of``.

    It keeps who took part in which round and with what event, and no bytes: a simulated client's
    answer follows from its seed and the question. So where the same question is asked again,
    ``recall`` returns None, and ``release`` makes the answer again, at no cost, and refuses it if
    it is not the one that it was. Not for several threads at once.

    Args:
        budget: of each client, or None to count only.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget
        self._runs: dict[str, Run] = {}

    def of(self, client: int) -> Ledger:
        """Return the ledger of one client, which is a view of this one."""
        check_count("client", client)
        return ClientLedger(self, client)

    def count_downlink(self, run: str, round: int, event: Event) -> None:
        """Count that the broadcast of ``round`` releases ``event``; again it changes nothing."""
        _check_round(round)
        price(event, "pure")  # raises if the event is unknown
        server = self._run(run).server
        server[event] = server.get(event, 0) | 1 << round

    def runs(self) -> list[str]:
        """Return the names of the runs in which something was released."""
        return list(self._runs)

    def history(self, run: str, client: int) -> Counter[Event]:
        """Return how often ``client`` released which event in a run."""
        found: Counter[Event] = Counter()
        for event, times in self._state(run, client).history():
            found[event] += times
        return found

    def spent(self, client: int) -> float:
        """Return what a client's releases have cost of its budget, rounded up."""
        if self.budget is None:
            raise ConfigError("client_budget: the clients have none; give one")
        return self.budget.spent([self._spent(client, self.budget.kind)])

    def releases(self, run: str) -> Releases:
        """Return who released what in which round of a run, as a statement needs it.

        Raises:
            ConfigError: a client released two events with a price in one round; no statement knows
                what to make of that. Count them as one event.
        """
        known = self._runs.get(run, Run())
        taken: dict[Event, tuple[list[int], list[int]]] = {}
        for shape, clients, rounds in known.cohorts():
            costly = [
                (event, bits)
                for (event, _), bits in zip(shape.kinds, zip(*rounds, strict=True), strict=True)
                if not isinstance(event, NoData)
            ]
            for one, other in itertools.combinations(costly, 2):
                if any(map(operator.and_, one[1], other[1])):
                    raise ConfigError(
                        f"run {run}: a client released {one[0]} and {other[0]} in one round; "
                        "count them as one event"
                    )
            for event, bits in costly:
                of_event = taken.setdefault(event, ([], []))
                of_event[0].extend(clients)
                of_event[1].extend(bits)
        blocks = {event: blocks_of(*of_event) for event, of_event in taken.items()}
        return Releases(blocks, known.server)

    def extract(self, clients: Iterable[int]) -> MemoryLedger:
        """Return a ledger of these clients alone, for another process to go on with."""
        small, chosen = MemoryLedger(self.budget), list(clients)
        small._runs = {name: run.extract(chosen) for name, run in self._runs.items()}
        return small

    def absorb(self, other: MemoryLedger) -> None:
        """Count all that another ledger has counted; what both have counted once.

        Raises:
            AskedOtherwise: a client released one thing here and another there. Then this ledger
                holds at least what it held before.
        """
        for name, run in other._runs.items():
            self._run(name).absorb(run)

    def to_record(self) -> dict[str, Any]:
        """Return all that was released, but not the budget, as a JSON-ready record."""
        events: dict[Event, int] = {}
        runs = [{"run": name, **run.to_record(events)} for name, run in self._runs.items()]
        return {"events": [to_record(event) for event in events], "runs": runs}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], budget: Budget | None = None) -> MemoryLedger:
        """Return the ledger of a record, under ``budget``.

        It refuses to answer again what was answered before, and cannot check any more whether the
        same answer would be made.

        Raises:
            ConfigError: the record is damaged.
        """
        ledger = cls(budget)
        try:
            events = dict(enumerate(map(from_record, record["events"])))
            ledger._runs = {each["run"]: Run.from_record(each, events) for each in record["runs"]}
        except (ConfigError, LookupError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"the ledgers' record is damaged: {error}") from error
        return ledger

    def _run(self, name: str) -> Run:
        check_run(name)
        return self._runs.setdefault(name, Run())

    def _state(self, run: str, client: int) -> State:
        found = self._runs.get(run)
        return NOTHING if found is None else found.states.get(client, NOTHING)

    def _spent(self, client: int, kind: Kind) -> Fraction:
        total = Fraction(0)
        for run in self._runs.values():
            total += price_of_run(run.states.get(client, NOTHING).history(), kind)
        return total


@dataclass(frozen=True, eq=False, slots=True)
class ClientLedger:
    """One client's part of a ``MemoryLedger``: a ``ledger.Ledger``."""

    whole: MemoryLedger
    client: int

    def recall(self, run: str, round: int, exchange: int, question: bytes) -> None:
        """Return None, for no bytes are kept; or raise, see ``Ledger``."""
        check_place(run, round, exchange, question)
        self._known(run, round, exchange, question)

    def rounds_before(self, run: str, round: int) -> int:
        """Return in how many rounds before ``round`` something was released: see ``Ledger``."""
        done = functools.reduce(operator.or_, self.whole._state(run, self.client).rounds, 0)
        return (done & ((1 << round) - 1)).bit_count()

    def admit(self, run: str, round: int, exchange: int, event: Event) -> None:
        """Return if ``event`` may be released now, or was there, else raise: see ``Ledger``."""
        check_run(run)
        state = self.whole._state(run, self.client)
        if round == state.round and (exchange, event) in ((x, e) for x, _, e in state.answered):
            return
        before = [event for event, _ in state.kinds]
        budget = self.whole.budget
        if budget is None:
            price(event, "pure", before)  # raises if it is unknown, or was drawn as another
        else:
            budget.admit(event, self.whole._spent(self.client, budget.kind), before)

    def release(
        self,
        run: str,
        round: int,
        exchange: int,
        question: bytes,
        event: Event,
        make: Callable[[], bytes],
        *,
        most_rounds: int | None = None,
    ) -> bytes:
        """Charge ``event``, and return the bytes that ``make`` gives: see ``Ledger``.

        The same question again calls ``make`` again, and costs nothing.

        Raises:
            NoLongerKept: beyond what ``Ledger`` says, the answer is another than it was: to send it
                would be a second release.
        """
        check_place(run, round, exchange, question)
        _check_round(round)
        known = self._known(run, round, exchange, question)
        if known is None:
            check_turn(self.rounds_before(run, round), most_rounds)
            self.admit(run, round, exchange, event)
        elif known != event:
            raise AskedOtherwise(
                f"run {run} round {round} exchange {exchange} was released as {known}, "
                f"not as {event}"
            )
        payload = make()
        digest = int.from_bytes(hashlib.sha256(payload).digest()[:8])
        kept = self.whole._run(run)
        if known is None:
            state = kept.states.get(self.client, NOTHING)
            kept.put(self.client, state.after(round, exchange, question, event))
            kept.answers.setdefault(exchange, {})[self.client] = digest
        elif kept.answers[exchange][self.client] != digest:
            raise NoLongerKept(
                f"client {self.client}, run {run} round {round} exchange {exchange}: the answer is "
                "another than before, and would be randomised again; nothing was released"
            )
        return payload

    def _known(self, run: str, round: int, exchange: int, question: bytes) -> Event | None:
        """Return as what event this very question was answered before, or None."""
        state = self.whole._state(run, self.client)
        if round < state.round:
            raise went_back(run, round, state.round)
        for there, asked, event in state.answered if round == state.round else ():
            if there == exchange:
                if asked != question:
                    raise AskedOtherwise(
                        f"run {run} round {round} exchange {exchange} was released for another "
                        "question"
                    )
                if self.client not in self.whole._runs[run].answers.get(exchange, {}):
                    raise NoLongerKept(
                        f"run {run} round {round} exchange {exchange} was released before a "
                        "resume, and its bytes are no longer kept"
                    )
                return event
        return None


def _check_round(round: int) -> None:
    if round > LARGEST_ROUND:
        raise ConfigError(f"round = {round}: a simulation has at most {LARGEST_ROUND:,}")
