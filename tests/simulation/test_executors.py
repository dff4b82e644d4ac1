"""Requests and answers between a simulation's server and its clients, one by one or in batches,
in this process or in a pool."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fedldp
from fedldp.core.errors import PrivacyError, RunError, StoreUnusable, WireError
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.roles import Batch, LocalUpdate, Update
from fedldp.protocol.server_loop import one_by_one
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundRequest,
    Sensitive,
    pack_reply,
    pack_reports,
    pack_request,
    read_reply,
    read_reply_to,
    read_request,
)
from fedldp.simulation.executors import LARGEST, Executor, InProcess, doing
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.plan import plan
from fedldp.simulation.population import MANY, Population
from fedldp.testing.clients import Roles, trained
from fedldp.training.batched_sgd import GROUP

REQUEST = RoundRequest(
    run="run", phase=1, broadcast=Broadcast(round=3, weights=np.zeros(4, np.float32))
)


def report(round: int = 3) -> Report:
    return Report(round=round, size=4, payload=b"\x05", chunk=4)


def test_every_client_gets_the_request_and_its_answer_comes_back_unchanged() -> None:
    asked: list[tuple[RoundRequest, Sequence[int]]] = []

    def answers(
        request: RoundRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        asked.append((request, clients))
        yield [7], [pack_reply(report(), run="run", phase=1)]
        yield [2], [pack_reply(Refusal(3, Reason.OVER_BUDGET), run="run", phase=1)]

    delivered = list(InProcess(answers).exchange(REQUEST, [2, 5, 7]))
    assert delivered == [(7, report()), (2, Refusal(3, Reason.OVER_BUDGET))]
    assert asked == [(REQUEST, [2, 5, 7])]
    message = pack_request(REQUEST)
    assert pack_request(read_request(message)) == message


def test_values_for_one_client_are_in_its_request_only() -> None:
    told = {client: {"own": np.full(2, client, np.uint8)} for client in (2, 5)}
    request = replace(REQUEST, own=told)
    asked: list[RoundRequest] = []

    def answers(
        request: RoundRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        asked.extend(map(request.only([*clients]).to, clients))
        yield clients, [pack_reply(report(), run="run", phase=1)] * len(clients)

    assert len(list(InProcess(answers).exchange(request, [2, 5, 7]))) == 3
    found = [read_request(pack_request(each)).broadcast.public for each in asked]
    assert [public["own"].tolist() for public in found[:2]] == [[2, 2], [5, 5]]
    assert found[2] == {}
    with pytest.raises(WireError, match=r"pack request\.to\(client\)"):
        pack_request(request)


COLUMNS: list[dict[str, Any]] = [
    {"epsilon": 0.5},
    {"weight": np.array([2.0, 0.0, 7.5])},
    {"client": np.array([4, 5, 6])},
    {"weight": np.array([2.0, 1.0, 7.5]), "epsilon": 0.5, "client": np.array([6, 4, 5])},
]


def sent_rows(**columns: Any) -> NDArray[np.uint8]:
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
    rows = sent_rows(**columns)
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
    rows = sent_rows(weight=np.array([2.0, 0.0, 7.5]))
    rows[1, -9:-1] = np.frombuffer(np.array(weight, "<f8").tobytes(), np.uint8)
    with pytest.raises(WireError, match="weight"):
        read_rows(rows)
    with pytest.raises(WireError, match="weight"):
        sent_rows(weight=np.array([2.0, weight, 7.5]))


def test_a_sender_below_zero_is_refused() -> None:
    rows = sent_rows(client=np.array([4, 5, 6]))
    rows[1, -9:-1] = 255
    with pytest.raises(WireError, match="client"):
        read_rows(rows)


@pytest.mark.parametrize("columns", COLUMNS)
def test_rows_that_differ_outside_their_columns_are_refused(columns: dict[str, Any]) -> None:
    rows = sent_rows(**columns)
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


TOGETHER = {
    "quickstart": {"model": "logistic"},
    "ldp-fl-digits": {"model": "logistic", "mechanism": "laplace", "channel": "named"},
    "fedavg-digits": {"model": "mlp_64", "local_epochs": 2, "batch_size": 4},
    "dp-sgd-digits": {"batch_size": 4},
    "ldpfl-digits-public": {"num_clients": 10, "local_epochs": 1, "model": "logistic"},
    "personalized-digits": {"rounds": 30},
}
"""A run for each local update that trains many clients at once, with settings for which that is
faster."""


def population_of(name: str, folder: Path, **settings: Any) -> Population:
    config = fedldp.recipe(name, **TOGETHER.get(name, {}) | settings)
    inputs = Inputs.of(config, None, None)
    return Population(
        config=plan(config, inputs.problem).scheduled,
        problem=inputs.problem,
        dataset=inputs.dataset,
        members=inputs.members,
        device=torch.device("cpu"),
        folder=folder,
        run="run",
    )


def request(population: Population, round: int = 1) -> tuple[bytes, Broadcast]:
    roles = Roles(population.config, population.problem)
    first = roles.broadcast
    broadcast = Broadcast(
        round=round, weights=first.weights, ranges=first.ranges, public=first.public
    )
    return pack_request(RoundRequest(run="run", phase=0, broadcast=broadcast)), broadcast


def some_of(population: Population) -> list[int]:
    return [client for client in (0, 1, 4, 5, 7) if client < population.config.num_clients]


def packed(
    population: Population, message: bytes, clients: Sequence[int], ledger: MemoryLedger
) -> list[bytes]:
    """Return the bytes of every answer, in the clients' order."""
    found, asked = [], []
    for some, block in population.runtime(ledger).answers(message, clients):
        asked += list(some)
        found += [each if isinstance(each, bytes) else each.tobytes() for each in block]
    assert asked == list(clients)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
