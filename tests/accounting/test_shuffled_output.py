"""The shuffler's output satisfies the assumptions of its lines: no message reveals its sender."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from accounting_oracles import two_valued
from sorting_shuffler import Shuffler

import fedldp
from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.core.bounding import Ranges
from fedldp.core.randomness import Stream
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, Shuffled
from fedldp.simulation.plan import Plan, plan, problem_of
from fedldp.testing.clients import Roles, sender_of

SIZE = 650
"""The number of weights in the quickstart's model."""


def planned(**settings: Any) -> Plan:
    config = fedldp.recipe("quickstart", **settings)
    return plan(config, problem_of(config, None))


class Given:
    """A transport that delivers given reports."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.reports = reports

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        yield from zip(clients, self.reports, strict=True)


def stream(round: int, client: int, purpose: str) -> Stream:
    return Stream.simulation(seed=0, round=round, client=client, purpose=purpose)


def shuffled(made: Plan, values: np.ndarray[Any, Any], **times: float) -> list[Shuffled]:
    """Return a shuffler's output for clients with these weights, shape (n, d)."""
    roles = Roles(made.config, made.problem)
    ranges = Ranges.fixed(0.0, 1.0, (values.shape[1],))
    broadcast = Broadcast(round=1, weights=np.zeros(values.shape[1], np.float32), ranges=ranges)
    reports = [
        roles.encode(row, broadcast, sender_of(0, index))
        for index, row in enumerate(values.astype(np.float32))
    ]
    delays = made.config.composition.channel.delays
    assert delays is not None
    request = RoundRequest(run="run", phase=0, broadcast=broadcast)
    shuffler = Shuffler(Given(reports), replace(delays, **times), len(reports), stream)
    delivered = shuffler.exchange(request, range(len(reports)))
    return [content for _, content in delivered if isinstance(content, Shuffled)]


@pytest.mark.parametrize("times", [{}, {"delay_seconds": 1e-15, "spread": 0.0}])
def test_order_and_time_of_arrival_do_not_reveal_a_messages_sender(times: Any) -> None:
    made = planned(rounds=1, epsilon=20.0)
    # Client 0 has weights of 1 and all others have -1, so a bit reveals its sender.
    values = -np.ones((100, SIZE))
    values[0] = 1.0
    first: list[bool] = []
    classes: dict[float, list[int]] = {}
    blocks = shuffled(made, values, **times)
    assert sum(len(block.positions) for block in blocks) == 100 * SIZE
    for block in blocks:
        for position in range(SIZE):
            at = block.positions == position
            first.append(bool(block.bits[at][0, 0]))
        for time, bit in zip(block.arrival_seconds, block.bits[:, 0], strict=True):
            classes.setdefault(float(time), []).append(int(bit))
    assert np.mean(first) < 0.1  # 0.01 for a shuffler; standard deviation 0.004
    # An arrival time shared by many messages does not identify a client.
    for bits in classes.values():
        assert len(bits) < 100 or np.mean(bits) < 0.1


def test_budgets_that_the_shuffler_keeps_apart_do_not_hide_each_other() -> None:
    lone = math.nextafter(326.0, 1e9)
    made = planned(mechanism="two_point_l1", clip=1e6, epsilon=[326.0] * 99 + [lone], rounds=1)
    sizes = [len(b.positions) / SIZE for b in shuffled(made, np.zeros((100, SIZE)))]
    assert min(sizes) == 1
    # A client that is alone in its group is not hidden: its guarantee is the local one.
    event = made.config.algorithm(made.problem).encoder(99).event()
    assert isinstance(event, BinaryRandomizedResponse)
    lines = [g for g in made.privacy.guarantees if g.adversary == "shuffled-server"]
    assert {g.unit for g in lines} >= {"client-round", "client-run"}
    for line in lines:
        if line.unit != "weight":
            assert two_valued(event.epsilon, SIZE, line.epsilon) <= 1e-5
