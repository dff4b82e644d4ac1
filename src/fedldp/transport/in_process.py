"""Clients on this machine, reached by a function call: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fedldp.transport import Delivery
from fedldp.wire import Question, pack_question, read_answer_to

Answers = Callable[[bytes, Sequence[int]], Iterator[tuple[int, bytes]]]
"""Puts a packed question to clients, and yields each one's number and packed answer."""


class InProcess:
    """The transport to whoever answers a call.

    Args:
        answers: see ``Answers``.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def exchange(self, question: Question, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield every client's answer; see ``Transport``."""
        for client, answer in self._answers(pack_question(question), clients):
            yield client, read_answer_to(question, answer)