def test_training_in_a_batch_agrees_with_training_alone(name: str, tmp_path: Path) -> None:
    population = population_of(name, tmp_path)
    step = population.local_update
    assert population.group == GROUP
    _, broadcast = request(population)
    asked = some_of(population)
    clients = population.batch(asked, 1)
    rows = step(broadcast, clients, GROUP).open().rows
    assert rows.dtype == np.float32
    assert rows.shape == (len(asked), broadcast.weights.size)
    for row, client in zip(rows, clients, strict=True):
        alone = trained(step, broadcast, client)
        np.testing.assert_allclose(row, alone, atol=2e-5 * max(1.0, np.abs(alone).max()))
        assert np.abs(alone - broadcast.weights).max() > 1e-3


@pytest.mark.parametrize("name", ["quickstart", "fedavg-digits"])
def test_an_error_names_the_round_and_the_client(name: str, tmp_path: Path) -> None:
    population = population_of(name, tmp_path)
    population.dataset.train.features[population.members[2]] = 3e38
    message, _ = request(population)
    assert len(packed(population, message, [0, 1, 3], MemoryLedger())) == 3
    ledger = MemoryLedger()
    with pytest.raises(PrivacyError, match=r"^round 1, client 2: .*NaN"):
        packed(population, message, [0, 1, 2, 3], ledger)
    assert ledger.runs() == []


def test_no_client_is_asked_twice_at_once(tmp_path: Path) -> None:
    population = population_of("quickstart", tmp_path)
    message, _ = request(population)
    ledger = MemoryLedger()
    with pytest.raises(RunError, match="appears twice"):
        packed(population, message, [4, 5, 5, 6], ledger)
    assert ledger.runs() == []


def test_an_unreadable_request_is_refused_by_each_client(tmp_path: Path) -> None:
    population = population_of("quickstart", tmp_path)
    found = packed(population, b"no request", [0, 1], MemoryLedger())
    assert [read_reply(each)[2] for each in found] == [Refusal(0, Reason.MALFORMED)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"model": "logistic"}, GROUP),
        ({"model": "vgg"}, 1),
        ({"model": "logistic", "num_clients": 5, "batch_size": 33}, 1),
        ({"model": "logistic", "num_clients": 100, "batch_size": 1000}, GROUP),
        ({"model": "logistic", "num_clients": MANY, "partition": "drawn:6"}, 256),
        ({"model": "logistic", "num_clients": MANY - 1, "partition": "drawn:6"}, GROUP),
        ({"model": "vgg", "num_clients": MANY, "partition": "drawn:6"}, 1),
    ],
)
def test_the_rule_for_groups_depends_on_model_batch_and_clients(
    settings: dict[str, Any], expected: int, tmp_path: Path
) -> None:
    assert population_of("quickstart", tmp_path, **settings).group == expected


# Groups consist of the clients that were asked; clients that differ are separated after training


class Counting:
    """A local update that records which clients train at once."""

    def __init__(self, step: LocalUpdate) -> None:
        self.step, self.groups = step, list[list[int]]()

    def group(self, most_examples: int) -> int:
        return self.step.group(most_examples)

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        self.groups.append(list(batch.indices))
        return self.step(broadcast, batch, group)


def counted(population: Population) -> Counting:
    step = Counting(population.local_update)
    object.__setattr__(population, "local_update", step)
    return step


