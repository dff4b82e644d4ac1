"""The counting shuffler, compared with the one that orders every message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sorting_shuffler import Shuffler
from times import config, delays

from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import Delays
from fedldp.core.errors import RunError
from fedldp.core.randomness import Stream
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import (
    Broadcast,
    Counted,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundRequest,
    Shuffled,
)
from fedldp.simulation.shuffler import Counting, Schedule, draw_extremes
from fedldp.testing.clients import Roles

SIZE = 21


class Given:
    """A transport that delivers what it was constructed with."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        yield from self.deliveries


def stream(round: int, client: int, purpose: str) -> Stream:
    return Stream.simulation(seed=0, round=round, client=client, purpose=purpose)


REQUEST = RoundRequest(
    run="run", phase=0, broadcast=Broadcast(round=1, weights=np.zeros(1, np.float32))
)


def report(bits: np.ndarray, chunk: int, epsilon: float | None = None) -> Report:
    payload = np.packbits(bits).tobytes()
    return Report(round=1, size=len(bits), payload=payload, chunk=chunk, epsilon=epsilon)


def random_bits(clients: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (clients, size), np.uint8)


def of_block(reports: Sequence[Report]) -> Delivery:
    """Return the delivery of reports with common fields as one block."""
    first = reports[0]
    payloads = np.stack([np.frombuffer(each.payload, np.uint8) for each in reports])
    together = Reports(
        round=1, size=first.size, payloads=payloads, chunk=first.chunk, epsilon=first.epsilon
    )
    return range(len(reports)), together


def exchanged(
    kind: type[Any], deliveries: Sequence[Delivery], times: Delays
) -> tuple[list[Delivery], dict[str, float] | None]:
    shuffler = kind(Given(deliveries), times, 9, stream)
    return list(shuffler.exchange(REQUEST, range(len(deliveries)))), shuffler.arrivals()


@pytest.mark.parametrize("columns", [{"client": np.arange(5)}, {"weight": np.ones(5)}])
@pytest.mark.parametrize("kind", [Shuffler, Counting])
def test_a_message_that_reveals_its_sender_does_not_pass(
    kind: type[Any], columns: dict[str, Any]
) -> None:
    sender, block = of_block([report(bits, 4) for bits in random_bits(5)])
    assert isinstance(block, Reports)
    with pytest.raises(RunError, match="name or reveal their senders"):
        exchanged(kind, [(sender, replace(block, **columns))], delays(chunk=4))


