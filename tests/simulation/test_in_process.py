"""The transport within one machine brings bytes to clients and their answers back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedldp.core.errors import RunError, WireError
from fedldp.protocol.server_loop import one_by_one
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundRequest,
    pack_reply,
    pack_reports,
    pack_request,
    read_reply_to,
    read_request,
)
from fedldp.simulation.in_process import InProcess, SentRequest

REQUEST = RoundRequest(
    run="run", phase=1, broadcast=Broadcast(round=3, weights=np.zeros(4, np.float32))
)


def report(round: int = 3) -> Report:
    return Report(round=round, size=4, payload=b"\x05", chunk=4)


def test_every_client_gets_the_request_and_its_answer_comes_back_unchanged() -> None:
    asked: list[tuple[bytes, Sequence[int]]] = []

    def answers(
        message: bytes, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        asked.append((message, clients))
        yield [7], [pack_reply(report(), run="run", phase=1)]
        yield [2], [pack_reply(Refusal(3, Reason.OVER_BUDGET), run="run", phase=1)]

    delivered = list(InProcess(answers).exchange(REQUEST, [2, 5, 7]))
    assert delivered == [(7, report()), (2, Refusal(3, Reason.OVER_BUDGET))]
    ((message, clients),) = asked
    assert clients == [2, 5, 7]
    assert message == pack_request(REQUEST)
    assert pack_request(read_request(message)) == message


def test_values_for_one_client_are_in_its_request_only() -> None:
    told = {client: {"own": np.full(2, client, np.uint8)} for client in (2, 5)}
    request = replace(REQUEST, own=told)
    asked: list[RoundRequest] = []

    def answers(
        request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        assert isinstance(request, RoundRequest)
        asked.extend(map(request.only([*clients]).to, clients))
        yield clients, [pack_reply(report(), run="run", phase=1)] * len(clients)

    assert len(list(InProcess(answers).exchange(request, [2, 5, 7]))) == 3
    found = [read_request(pack_request(each)).broadcast.public for each in asked]
    assert [public["own"].tolist() for public in found[:2]] == [[2, 2], [5, 5]]
    assert found[2] == {}
    with pytest.raises(WireError, match=r"pack request\.to\(client\)"):
        pack_request(request)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        pack_reply(report(), run="another", phase=1),
        pack_reply(report(), run="run", phase=0),
        pack_reply(report(round=2), run="run", phase=1),
    ],
    ids=["nothing", "another run", "another phase", "another round"],
)
def test_a_message_that_does_not_answer_the_request_is_refused(answer: bytes) -> None:
    transport = InProcess(lambda message, clients: iter([([0], [answer])]))
    with pytest.raises(WireError):
        list(transport.exchange(REQUEST, [0]))


COLUMNS: list[dict[str, Any]] = [
    {"epsilon": 0.5},
    {"weight": np.array([2.0, 0.0, 7.5])},
    {"client": np.array([4, 5, 6])},
    {"weight": np.array([2.0, 1.0, 7.5]), "epsilon": 0.5, "client": np.array([6, 4, 5])},
]


def rows_of(**columns: Any) -> NDArray[np.uint8]:
    payloads = np.array([[1], [2], [3]], np.uint8)
    sent = Reports(round=3, size=4, payloads=payloads, chunk=2, **columns)
    rows = pack_reports(sent, run="run", phase=1)
    assert [row.tobytes() for row in rows] == [
        pack_reply(each, run="run", phase=1) for each in sent
    ]
    return rows


def read_rows(rows: NDArray[np.uint8]) -> Reports:
    transport = InProcess(lambda message, clients: iter([(clients, rows)]))
    ((_, found),) = transport.exchange(REQUEST, range(len(rows)))
    assert isinstance(found, Reports)
    return found


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_of_answers_are_read_as_reports_whose_fields_are_columns(
    columns: dict[str, Any],
) -> None:
    rows = rows_of(**columns)
    found = read_rows(rows)
    answers = [read_reply_to(REQUEST, row.tobytes()) for row in rows]
    assert list(found) == answers
    assert list(one_by_one([([4, 5, 6], found)])) == list(zip([4, 5, 6], answers, strict=True))
    assert found.uplink_bits == sum(each.uplink_bits for each in found)
    assert Reports.of(list(found)).payloads.tolist() == found.payloads.tolist()
    some = np.array([True, False, True])
    assert list(found.chosen(some)) == [answers[0], answers[2]]


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0])
def test_a_bad_weight_is_refused_in_any_place(weight: float) -> None:
    rows = rows_of(weight=np.array([2.0, 0.0, 7.5]))
    rows[1, -9:-1] = np.frombuffer(np.array(weight, "<f8").tobytes(), np.uint8)
    with pytest.raises(WireError, match="weight"):
        read_rows(rows)
    with pytest.raises(WireError, match="weight"):
        rows_of(weight=np.array([2.0, weight, 7.5]))


def test_a_sender_below_zero_is_refused() -> None:
    rows = rows_of(client=np.array([4, 5, 6]))
    rows[1, -9:-1] = 255
    with pytest.raises(WireError, match="client"):
        read_rows(rows)


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_that_differ_outside_their_columns_are_refused(columns: dict[str, Any]) -> None:
    rows = rows_of(**columns)
    free = 8 * len([name for name in columns if name != "epsilon"])
    wrong = []
    for byte in range(rows.shape[1] - 1):
        changed = rows.copy()
        changed[2, byte] ^= 1
        try:
            read_rows(changed)
        except WireError:
            wrong.append(byte)
    assert len(wrong) >= rows.shape[1] - 1 - free


@pytest.mark.parametrize("clients", [[0], [0, 1, 2]])
def test_there_must_be_one_answer_per_client(clients: list[int]) -> None:
    sent = Reports(round=3, size=4, payloads=np.zeros((2, 1), np.uint8), chunk=2)
    rows = pack_reports(sent, run="run", phase=1)
    with pytest.raises(RunError, match=f"2 answers from {len(clients)} clients"):
        list(InProcess(lambda message, asked: iter([(clients, rows)])).exchange(REQUEST, [0]))