def test_a_client_that_refuses_leaves_its_group_and_is_not_replaced(tmp_path: Path) -> None:
    settings = {"mechanism": "laplace", "epsilon": 1.0, "channel": "named", "rounds": 5}
    population = population_of("ldp-fl-digits", tmp_path, num_clients=140, **settings)
    step, ledger, asked = counted(population), MemoryLedger(Budget("pure", 1.5)), list(range(135))
    for round, clients in ((1, [3, 70]), (2, asked)):
        message, _ = request(population, round)
        answers = packed(population, message, clients, ledger)
    refused = [
        place for place, one in enumerate(answers) if isinstance(read_reply(one)[2], Refusal)
    ]
    assert refused == [3, 70]
    groups = [asked[start : start + GROUP] for start in range(0, len(asked), GROUP)]
    expected = [[index for index in group if index not in (3, 70)] for group in groups]
    assert step.groups == [[3, 70], *expected]


def test_a_lost_draw_is_refused_to_that_client_alone(tmp_path: Path) -> None:
    population = population_of("ldpfl-digits-public", tmp_path)
    step, ledger = counted(population), MemoryLedger()
    first, _ = request(population, 1)
    assert len(packed(population, first, [0, 1, 2], ledger)) == 3
    shutil.rmtree(population.store(1).folder)
    second, _ = request(population, 2)
    answers = [read_reply(one)[2] for one in packed(population, second, [0, 1, 2, 3], ledger)]
    assert answers[1] == Refusal(2, Reason.NOT_KEPT)
    assert all(isinstance(answers[place], Report) for place in (0, 2, 3))
    assert step.groups == [[0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize("group", [[1], [0, 1, 2]])
def test_a_damaged_draw_ends_a_simulation_however_its_clients_are_grouped(
    tmp_path: Path, group: list[int]
) -> None:
    """Otherwise what a run does would depend on how many clients are asked together."""
    population, ledger = population_of("ldpfl-digits-public", tmp_path), MemoryLedger()
    packed(population, request(population, 1)[0], group, ledger)
    for file in population.store(1).folder.iterdir():
        file.write_bytes(b"cut")
    with pytest.raises(StoreUnusable, match=r"client-1.*cannot be read"):
        packed(population, request(population, 2)[0], group, ledger)


def test_the_answers_of_a_group_are_charged_before_they_leave(tmp_path: Path) -> None:
    population = population_of("quickstart", tmp_path)
    message, _ = request(population)
    ledger = MemoryLedger()
    (_, rows), *_ = population.runtime(ledger).answers(message, [0, 1])
    assert len(rows) == 2
    event = population.encoders[0].event()
    assert [ledger.history("run", index) for index in (0, 1)] == [{event: 1}, {event: 1}]


# A pool


class Recording:
    """A pool that does a task when its result is asked for, and records the tasks."""

    size = 3

    def __init__(self, population: Population) -> None:
        self.do = doing(population.given())
        self.begun: list[Sequence[int]] = []
        self.ended = 0

    def submit(self, *task: Any) -> tuple[Any, ...]:
        self.begun.append(task[2])
        assert len(self.begun) - self.ended <= 2 * self.size
        return task

    def result(self, task: tuple[Any, ...]) -> Any:
        self.ended += 1
        return self.do(*task)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("count", [0, 1, 7, 399])
def test_a_pool_gets_whole_groups_in_order_and_few_at_once(count: int, tmp_path: Path) -> None:
    settings = {"num_clients": 400, "partition": "drawn:6", "model": "logistic"}
    population = population_of("quickstart", tmp_path / "clients", **settings)
    population.__dict__["group"] = 4
    pool, ledger = Recording(population), MemoryLedger()
    _, broadcast = request(population)
    asked = RoundRequest(run="run", phase=0, broadcast=broadcast)
    found = list(Executor(population, ledger, pool).answers(asked, range(count)))
    assert [client for some, _ in found for client in some] == list(range(count))
    assert [client for batch in pool.begun for client in batch] == list(range(count))
    assert all(len(batch) % 4 == 0 for batch in pool.begun[:-1])
    assert all(len(batch) <= 4 * LARGEST for batch in pool.begun)
    alone = MemoryLedger()
    again = Executor(population, alone).answers(asked, range(count))
    rows = [[bytes(row) for _, block in answers for row in block] for answers in (found, again)]
    assert rows[0] == rows[1]
    for client in range(count):
        assert ledger.history("run", client) == alone.history("run", client) != {}


def test_files_that_clients_keep_come_back_from_a_pool(tmp_path: Path) -> None:
    kept = []
    for pooled in (True, False):
        population = population_of("ldpfl-digits-public", tmp_path / str(pooled) / "clients")
        pool = Recording(population) if pooled else None
        executor = Executor(population, MemoryLedger(), pool)
        for round in (1, 2):
            _, broadcast = request(population, round)
            asked = RoundRequest(run="run", phase=0, broadcast=broadcast)
            assert len(list(executor.answers(asked, [0, 1, 2]))) >= 1
        kept.append([population.store(client).files() for client in range(4)])
    assert kept[0] == kept[1]
    assert kept[0][0] != {} == kept[0][3]
