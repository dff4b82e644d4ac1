"""The privacy ledgers of a simulation's clients, all in one."""

from __future__ import annotations

import functools
import hashlib
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.accountants import Kind, from_record, releases_nothing
from fedldp.accounting.budget import Budget, price, price_of_run
from fedldp.accounting.events import Event, to_record
from fedldp.accounting.ledger import (
    AskedOtherwise,
    Ledger,
    NoLongerKept,
    check_place,
    check_run,
    check_turn,
    went_back,
)
from fedldp.accounting.memory_checks import all_covered, check_client, check_round, indices_of
from fedldp.accounting.memory_record import run_from_record, run_to_record
from fedldp.accounting.memory_run import Answer, Run
from fedldp.accounting.memory_shape import NOTHING, Shape
from fedldp.accounting.releases import Block, Releases, blocks_of
from fedldp.errors import ConfigError, PrivacyError

_DAMAGE = (ConfigError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError)


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
        check_client(client)
        return ClientLedger(self, client)

    def count_downlink(self, run: str, round: int, event: Event) -> None:
        """Count that the broadcast of ``round`` releases ``event``; again it changes nothing."""
        check_round(round)
        price(event, "pure")  # raises if the event is unknown
        server = self._run(run).server
        server[event] = server.get(event, 0) | 1 << round

    def runs(self) -> list[str]:
        """Return the names of the runs in which something was released."""
        return list(self._runs)

    def history(self, run: str, client: int) -> Counter[Event]:
        """Return how often ``client`` released which event in a run."""
        check_client(client)
        found: Counter[Event] = Counter()
        known = self._runs.get(run) or Run()
        for event, times in known.history(known.row(client)):
            found[event] += times
        return found

    def spent(self, client: int) -> float:
        """Return what a client's releases have cost of its budget, rounded up."""
        if self.budget is None:
            raise ConfigError("client_budget: the clients have none; give one")
        check_client(client)
        return self.budget.spent([self._spent(client, self.budget.kind)])

    def releases(self, run: str) -> Releases:
        """Return who released what in which round of a run, as a statement needs it.

        Raises:
            ConfigError: a client released two events with a price in one round; no statement knows
                what to make of that. Count them as one event.
        """
        known = self._runs.get(run, Run())
        blocks: dict[Event, list[Block]] = {}
        for kinds, clients, words in known.cohorts():
            costly = [
                (event, rounds)
                for (event, _), rounds in zip(kinds, words, strict=True)
                if not releases_nothing(event)
            ]
            for (event, one), (other, two) in itertools.combinations(costly, 2):
                if any((one[word] & two[word]).any() for word in one.keys() & two):
                    raise ConfigError(
                        f"run {run}: a client released {event} and {other} in one round; "
                        "count them as one event"
                    )
            for event, rounds in costly:
                blocks.setdefault(event, []).extend(blocks_of(clients, rounds))
        return Releases(blocks, known.server)

    def ready(
        self,
        run: str,
        round: int,
        exchange: int,
        question: bytes,
        event: Event,
        clients: NDArray[np.integer] | Sequence[int],
        *,
        most_rounds: int | None = None,
    ) -> bool:
        """Return whether each of these clients may release ``event`` now, and none did already.

        So it is if every one's own ledger would let ``recall``, ``check_turn`` and ``admit`` pass.
        Where it is not, ask them one by one, to know whom and why. See ``Ledger.release`` for the
        arguments; ``clients`` are indices, each once.
        """
        try:
            check_place(run, round, exchange, question)
            check_round(round)
            places = indices_of(clients)
        except ConfigError:
            return False
        known = self._runs.get(run) or Run()
        rows = known.rows(places)
        if not known.await_answers(rows, round, exchange):
            return False
        if most_rounds is not None:
            done = known.rounds_before(rows, round)
            if done.max(initial=0) >= most_rounds:
                return False
        others = [each for name, each in self._runs.items() if name != run]
        return all_covered(self.budget, event, places, known, others)

    def release_all(
        self,
        run: str,
        round: int,
        exchange: int,
        question: bytes,
        event: Event,
        clients: NDArray[np.integer] | Sequence[int],
        make: Callable[[], NDArray[np.uint8]],
        *,
        most_rounds: int | None = None,
    ) -> NDArray[np.uint8]:
        """Charge ``event`` to each of many clients, and return the rows that ``make`` gives.

        As ``Ledger.release``, which tells of the arguments, for one after the other, if they are
        ``ready``; but ``clients`` are n indices, each once, and ``make`` returns what they answer,
        one row for each, n x bytes. An error of ``make`` is passed on, and costs nothing.

        Raises:
            PrivacyError: not all of them are ready; nothing was released.
            ConfigError: ``make`` gave no such rows; nothing was released.
        """
        if not self.ready(run, round, exchange, question, event, clients, most_rounds=most_rounds):
            raise PrivacyError(
                f"run {run!a:.250} round {round} exchange {exchange}: not every one of these "
                f"{len(clients)} clients may release {event} for the first time; ask them one by "
                "one; nothing was released"
            )
        places, rows = indices_of(clients), make()
        if rows.dtype != np.uint8 or rows.ndim != 2 or len(rows) != places.size:
            raise ConfigError(
                f"answers: {rows.dtype} of shape {rows.shape}; give a row of bytes for each of "
                f"{places.size} clients; nothing was released"
            )
        each = (_digest(row.data) for row in np.ascontiguousarray(rows))
        digests = np.fromiter(each, np.uint64, places.size)
        kept = self._run(run)
        kept.count(kept.rows(places), Answer(round, exchange, question, event), digests)
        return rows

    def extract(self, clients: Iterable[int]) -> MemoryLedger:
        """Return a ledger of these clients alone, for another process to go on with."""
        small, chosen = MemoryLedger(self.budget), indices_of(list(dict.fromkeys(clients)))
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
        runs = [{"run": name, **run_to_record(run, events)} for name, run in self._runs.items()]
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
            ledger._runs = {each["run"]: run_from_record(each, events) for each in record["runs"]}
            if len(ledger._runs) < len(record["runs"]):
                raise ConfigError("a run stands there twice")
        except _DAMAGE as error:
            raise ConfigError(f"the ledgers' record is damaged: {error}") from error
        return ledger

    def _run(self, name: str) -> Run:
        check_run(name)
        if name not in self._runs:
            self._runs[name] = Run()
        return self._runs[name]

    def _spent(self, client: int, kind: Kind) -> Fraction:
        total = Fraction(0)
        for run in self._runs.values():
            total += price_of_run(run.history(run.row(client)), kind)
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
        known = self.whole._runs.get(run) or Run()
        done = functools.reduce(operator.or_, known.rounds(known.row(self.client)), 0)
        return (done & ((1 << round) - 1)).bit_count()

    def admit(self, run: str, round: int, exchange: int, event: Event) -> None:
        """Return if ``event`` may be released now, or was there, else raise: see ``Ledger``."""
        check_run(run)
        shape = self._shape(run)
        if round == shape.round and (exchange, event) in ((x, e) for x, _, e in shape.answered):
            return
        before = [event for event, _ in shape.kinds]
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
        check_round(round)
        known = self._known(run, round, exchange, question)
        if known is None:
            if most_rounds is not None:
                check_turn(self.rounds_before(run, round), most_rounds)
            self.admit(run, round, exchange, event)
        elif known != event:
            raise AskedOtherwise(
                f"run {run} round {round} exchange {exchange} was released as {known}, "
                f"not as {event}"
            )
        payload = make()
        digest = _digest(payload)
        kept = self.whole._run(run)
        row = kept.row(self.client)
        if known is None:
            kept.count_alike(row, Answer(round, exchange, question, event), digest)
        elif kept.answers[exchange][row] != digest:
            raise NoLongerKept(
                f"client {self.client}, run {run} round {round} exchange {exchange}: the answer is "
                "another than before, and would be randomised again; nothing was released"
            )
        return payload

    def _known(self, run: str, round: int, exchange: int, question: bytes) -> Event | None:
        """Return as what event this very question was answered before, or None."""
        shape = self._shape(run)
        if round < shape.round:
            raise went_back(run, round, shape.round)
        for there, asked, event in shape.answered if round == shape.round else ():
            if there == exchange:
                if asked != question:
                    raise AskedOtherwise(
                        f"run {run} round {round} exchange {exchange} was released for another "
                        "question"
                    )
                kept = self.whole._runs[run]
                digests = kept.answers.get(exchange)
                if digests is None or not digests[kept.row(self.client)]:
                    raise NoLongerKept(
                        f"run {run} round {round} exchange {exchange} was released before a "
                        "resume, and its bytes are no longer kept"
                    )
                return event
        return None

    def _shape(self, run: str) -> Shape:
        known = self.whole._runs.get(run)
        return NOTHING if known is None else known.shape(known.row(self.client))


def _digest(answer: bytes | memoryview) -> int:
    """Return the beginning of an answer's digest; 1 for the one in 2^64 that would be 0."""
    return int.from_bytes(hashlib.sha256(answer).digest()[:8]) or 1
