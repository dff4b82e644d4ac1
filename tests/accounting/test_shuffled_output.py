"""The shuffler's output satisfies the assumptions of its lines: no message reveals its sender."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from accounting_oracles import two_valued
from plans import SIZE, event_of, line, planned
from sorting_shuffler import Shuffler

from fedldp.core.bounding import Ranges
from fedldp.core.randomness import Stream
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, Shuffled
from fedldp.simulation.plan import Plan
from fedldp.testing.clients import Roles, sender_of


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


def has_shuffled(made: Plan) -> bool:
    return any(g["adversary"] == "shuffled-server" for g in made.privacy["guarantees"])


@pytest.mark.parametrize(
    "times",
    [
        {},
        {"delay_seconds": 1e-15, "spread": 0.0},
        {"delay_seconds": 1e-14},
        {"delay_seconds": 1e-6, "compute_seconds": 1e9},
    ],
)
def test_order_and_time_of_arrival_do_not_reveal_a_messages_sender(times: Any) -> None:
    made = planned(rounds=1, epsilon=20.0)
    if not has_shuffled(made):
        return
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
    if min(sizes) > 1:
        return
    # A client that is alone in its group is not hidden: its guarantee is the local one.
    epsilon = event_of(made, 99).epsilon
    for unit in ("client-round", "client-run"):
        printed = line(made, unit, "shuffled-server", "approximate")["epsilon"]
        assert two_valued(epsilon, SIZE, printed) <= 1e-5
