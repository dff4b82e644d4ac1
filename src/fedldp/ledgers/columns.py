"""The privacy ledgers of a simulation's clients, in columns: a few bytes per client.

For each client, a run stores the number of the client's ``ClientHistory``, one bit per round for
each kind of event that the client releases, and 8 bytes per phase, to recognise the client's
answer. Clients with equal histories share one ``ClientHistory``. So one array operation can count
the releases of many clients.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.accountants import drawn_once, from_record, releases_nothing
from fedldp.accounting.events import Event, to_record
from fedldp.accounting.prices import price
from fedldp.accounting.releases import (
    WORD,
    Cohort,
    ReleaseHistory,
    RoundWords,
    blocks_of,
    groups_of_equal,
)
from fedldp.core.errors import AskedOtherwise, ConfigError, NoLongerKept, PrivacyError
from fedldp.ledgers.budget import Budget, admit_by_all, each_of
from fedldp.ledgers.protocol import (
    Clients,
    Holds,
    Place,
    Released,
    Rows,
    Verdict,
    always,
    check_place,
    check_run,
    check_turn,
    lost_draws,
    went_back,
)

Places = NDArray[np.int64]
"""Indices of clients, or the rows that hold them."""

Kinds: TypeAlias = "tuple[tuple[Event, int], ...]"
"""Pairs (event, phase), in the order of their first release."""

LARGEST_ROUND = 10**6
"""The largest round of a simulation; it is limited because rounds are stored as bits."""

LARGEST_CLIENT = 10**8 - 1
"""The largest index in a simulation; it is limited because each client up to the last has a row."""

_FEW_HISTORIES = 1000
"""How many histories may be stored before unused ones are dropped."""


class MemoryLedger:
    """The ``Ledgers`` of a simulation's clients, which record what they have released.

    It stores who took part in which round, with which event, but no bytes: a simulated client's
    answer follows from its seed and the request. If the same request comes again, ``check`` lets
    the client train, and ``release`` makes the answer again at no cost, but refuses an answer that
    differs from the earlier one. The class is not thread-safe.

    Args:
        budget: the budget of each client, or several budgets with different units. None: count, but
            refuse nothing.
        keeps_answers: whether to store bytes too, as a site's ledger does, and to answer a repeated
            request with them. This is for clients whose answers do not follow from a seed. The
            bytes last only as long as this object, and ``extract`` leaves them out.
    """

    def __init__(
        self, budget: Budget | Iterable[Budget] | None = None, *, keeps_answers: bool = False
    ) -> None:
        self.budgets = each_of(budget)
        self._sent: dict[tuple[str, int], dict[Place, bytes]] | None = {} if keeps_answers else None
        self._runs: dict[str, RunHistory] = {}
        # What was counted since ``extract`` returned this ledger.
        self._counted: list[tuple[Place, Event, Places, NDArray[np.uint64]]] | None = None

    def count_downlink(self, run: str, round: int, event: Event) -> None:
        """Count ``event`` for the broadcast of ``round``; a repeated call changes nothing."""
        check_round(round)
        price(event, "pure")  # raises if the event is unknown
        server = self._run(run).server
        server[event] = server.get(event, 0) | 1 << round

    @property
    def budget(self) -> Budget | None:
        """The budget of the largest unit, or None."""
        return self.budgets[0] if self.budgets else None

    def runs(self) -> list[str]:
        """Return the names of the runs in which something was released."""
        return list(self._runs)

    def history(self, run: str, client: int) -> Counter[Event]:
        """Return how often ``client`` released each event in a run."""
        indices_of([client])
        found: Counter[Event] = Counter()
        known = self._runs.get(run) or RunHistory()
        for event, times in known.history(known.row(client)):
            found[event] += times
        return found

    def spent(self, client: int) -> float:
        """Return how much of its ``budget`` a client has spent, rounded up."""
        if self.budget is None:
            raise ConfigError("client_budget: the clients have none; give one")
        indices_of([client])
        return self.budget.spent([self._spent(client, self.budget)])

    def releases(self, run: str) -> ReleaseHistory:
        """Return who released what in each round of a run, in the form that statements need.

        Raises:
            ConfigError: a client released two priced events in the same round, which no statement
                can express. Count them as one event.
        """
        known = self._runs.get(run, RunHistory())
        blocks: dict[Event, list[Cohort]] = {}
        for kinds, clients, words in known.kind_groups():
            costly = [
                (event, rounds)
                for (event, _), rounds in zip(kinds, words, strict=True)
                if not releases_nothing(event)
            ]
            for (event, one), (other, two) in itertools.combinations(costly, 2):
                if any((one[word] & two[word]).any() for word in one.keys() & two):
                    raise ConfigError(
                        f"run {run}: a client released {event} and {other} in the same round; "
                        "count them as one event"
                    )
            for event, rounds in costly:
                blocks.setdefault(event, []).extend(blocks_of(clients, rounds))
        return ReleaseHistory(blocks, known.server)

    def check(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        max_rounds: int | None = None,
        holds: Holds = always,
    ) -> list[Verdict]:
        """Return whether each client may release ``event`` now: see ``Ledgers``.

        Without ``keeps_answers`` there are no bytes to return.
        """
        places = _checked(place, clients)
        first, groups = self._alike(place, event, places, max_rounds, holds)
        found: list[Verdict] = []
        for client in places[first].tolist():
            try:
                known = self._admit(place, event, client, max_rounds, holds)
                found.append(self._kept(place, client) if known else None)
            except PrivacyError as error:
                found.append(error)
        return [found[group] for group in groups]

    def release(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        make: Callable[[], Rows],
        max_rounds: int | None = None,
    ) -> Released:
        """Charge ``event`` to each client, and return the rows of ``make``: see ``Ledgers``.

        A repeated request calls ``make`` again, and costs nothing. If a client's new answer differs
        from its earlier one, sending it would be a second release. The client's row then holds the
        stored bytes, or a NoLongerKept if no bytes are stored.

        Raises:
            ConfigError: ``make`` did not return a row of bytes for each client; nothing was
                released.
        """
        places = _checked(place, clients)
        known = self._released(place, event, places, max_rounds)
        made = make()
        _check_rows(made, places.size)
        flat = np.ascontiguousarray(made) if isinstance(made, np.ndarray) else made
        digests = [_digest(row if isinstance(row, bytes) else row.data) for row in flat]
        same = self._count(place, event, places, known, np.array(digests, np.uint64))
        new = np.flatnonzero(~known)
        self._keep(place, places[new], (made[at] for at in new.tolist()))
        if same.all():
            return made
        return [
            bytes(row) if equal else self._again(place, client)
            for client, row, equal in zip(places.tolist(), flat, same.tolist(), strict=True)
        ]

    def extract(self, clients: Iterable[int]) -> MemoryLedger:
        """Return a ledger with only these clients, for another process to continue with."""
        small, chosen = MemoryLedger(self.budgets), indices_of(list(dict.fromkeys(clients)))
        small._runs = {name: run.extract(chosen) for name, run in self._runs.items()}
        small._counted = []
        return small

    def absorb(self, other: MemoryLedger) -> None:
        """Count what another process has released in a ledger that ``extract`` has returned.

        What is counted already is counted once.

        Raises:
            PrivacyError: a client may not release that, or has released something else here. This
                ledger then holds at least what it held before.
        """
        for place, event, clients, digests in other._counted or ():
            known = self._released(place, event, clients, None)
            if not self._count(place, event, clients, known, digests).all():
                raise AskedOtherwise("a client's releases were counted differently in two places")

    def to_record(self) -> dict[str, Any]:
        """Return all releases, but not the budget, as a JSON-ready record."""
        events: dict[Event, int] = {}
        runs = [{"run": name, **run_to_record(run, events)} for name, run in self._runs.items()]
        return {"events": [to_record(event) for event in events], "runs": runs}

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], budget: Budget | Iterable[Budget] | None = None
    ) -> MemoryLedger:
        """Return the ledger that a record describes, under ``budget``.

        The ledger refuses to repeat earlier answers, because it can no longer check that the
        repeated bytes would be the same. Whoever stores the record must detect damage to it.
        """
        ledger, events = cls(budget), [from_record(event) for event in record["events"]]
        ledger._runs = {each["run"]: run_from_record(each, events) for each in record["runs"]}
        return ledger

    def _released(
        self, place: Place, event: Event, clients: Places, max_rounds: int | None
    ) -> NDArray[np.bool_]:
        """Return which clients released this before; raise an error if one may not release it."""
        first, groups = self._alike(place, event, clients, max_rounds, always)
        released = [
            self._admit(place, event, client, max_rounds, always, anew=event)
            for client in clients[first].tolist()
        ]
        return np.array(released, np.bool_)[groups]

    def _count(
        self,
        place: Place,
        event: Event,
        clients: Places,
        known: NDArray[np.bool_],
        digests: NDArray[np.uint64],
    ) -> NDArray[np.bool_]:
        """Count the answers that are not known; return which answers are those that were counted.

        Args:
            place: identifies the answer.
            event: what it releases.
            clients: the clients.
            known: which of them released this before.
            digests: see ``RunHistory.count``.
        """
        if not clients.size:
            return known
        kept, new = self._run(place.run), clients[~known]
        if new.size:
            kept.count(new, place, event, digests[~known])
            if self._counted is not None:
                self._counted.append((place, event, new, digests[~known]))
        same: NDArray[np.bool_] = kept.answers[place.phase][kept.rows(clients)] == digests
        return same

    def _alike(
        self,
        place: Place,
        event: Event,
        clients: Places,
        max_rounds: int | None,
        holds: Holds,
    ) -> tuple[list[int], list[int]]:
        """Group clients that get the same verdict, because they have released the same.

        Returns:
            The place in ``clients`` of the first client of each group, and each client's group.
        """
        each_alone = list(range(clients.size))
        if clients.size <= 1:
            return each_alone, each_alone
        known = self._runs.get(place.run) or RunHistory()
        rows = known.rows(clients)
        if not known.await_answers(rows, place.round, place.phase):
            return each_alone, each_alone
        # Without a budget, only this run's events matter, not how often each was released.
        columns = known.told_apart(rows, times=bool(self.budgets))
        if self.budgets:
            for run in self._runs.values():
                if run is not known:
                    columns += run.told_apart(run.rows(clients), times=True)
        done = known.rounds_before(rows, place.round)
        if max_rounds is not None:
            columns.append(np.where(done < max_rounds, 0, done))
        if holds is not always and drawn_once(event):
            pairs = zip(clients.tolist(), done.tolist(), strict=True)
            columns.append(np.array([rounds > 0 and not holds(client) for client, rounds in pairs]))
        first, groups = groups_of_equal(columns, rows.size)
        return first.tolist(), groups.tolist()

    def _admit(
        self,
        place: Place,
        event: Event,
        client: int,
        max_rounds: int | None,
        holds: Holds,
        anew: Event | None = None,
    ) -> bool:
        """Return whether a client released this before; raise an error if it may not release it.

        Args:
            place: identifies the answer.
            event: what the client releases.
            client: the client's index.
            max_rounds: see ``Ledgers``.
            holds: see ``Ledgers``.
            anew: the event of a new answer; it must equal the event released before, if any.

        Raises:
            PrivacyError: the client may not release it; see ``Ledgers.check``.
        """
        run, round, phase, _ = place
        known = self._known(place, client)
        if known is not None and anew is not None:
            if known != anew:
                raise AskedOtherwise(
                    f"run {run} round {round} phase {phase} was released as {known}, not as {anew}"
                )
            return True
        kept = self._runs.get(run) or RunHistory()
        row = kept.row(client)
        done = int(kept.rounds_before(np.array([row]), round)[0])
        if known != event:
            check_turn(done, max_rounds)
        if done and drawn_once(event) and not holds(client):
            raise lost_draws(run)
        if known != event:
            before = [event for event, _ in kept.client_history(row).kinds]
            price(event, "pure", before)  # raises if the event is unknown, or if another was drawn
            spent = [self._spent(client, budget) for budget in self.budgets]
            admit_by_all(self.budgets, event, spent, before)
        return known is not None

    def _known(self, place: Place, client: int) -> Event | None:
        """Return the event of the earlier answer to this request; None if there is none."""
        kept = self._runs.get(place.run)
        if kept is None:
            return None
        run, round, phase, request = place
        row = kept.row(client)
        history = kept.client_history(row)
        if round < history.round:
            raise went_back(run, round, history.round)
        for there, asked, event in history.answered if round == history.round else ():
            if there == phase:
                if asked != request:
                    raise AskedOtherwise(
                        f"run {run} round {round} phase {phase} was released for another request"
                    )
                digests = kept.answers.get(phase)
                if digests is None or not digests[row]:
                    raise NoLongerKept(
                        f"run {run} round {round} phase {phase} was released before the "
                        "run was resumed, and its bytes are no longer stored"
                    )
                return event
        return None

    def _keep(self, place: Place, clients: Places, rows: Iterable[Any]) -> None:
        """Store what clients send in the latest round of a run, if bytes are stored."""
        if self._sent is None:
            return
        for client, row in zip(clients.tolist(), rows, strict=True):
            before = self._sent.get((place.run, client), {})
            latest = {at: sent for at, sent in before.items() if at.round == place.round}
            self._sent[place.run, client] = {**latest, place: bytes(row)}

    def _kept(self, place: Place, client: int) -> bytes | None:
        """Return a client's earlier answer to this request, if bytes are stored."""
        return None if self._sent is None else self._sent.get((place.run, client), {}).get(place)

    def _again(self, place: Place, client: int) -> bytes | NoLongerKept:
        kept = self._kept(place, client)
        if kept is not None:
            return kept
        return NoLongerKept(
            f"client {client}, run {place.run} round {place.round} phase {place.phase}: the answer "
            "differs from the earlier one, so it would be randomised twice; nothing was released"
        )

    def _run(self, name: str) -> RunHistory:
        check_run(name)
        if name not in self._runs:
            self._runs[name] = RunHistory()
        return self._runs[name]

    def _spent(self, client: int, budget: Budget) -> Fraction:
        total = Fraction(0)
        for run in self._runs.values():
            total += budget.price_of_run(run.history(run.row(client)))
        return total


