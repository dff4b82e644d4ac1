"""What a simulation's clients released in one run, in columns: a few bytes for each client.

Of each client there is a number, that of its ``Shape``, which clients that did alike share; a bit
for each round of each kind of what it releases; and 8 bytes for each exchange, to know its answer
again. So what many clients do at once is counted at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.accounting.ledger import AskedOtherwise
from fedldp.accounting.memory_shape import NOTHING, Shape
from fedldp.accounting.releases import WORD, Words

Places = NDArray[np.int64]
"""Indices of clients, or the rows where they stand."""

LARGEST_ROUND = 10**6
"""Of a simulation: rounds are kept as bits."""

LARGEST_CLIENT = 10**8 - 1
"""Of a simulation: there is a row for each client up to the last."""

_FEW_SHAPES = 1000
"""Below it shapes that no client has any more are left where they are."""


class Answer(NamedTuple):
    """What a client releases: ``event``, as the answer to ``question``, where that was asked."""

    round: int
    exchange: int
    question: bytes
    event: Event


class Cohort(NamedTuple):
    """Clients that released the same kinds, be it in different rounds.

    Attributes:
        kinds: event and exchange.
        clients: ascending.
        words: of each kind.
    """

    kinds: tuple[tuple[Event, int], ...]
    clients: Places
    words: list[Words]


class Run:
    """What was released in one run.

    A client is counted in the row of its own index, or, in what ``extract`` returns, in the next
    that is free.

    Attributes:
        server: the rounds whose broadcasts released an event, as the bits of an integer.
        shapes: those that clients have, and maybe some that none has any more; ``NOTHING`` first.
        shape_of: by row, the number of its shape.
        words: by the place of a kind among those of a client's shape: in which rounds it was
            released, by row.
        answers: by exchange and row: the beginning of a digest of what was sent, in the latest
            round alone; 0 where nothing was, or it is not known any more.
    """

    def __init__(self) -> None:
        self.server: dict[Event, int] = {}
        self.shapes: list[Shape] = [NOTHING]
        self.shape_of: NDArray[np.int32] = np.zeros(0, np.int32)
        self.words: list[Words] = []
        self.answers: dict[int, NDArray[np.uint64]] = {}
        self._numbers: dict[Shape, int] = {NOTHING: 0}
        self._many = _FEW_SHAPES
        # The last shape that an answer was added to, the answer, and what became of both.
        self._last: tuple[int, Answer | None, int, int] = (0, None, 0, 0)
        self._rows: dict[int, int] | None = None  # by client; None where it is the same

    def row(self, client: int) -> int:
        """Return the row of a client; of a new one too."""
        row = client if self._rows is None else self._rows.setdefault(client, len(self._rows))
        self._reserve(row + 1)
        return row

    def rows(self, clients: Places) -> Places:
        """Return the rows of clients; of new ones too."""
        if self._rows is None:
            self._reserve(int(clients.max(initial=-1)) + 1)
            return clients
        found = [self._rows.setdefault(client, len(self._rows)) for client in clients.tolist()]
        self._reserve(len(self._rows))
        return np.array(found, np.int64)

    def known(self) -> tuple[Places, Places]:
        """Return the clients that released something, ascending, and their rows."""
        rows = np.flatnonzero(self.shape_of)
        if self._rows is None:
            return rows, rows
        clients = np.array(list(self._rows), np.int64)[rows]
        order = np.argsort(clients)
        return clients[order], rows[order]

    def shape(self, row: int) -> Shape:
        """Return what the client of a row released, but for its earlier rounds."""
        return self.shapes[int(self.shape_of[row])]

    def rounds(self, row: int) -> list[int]:
        """Return in which rounds the client of a row released each of its kinds, as bits."""
        return [
            sum(int(bits[row]) << word * WORD for word, bits in words.items())
            for words in self.words[: len(self.shape(row).kinds)]
        ]

    def await_answers(self, rows: Places, round: int, exchange: int) -> bool:
        """Return whether of all these clients an answer there would be a new one."""
        numbers = set(self.shape_of[rows].tolist())
        return all(self.shapes[number].awaits(round, exchange) for number in numbers)

    def rounds_before(self, rows: Places, round: int) -> NDArray[np.int64]:
        """Return in how many rounds before ``round`` each client released something."""
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
        """Return the events that the client of a row released, and how often each was."""
        pairs = zip(self.shape(row).kinds, self.rounds(row), strict=True)
        return tuple((event, rounds.bit_count()) for (event, _), rounds in pairs)

    def told_apart(self, rows: Places, *, times: bool) -> list[NDArray[np.integer]]:
        """Return columns of numbers: clients that are alike in all of them have one history.

        Args:
            rows: of the clients.
            times: whether histories differ too if only how often something was released does.
        """
        found, place = np.unique(self.shape_of[rows], return_inverse=True)
        # Shapes that come from each other have the very same kinds.
        kinds = np.array([id(self.shapes[number].kinds) for number in found.tolist()], np.int64)
        nothing = np.zeros(rows.size, np.int64)
        counts = (
            sum((np.bitwise_count(word[rows]) for word in words.values()), nothing)
            for words in (self.words if times else ())
        )
        return [kinds[place], *counts]

    def count(self, rows: Places, answer: Answer, digests: NDArray[np.uint64]) -> None:
        """Count an answer of each of these clients, all of which await it.

        Args:
            rows: of the clients; each once.
            answer: of the latest round of each of them, or a later one.
            digests: the beginning of a digest of what each sends, above 0.
        """
        before = self.shape_of[rows]
        numbers = set(before.tolist())
        for number in numbers:
            there = before == number
            self.count_alike(rows[there], answer, digests[there])

    def count_alike(self, rows: Places | int, answer: Answer, digests: Any) -> None:
        """Count an answer of clients of one shape, or of one client: see ``count``."""
        self._forget_shapes()
        old = int(self.shape_of[rows if isinstance(rows, int) else rows[0]])
        if self._last[:2] != (old, answer):
            shape, kind = self.shapes[old].after(*answer)
            self._last = (old, answer, self.number(shape), kind)
        *_, new, kind = self._last
        if self.shapes[old].round < answer.round:
            for each in self.answers.values():
                each[rows] = 0
        self.shape_of[rows] = new
        self.word(kind, answer.round // WORD)[rows] |= np.uint32(1 << answer.round % WORD)
        self._answers(answer.exchange)[rows] = digests

    def cohorts(self) -> Iterator[Cohort]:
        """Yield the clients that released something, by the kinds of what they did."""
        clients, rows = self.known()
        kinds: dict[tuple[tuple[Event, int], ...], int] = {}
        of_shape = [kinds.setdefault(shape.kinds, len(kinds)) for shape in self.shapes]
        of_client = np.array(of_shape, np.int32)[self.shape_of[rows]]
        for each, number in kinds.items():
            there = np.flatnonzero(of_client == number) if len(kinds) > 2 else slice(None)
            if each and of_client[there].size:
                words = [self.words_of(kind, rows[there]) for kind in range(len(each))]
                yield Cohort(each, clients[there], words)

    def extract(self, clients: Places) -> Run:
        """Return what these clients released."""
        chosen = np.unique(clients)
        rows = self.rows(chosen)
        chosen, rows = chosen[self.shape_of[rows] > 0], rows[self.shape_of[rows] > 0]
        small = Run()
        small._rows = {client: row for row, client in enumerate(chosen.tolist())}
        numbers, places = np.unique(self.shape_of[rows], return_inverse=True)
        small.shape_of = np.array(
            [small.number(self.shapes[number]) for number in numbers.tolist()], np.int32
        )[places]
        small.words = [self.words_of(kind, rows) for kind in range(len(self.words))]
        answers = {exchange: each[rows] for exchange, each in self.answers.items()}
        small.answers = {exchange: each for exchange, each in answers.items() if each.any()}
        return small

    def absorb(self, other: Run) -> None:
        """Count all that ``other`` has counted; what both have counted once.

        Raises:
            AskedOtherwise: a client released one thing here and another there. Then this run holds
                what it held before.
        """
        clients, theirs = other.known()
        mine = self.rows(clients)
        self._forget_shapes()
        pairs = list(
            zip(self.shape_of[mine].tolist(), other.shape_of[theirs].tolist(), strict=True)
        )
        merged = {(a, b): self.shapes[a].merged(other.shapes[b]) for a, b in set(pairs)}
        # Few, unlike the shapes, in which the latest rounds differ.
        alike = [(id(self.shapes[a].kinds), id(other.shapes[b].kinds)) for a, b in pairs]
        parts = []
        numbers = {pair: number for number, pair in enumerate(dict.fromkeys(alike))}
        of_client = np.array([numbers[pair] for pair in alike], np.int64)
        for number in numbers.values():
            there = np.flatnonzero(of_client == number)
            a, b = pairs[there[0]]
            kinds = range(len(other.shapes[b].kinds))
            words = [other.words_of(kind, theirs[there]) for kind in kinds]
            self._check_rounds(self.shapes[a], mine[there], other.shapes[b], words)
            parts.append((mine[there], merged[a, b][1], words))
        self._check_answers(mine, other, theirs)
        for rows, to_kinds, words in parts:
            for kind, of_kind in zip(to_kinds, words, strict=True):
                for word, bits in of_kind.items():
                    self.word(kind, word)[rows] |= bits
        self._take_answers(mine, other, theirs)
        to = {pair: self.number(shape) for pair, (shape, _) in merged.items()}
        self.shape_of[mine] = [to[pair] for pair in pairs]
        for event, rounds in other.server.items():
            self.server[event] = self.server.get(event, 0) | rounds

    def words_of(self, kind: int, rows: Places) -> Words:
        """Return in which rounds clients released the kind that stands at a place among theirs."""
        if kind >= len(self.words):
            return {}
        found = {word: bits[rows] for word, bits in sorted(self.words[kind].items())}
        return {word: bits for word, bits in found.items() if bits.any()}

    def word(self, kind: int, word: int) -> NDArray[np.uint32]:
        """Return a column of ``words``, which is made where there is none."""
        while len(self.words) <= kind:
            self.words.append({})
        if word not in self.words[kind]:
            self.words[kind][word] = np.zeros(self.shape_of.size, np.uint32)
        return self.words[kind][word]

    def number(self, shape: Shape) -> int:
        """Return the number of a shape, which is taken up where it is new."""
        number = self._numbers.setdefault(shape, len(self.shapes))
        if number == len(self.shapes):
            self.shapes.append(shape)
        return number

    def _answers(self, exchange: int) -> NDArray[np.uint64]:
        if exchange not in self.answers:
            self.answers[exchange] = np.zeros(self.shape_of.size, np.uint64)
        return self.answers[exchange]

    def _check_rounds(self, mine: Shape, rows: Places, theirs: Shape, words: list[Words]) -> None:
        """Raise AskedOtherwise if clients released two events in one exchange of one round."""
        for kind, (event, exchange) in enumerate(mine.kinds):
            for (other, there), of_other in zip(theirs.kinds, words, strict=True):
                if there == exchange and other != event:
                    done = self.words_of(kind, rows)
                    if any((done[word] & of_other[word]).any() for word in done.keys() & of_other):
                        raise AskedOtherwise(f"a round was released as {event}, and as {other}")

    def _check_answers(self, mine: Places, other: Run, theirs: Places) -> None:
        """Refuse another run in which a question of the latest rounds has another answer."""
        same = _rounds(self)[self.shape_of[mine]] == _rounds(other)[other.shape_of[theirs]]
        for exchange in self.answers.keys() & other.answers.keys():
            one, two = self.answers[exchange][mine], other.answers[exchange][theirs]
            if (same & (one > 0) & (two > 0) & (one != two)).any():
                raise AskedOtherwise(f"exchange {exchange} of a round has two different answers")

    def _take_answers(self, mine: Places, other: Run, theirs: Places) -> None:
        """Take over the answers of another run's latest rounds, while shapes are as they were."""
        ours = _rounds(self)[self.shape_of[mine]]
        latest = _rounds(other)[other.shape_of[theirs]]
        for answers in self.answers.values():
            answers[mine[latest > ours]] = 0
        for exchange, digests in other.answers.items():
            there = (latest >= ours) & (digests[theirs] > 0)
            if there.any():
                self._answers(exchange)[mine[there]] = digests[theirs[there]]

    def _forget_shapes(self) -> None:
        """Leave out the shapes that no client has any more, once they are many."""
        if len(self.shapes) <= self._many:
            return
        counts = np.bincount(self.shape_of, minlength=1)
        counts[0] += 1  # ``NOTHING`` stays
        used = np.flatnonzero(counts)
        to = np.zeros(len(self.shapes), np.int32)
        to[used] = np.arange(used.size)
        self.shape_of = to[self.shape_of]
        self.shapes = [self.shapes[number] for number in used.tolist()]
        self._numbers = {shape: number for number, shape in enumerate(self.shapes)}
        self._last = (0, None, 0, 0)
        self._many = max(_FEW_SHAPES, 2 * used.size)

    def _reserve(self, size: int) -> None:
        """Make room for so many rows; zeros that nobody has written take no memory."""
        if size <= self.shape_of.size:
            return
        size = max(size, 2 * self.shape_of.size)
        self.shape_of = _longer(self.shape_of, size)
        self.words = [{w: _longer(each, size) for w, each in words.items()} for words in self.words]
        self.answers = {x: _longer(each, size) for x, each in self.answers.items()}


def _rounds(run: Run) -> NDArray[np.int64]:
    return np.array([shape.round for shape in run.shapes], np.int64)


def _longer(column: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros(size, column.dtype)
    grown[: column.size] = column
    return grown
