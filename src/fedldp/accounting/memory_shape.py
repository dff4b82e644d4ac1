"""What clients that did alike share in a simulation's ledger: all but their earlier rounds."""

from __future__ import annotations

from typing import NamedTuple

from fedldp.accounting.events import Event
from fedldp.accounting.ledger import AskedOtherwise


class Shape(NamedTuple):
    """What a client released in one run, but for the earlier rounds.

    Attributes:
        round: the latest.
        answered: in that round: exchange, question and event, by exchange.
        kinds: what it released in all rounds: event and exchange, in the order of their first time.
    """

    round: int
    answered: tuple[tuple[int, bytes, Event], ...]
    kinds: tuple[tuple[Event, int], ...]

    def awaits(self, round: int, exchange: int) -> bool:
        """Return whether an answer there would be a new one, and not of a round gone by."""
        if self.round != round:
            return self.round < round
        return all(there != exchange for there, _, _ in self.answered)

    def after(self, round: int, exchange: int, question: bytes, event: Event) -> tuple[Shape, int]:
        """Return the shape after one more answer, and the place of its kind among ``kinds``.

        Args:
            round: the latest one, or a later one.
            exchange: of that round; not answered yet.
            question: what is answered.
            event: what the answer releases.
        """
        answered: tuple[tuple[int, bytes, Event], ...] = ((exchange, question, event),)
        if self.round == round:
            answered = tuple(sorted(self.answered + answered, key=lambda each: each[0]))
        kinds = self.kinds
        if (event, exchange) not in kinds:
            kinds = (*kinds, (event, exchange))
        return Shape(round, answered, kinds), kinds.index((event, exchange))

    def merged(self, other: Shape) -> tuple[Shape, list[int]]:
        """Return the shape of a client of which both are known, and where its kinds stand there.

        Returns:
            The shape, whose kinds begin with those of this one; and of each kind of ``other`` its
            place among them.

        Raises:
            AskedOtherwise: they answered one exchange of their latest round differently.
        """
        kinds = (*self.kinds, *(kind for kind in other.kinds if kind not in self.kinds))
        latest = max(self, other, key=lambda shape: shape.round)
        answered = {each[0]: each for each in latest.answered}
        if self.round == other.round:
            for each in (*self.answered, *other.answered):
                if answered.setdefault(each[0], each) != each:
                    raise AskedOtherwise(f"round {self.round} was released for two questions")
        in_order = tuple(answered[exchange] for exchange in sorted(answered))
        return Shape(latest.round, in_order, kinds), [kinds.index(kind) for kind in other.kinds]


NOTHING = Shape(-1, (), ())
"""The shape of a client that has released nothing."""