def _checked(place: Place, clients: Clients) -> Places:
    """Return the clients' indices; raise ConfigError unless they and ``place`` are valid."""
    check_place(place)
    check_round(place.round)
    return indices_of(clients)


def _check_rows(made: Rows, count: int) -> None:
    """Raise ConfigError unless ``made`` has one row of bytes for each of ``count`` clients."""
    found = f"{len(made)} rows"
    if isinstance(made, np.ndarray):
        found = f"{made.dtype} of shape {made.shape}"
        sound = made.dtype == np.uint8 and made.ndim == 2 and len(made) == count
    else:
        sound = len(made) == count and all(isinstance(row, bytes) for row in made)
    if not sound:
        raise ConfigError(
            f"answers: {found}; give one row of bytes for each of {count} clients; nothing was "
            "released"
        )


def _digest(answer: bytes | memoryview) -> int:
    """Return the first 64 bits of an answer's digest; 0 (one case in 2^64) becomes 1."""
    return int.from_bytes(hashlib.sha256(answer).digest()[:8]) or 1


# What clients released in one run


class ClientHistory(NamedTuple):
    """What a client released in a run, without the details of earlier rounds.

    Attributes:
        round: the latest round.
        answered: the answers in that round: triples (phase, request, event), sorted by phase.
        kinds: what it released in all rounds: pairs (event, phase), in the order of first release.
    """

    round: int
    answered: tuple[tuple[int, bytes, Event], ...]
    kinds: Kinds

    def awaits(self, round: int, phase: int) -> bool:
        """Return whether an answer in this phase would be new and not before the latest round."""
        if self.round != round:
            return self.round < round
        return all(there != phase for there, _, _ in self.answered)

    def after(self, place: Place, event: Event) -> tuple[ClientHistory, int]:
        """Return the history after one more answer, and the index in ``kinds`` of its kind.

        Args:
            place: identifies the answer, in a phase of the latest round that has none so far, or in
                a later round.
            event: what the answer releases.
        """
        before = self.answered if self.round == place.round else ()
        answered = sorted((*before, (place.phase, place.request, event)), key=lambda each: each[0])
        kind, kinds = (event, place.phase), self.kinds
        if kind not in kinds:
            kinds = (*kinds, kind)
        return ClientHistory(place.round, tuple(answered), kinds), kinds.index(kind)