@pytest.mark.parametrize("chunk", [1, 4, 20, 21])
@pytest.mark.parametrize("budgets", [[None] * 5, [2.0, 0.5, 2.0, 0.5, 8.0]])
def test_the_server_gets_the_same_information(chunk: int, budgets: list[float | None]) -> None:
    """Counts, uplink, T, T_S and T_W, from single reports and from blocks of reports."""
    reports = [
        report(bits, chunk, budget) for bits, budget in zip(random_bits(5), budgets, strict=True)
    ]
    ordered, times = exchanged(Shuffler, list(enumerate(reports)), delays(chunk=chunk))
    counted, other_times = exchanged(Counting, list(enumerate(reports)), delays(chunk=chunk))
    ones: dict[float | None, np.ndarray] = {}
    uplink: dict[float | None, int] = {}
    for _, block in ordered[5:]:
        assert isinstance(block, Shuffled)
        sums = np.zeros((-(-SIZE // chunk), chunk), np.int64)
        np.add.at(sums, block.positions, block.bits)
        ones[block.epsilon] = ones.get(block.epsilon, 0) + sums.reshape(-1)[:SIZE]
        uplink[block.epsilon] = uplink.get(block.epsilon, 0) + block.uplink_bits
    assert counted[:5] == ordered[:5] == [(client, None) for client in range(5)]
    found = [content for _, content in counted[5:]]
    assert [each.epsilon for each in found] == sorted(ones, key=lambda e: e or 0.0)  # type: ignore[union-attr]
    for each in found:
        assert isinstance(each, Counted)
        assert each.ones.tolist() == ones[each.epsilon].tolist()
        assert each.reports == budgets.count(each.epsilon)
        assert each.uplink_bits == uplink[each.epsilon]
    assert times is not None
    assert other_times is not None
    for name in ("delay", "response", "first_wait", "last_wait"):
        assert times[name] == other_times[name]
    if budgets[0] is None:
        block, block_times = exchanged(Counting, [of_block(reports)], delays(chunk=chunk))
        assert block_times == other_times
        ((sender, nothing), (_, together)) = block
        assert (sender, nothing) == (range(5), None)
        assert isinstance(together, Counted)
        assert together.ones.tolist() == found[0].ones.tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("chunk", [1, 7, 650])
def test_the_server_step_gives_the_same_weights(chunk: int) -> None:
    roles = Roles(config(chunk=chunk), Problem((1, 8, 8), 10, 1437))
    reports = [report(bits, chunk) for bits in random_bits(9, 650)]
    (delivery,) = [of_block(reports)]
    times = delays(chunk=chunk)
    incoming: list[list[Any]] = [list(reports), [delivery[1]]]
    for kind in (Shuffler, Counting):
        delivered, _ = exchanged(kind, [delivery], times)
        incoming.append([content for _, content in delivered if content is not None])
    weights = [roles.aggregate(iter(each))[0].weights.tobytes() for each in incoming]
    assert len(set(weights)) == 1


@pytest.mark.parametrize("messages", [1, 2, 50])
@pytest.mark.parametrize("offsets", [[3.0] * 4, [3.0, 3.5, 4.0, 9.0]])
def test_first_and_last_arrivals_have_the_right_distribution(
    messages: int, offsets: list[float]
) -> None:
    windows = np.array(offsets)
    schedule = Schedule(delay=2.0, response=3.0, waits=np.zeros(4), offsets=windows)
    generator = np.random.default_rng(1)
    found = np.array([draw_extremes(schedule, messages, generator) for _ in range(4000)])
    drawn = windows[:, None] + 2.0 * generator.random((4000, 4, messages))
    expected = np.stack([drawn.min((1, 2)), drawn.max((1, 2))], 1)
    for column in (0, 1):
        assert stats.ks_2samp(found[:, column], expected[:, column]).pvalue > 1e-6
    gaps = found[:, 1] - found[:, 0], expected[:, 1] - expected[:, 0]
    assert stats.ks_2samp(*gaps).pvalue > 1e-6


def test_with_very_many_messages_first_and_last_arrivals_are_the_ends_of_the_window() -> None:
    schedule = Schedule(delay=2.0, response=3.0, waits=np.zeros(9), offsets=np.full(9, 3.0))
    first, last = draw_extremes(schedule, 10**12, np.random.default_rng(0))
    assert 3 < first < 3 + 1e-9
    assert 5 - 1e-9 < last < 5


def test_refusals_pass_with_their_senders() -> None:
    refusal = Refusal(1, Reason.OVER_BUDGET)
    delivered, times = exchanged(
        Counting, [(0, refusal), (4, report(random_bits(1)[0], 1))], delays()
    )
    assert delivered[:2] == [(0, refusal), (4, None)]
    assert times is not None
    delivered, times = exchanged(Counting, [(0, refusal)], delays())
    assert (delivered, times) == ([(0, refusal)], None)


@pytest.mark.parametrize("field", [{"client": 1}, {"weight": 3.0}], ids=["name", "weight"])
def test_a_report_that_reveals_its_sender_is_not_passed_on(field: dict[str, Any]) -> None:
    told = replace(report(random_bits(1)[0], 1), **field)
    with pytest.raises(RunError, match="name or reveal their senders"):
        exchanged(Counting, [(1, told)], delays())


def test_a_report_without_a_sender_is_refused() -> None:
    with pytest.raises(RunError, match="whole reports"):
        exchanged(Counting, [(None, report(random_bits(1)[0], 1))], delays())
