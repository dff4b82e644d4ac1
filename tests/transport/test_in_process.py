"""The transport within one machine: bytes to clients, and their answers back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from fedldp.errors import RunError, WireError
from fedldp.transport.in_process import InProcess
from fedldp.wire import (
    Broadcast,
    Question,
    Reason,
    Refusal,
    Report,
    pack_answer,
    pack_question,
    read_question,
)

QUESTION = Question(
    run="run", exchange=1, broadcast=Broadcast(round=3, weights=np.zeros(4, np.float32))
)


def report(round: int = 3) -> Report:
    return Report(round=round, size=4, payload=b"\x05", chunk=4)


def test_every_client_gets_the_question_and_its_answer_comes_back_as_it_gave_it() -> None:
    asked: list[tuple[bytes, Sequence[int]]] = []

    def answers(message: bytes, clients: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        asked.append((message, clients))
        yield 7, pack_answer(report(), run="run", exchange=1)
        yield 2, pack_answer(Refusal(3, Reason.OVER_BUDGET), run="run", exchange=1)

    delivered = list(InProcess(answers).exchange(QUESTION, [2, 5, 7]))
    assert delivered == [(7, report()), (2, Refusal(3, Reason.OVER_BUDGET))]
    ((message, clients),) = asked
    assert clients == [2, 5, 7]
    assert message == pack_question(QUESTION)
    assert pack_question(read_question(message)) == message


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        pack_answer(report(), run="another", exchange=1),
        pack_answer(report(), run="run", exchange=0),
        pack_answer(report(round=2), run="run", exchange=1),
    ],
    ids=["nothing", "another run", "another exchange", "another round"],
)
def test_what_is_no_answer_to_the_question_is_refused(answer: bytes) -> None:
    transport = InProcess(lambda message, clients: iter([(0, answer)]))
    with pytest.raises(WireError):
        list(transport.exchange(QUESTION, [0]))


def test_answers_come_one_by_one_and_an_error_passes_as_it_is() -> None:
    def answers(message: bytes, clients: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        yield 0, pack_answer(report(), run="run", exchange=1)
        raise RunError("a worker process died")

    delivered = InProcess(answers).exchange(QUESTION, [0, 1])
    assert next(delivered) == (0, report())
    with pytest.raises(RunError, match=r"^a worker process died$"):
        next(delivered)