NOTHING = ClientHistory(-1, (), ())
"""The history of a client that has released nothing."""


class RunHistory:
    """What was released in one run.

    A client's row is its index or, in a result of ``extract``, the next free row.

    Attributes:
        server: for each event, the rounds whose broadcasts released it, as the bits of an integer.
        histories: the clients' histories, and perhaps some that no client has any more; ``NOTHING``
            comes first.
        history_of: for each row, the index of its history in ``histories``.
        words: for each index in the ``kinds`` of a client's history, the rounds in which the kind
            at that index was released, by row.
        answers: the first 64 bits of the digest of what was sent in the latest round, by phase and
            row; 0 if nothing was sent or the digest is no longer known.
    """

    def __init__(self) -> None:
        self.server: dict[Event, int] = {}
        self.histories: list[ClientHistory] = [NOTHING]
        self.history_of: NDArray[np.int32] = np.zeros(0, np.int32)
        self.words: list[RoundWords] = []
        self.answers: dict[int, NDArray[np.uint64]] = {}
        self._numbers: dict[ClientHistory, int] = {NOTHING: 0}
        self._many = _FEW_HISTORIES
        # For the last answer that was counted: the number of the history before it, its place and
        # event, the number of the history after it, and the index of its kind.
        self._last: tuple[int, tuple[Place, Event] | None, int, int] = (0, None, 0, 0)
        # The row of each client; None if each client's index is its row.
        self._rows: dict[int, int] | None = None

    def row(self, client: int) -> int:
        """Return the row of a client; a new client gets a new row."""
        row = client if self._rows is None else self._rows.setdefault(client, len(self._rows))
        self._reserve(row + 1)
        return row

    def rows(self, clients: Places) -> Places:
        """Return the rows of clients; new clients get new rows."""
        if self._rows is None:
            self._reserve(int(clients.max(initial=-1)) + 1)
            return clients
        found = [self._rows.setdefault(client, len(self._rows)) for client in clients.tolist()]
        self._reserve(len(self._rows))
        return np.array(found, np.int64)

    def known(self) -> tuple[Places, Places]:
        """Return the clients that released something, ascending, and their rows."""
        rows = np.flatnonzero(self.history_of)
        if self._rows is None:
            return rows, rows
        clients = np.array(list(self._rows), np.int64)[rows]
        order = np.argsort(clients)
        return clients[order], rows[order]

    def client_history(self, row: int) -> ClientHistory:
        """Return the history of the client in a row."""
        return self.histories[int(self.history_of[row])]

    def rounds(self, row: int) -> list[int]:
        """Return the rounds of each kind that the client in a row has released, as bits."""
        return [
            sum(int(bits[row]) << word * WORD for word, bits in words.items())
            for words in self.words[: len(self.client_history(row).kinds)]
        ]

    def await_answers(self, rows: Places, round: int, phase: int) -> bool:
        """Return whether an answer in this phase would be new for each of these clients."""
        numbers = set(self.history_of[rows].tolist())
        return all(self.histories[number].awaits(round, phase) for number in numbers)

    def rounds_before(self, rows: Places, round: int) -> NDArray[np.int64]:
        """Return the number of rounds before ``round`` in which each client released something."""
        counted = np.zeros(rows.size, np.int64)
        for word in {word for words in self.words for word in words if word * WORD < round}:
            done = np.zeros(rows.size, np.uint32)
            for words in self.words:
                if word in words:
                    done |= words[word][rows]
            earlier = (1 << min(round - word * WORD, WORD)) - 1
            counted += np.bitwise_count(done & np.uint32(earlier))
        return counted

    def history(self, row: int) -> tuple[tuple[Event, int], ...]:
        """Return the events that the client of a row released, each with its number of releases."""
        pairs = zip(self.client_history(row).kinds, self.rounds(row), strict=True)
        return tuple((event, rounds.bit_count()) for (event, _), rounds in pairs)

    def told_apart(self, rows: Places, *, times: bool) -> list[NDArray[np.integer]]:
        """Return columns of numbers such that clients with equal numbers have the same history.

        Args:
            rows: the rows of the clients.
            times: whether histories that differ only in the number of releases count as different.
        """
        found, place = np.unique(self.history_of[rows], return_inverse=True)
        numbers: dict[object, int] = {}
        kinds = np.array(
            [
                numbers.setdefault(self.histories[number].kinds, len(numbers))
                for number in found.tolist()
            ],
            np.int64,
        )
        nothing = np.zeros(rows.size, np.int64)
        counts = (
            sum((np.bitwise_count(word[rows]) for word in words.values()), nothing)
            for words in (self.words if times else ())
        )
        return [kinds[place], *counts]

    def count(
        self, clients: Places, place: Place, event: Event, digests: NDArray[np.uint64]
    ) -> None:
        """Count an answer from each of these clients; the answer must be new for all of them.

        Args:
            clients: without duplicates.
            place: identifies the answer, in the latest round of each client or in a later round.
            event: what the answer releases.
            digests: the first 64 bits of the digest of what each client sends, above 0.
        """
        if clients.size == 1:
            self.count_group(self.row(int(clients[0])), place, event, digests[0])
            return
        rows = self.rows(clients)
        before = self.history_of[rows]
        for number in set(before.tolist()):
            there = before == number
            self.count_group(rows[there], place, event, digests[there])

    def count_group(self, rows: Places | int, place: Place, event: Event, digests: Any) -> None:
        """Count an answer from one client, or from clients that share a history: see ``count``."""
        self._forget_histories()
        old = int(self.history_of[rows if isinstance(rows, int) else rows[0]])
        if self._last[:2] != (old, (place, event)):
            history, kind = self.histories[old].after(place, event)
            self._last = (old, (place, event), self.number(history), kind)
        *_, new, kind = self._last
        if self.histories[old].round < place.round:
            for each in self.answers.values():
                each[rows] = 0
        self.history_of[rows] = new
        self.word(kind, place.round // WORD)[rows] |= np.uint32(1 << place.round % WORD)
        self._answers(place.phase)[rows] = digests

    def kind_groups(self) -> Iterator[tuple[Kinds, Places, list[RoundWords]]]:
        """Yield the clients that released the same kinds, possibly in different rounds.

        With the kinds come the clients' indices, ascending, and for each kind the rounds in which
        they released it.
        """
        clients, rows = self.known()
        kinds: dict[Kinds, int] = {}
        of_history = [kinds.setdefault(history.kinds, len(kinds)) for history in self.histories]
        of_client = np.array(of_history, np.int32)[self.history_of[rows]]
        for each, number in kinds.items():
            there = np.flatnonzero(of_client == number) if len(kinds) > 2 else slice(None)
            if each and of_client[there].size:
                words = [self.words_of(kind, rows[there]) for kind in range(len(each))]
                yield each, clients[there], words

    def extract(self, clients: Places) -> RunHistory:
        """Return what these clients released."""
        chosen = np.unique(clients)
        rows = self.rows(chosen)
        chosen, rows = chosen[self.history_of[rows] > 0], rows[self.history_of[rows] > 0]
        small = RunHistory()
        small._rows = {client: row for row, client in enumerate(chosen.tolist())}
        numbers, places = np.unique(self.history_of[rows], return_inverse=True)
        small.history_of = np.array(
            [small.number(self.histories[number]) for number in numbers.tolist()], np.int32
        )[places]
        small.words = [self.words_of(kind, rows) for kind in range(len(self.words))]
        answers = {phase: each[rows] for phase, each in self.answers.items()}
        small.answers = {phase: each for phase, each in answers.items() if each.any()}
        return small

    def words_of(self, kind: int, rows: Places) -> RoundWords:
        """Return the rounds in which clients released one kind, given by its index."""
        if kind >= len(self.words):
            return {}
        found = {word: bits[rows] for word, bits in sorted(self.words[kind].items())}
        return {word: bits for word, bits in found.items() if bits.any()}

    def word(self, kind: int, word: int) -> NDArray[np.uint32]:
        """Return a column of ``words``, created if necessary."""
        while len(self.words) <= kind:
            self.words.append({})
        if word not in self.words[kind]:
            self.words[kind][word] = np.zeros(self.history_of.size, np.uint32)
        return self.words[kind][word]

    def number(self, history: ClientHistory) -> int:
        """Return the number of a history; a new history gets a new number."""
        number = self._numbers.setdefault(history, len(self.histories))
        if number == len(self.histories):
            self.histories.append(history)
        return number

    def _answers(self, phase: int) -> NDArray[np.uint64]:
        if phase not in self.answers:
            self.answers[phase] = np.zeros(self.history_of.size, np.uint64)
        return self.answers[phase]

    def _forget_histories(self) -> None:
        """Drop histories that no client has, once there are many."""
        if len(self.histories) <= self._many:
            return
        # ``NOTHING`` is kept even if no client has it.
        used, numbers = np.unique(np.append(0, self.history_of), return_inverse=True)
        self.history_of = numbers[1:].astype(np.int32)
        self.histories = [self.histories[number] for number in used.tolist()]
        self._numbers = {history: number for number, history in enumerate(self.histories)}
        self._last = (0, None, 0, 0)
        self._many = max(_FEW_HISTORIES, 2 * used.size)

    def _reserve(self, size: int) -> None:
        """Make room for ``size`` rows; untouched zeros take no memory."""
        if size <= self.history_of.size:
            return
        size = max(size, 2 * self.history_of.size)
        self.history_of = _longer(self.history_of, size)
        self.words = [{w: _longer(each, size) for w, each in words.items()} for words in self.words]
        self.answers = {x: _longer(each, size) for x, each in self.answers.items()}


def _longer(column: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros(size, column.dtype)
    grown[: column.size] = column
    return grown


def indices_of(clients: NDArray[np.integer] | Sequence[int]) -> Places:
    """Return the clients' indices; raise ConfigError unless they are valid and distinct."""
    if len(clients) == 1 and type(clients[0]) is int and 0 <= clients[0] <= LARGEST_CLIENT:
        return np.array(clients, np.int64)  # a fast path
    found = np.asarray(clients) if len(clients) else np.zeros(0, np.int64)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise ConfigError(
            f"clients: {found.dtype} array of shape {found.shape}; give a list of indices"
        )
    indices = found.astype(np.int64)
    if indices.min(initial=0) < 0 or indices.max(initial=0) > LARGEST_CLIENT:
        raise ConfigError(f"clients: give indices from 0 to {LARGEST_CLIENT:,}")
    if (indices[1:] <= indices[:-1]).any() and np.unique(indices).size < indices.size:
        raise ConfigError("clients: an index appears twice; give each index once")
    return indices


def check_round(round: int) -> None:
    """Raise ConfigError if ``round`` is larger than a simulation's largest round."""
    if round > LARGEST_ROUND:
        raise ConfigError(f"round = {round}: give at most {LARGEST_ROUND:,} in a simulation")


# To a JSON-ready record and back


def run_to_record(run: RunHistory, events: dict[Event, int]) -> dict[str, Any]:
    """Return a JSON-ready record, which refers to an event by its index in ``events``."""

    def place(event: Event) -> int:
        return events.setdefault(event, len(events))

    clients, rows = run.known()
    first, shape_of = groups_of_equal([run.history_of[rows]], rows.size)
    histories = [run.client_history(row) for row in rows[first].tolist()]
    there = np.zeros(clients.max(initial=-1) + 1, np.bool_)
    there[clients] = True
    return {
        "shapes": [
            {
                "round": history.round,
                "answered": [[x, asked.hex(), place(e)] for x, asked, e in history.answered],
                "kinds": [[place(event), phase] for event, phase in history.kinds],
            }
            for history in histories
        ],
        "clients": _text(np.packbits(there)),
        "shape_of": _text(shape_of.astype(np.uint32)),
        "rounds": [
            [[word, _text(bits)] for word, bits in run.words_of(kind, rows).items()]
            for kind in range(max((len(history.kinds) for history in histories), default=0))
        ],
        "server": [[place(event), f"{rounds:x}"] for event, rounds in run.server.items()],
    }


def run_from_record(record: Mapping[str, Any], events: Sequence[Event]) -> RunHistory:
    """Return the run that a record describes, with the answered requests but not the answers."""
    run = RunHistory()
    run.server = {events[place]: int(rounds, 16) for place, rounds in record["server"]}
    numbers = [
        run.number(
            ClientHistory(
                shape["round"],
                tuple((x, bytes.fromhex(asked), events[e]) for x, asked, e in shape["answered"]),
                tuple((events[event], phase) for event, phase in shape["kinds"]),
            )
        )
        for shape in record["shapes"]
    ]
    rows = run.rows(np.flatnonzero(np.unpackbits(_column(record["clients"], "u1"))))
    run.history_of[rows] = np.array(numbers, np.int32)[_column(record["shape_of"], "<u4")]
    for kind, words in enumerate(record["rounds"]):
        for word, bits in words:
            run.word(kind, word)[rows] = _column(bits, "<u4")
    return run


def _text(column: NDArray[np.uint8] | NDArray[np.uint32]) -> str:
    little_endian = column.astype(column.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(little_endian.tobytes()).decode()


def _column(text: str, dtype: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype)
