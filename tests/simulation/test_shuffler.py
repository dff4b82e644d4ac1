"""The simulated shuffler loses and adds nothing, and its order reveals nothing about senders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
from fedldp.core.randomness import SERVER, Stream
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import Broadcast, Reason, Refusal, Report, RoundRequest, Shuffled
from fedldp.simulation.shuffler import Counting, agree_delay, draw_schedule
from fedldp.testing.clients import Roles


class Given:
    """A transport that delivers what it was constructed with."""

    def __init__(self, contents: Sequence[Any]) -> None:
        self.contents = contents

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        yield from zip(clients, self.contents, strict=True)


def report(bits: np.ndarray, chunk: int, epsilon: float | None = None, round: int = 1) -> Report:
    payload = np.packbits(bits.astype(np.uint8)).tobytes()
    return Report(round=round, size=len(bits), payload=payload, chunk=chunk, epsilon=epsilon)


def shuffle(
    reports: Sequence[Report], times: Delays | None = None, seed: int = 0
) -> tuple[list[Shuffled], Shuffler]:
    shuffler = Shuffler(Given(reports), times or delays(), len(reports), streams(seed))
    clients = list(range(3, 3 + len(reports)))
    delivered = list(shuffler.exchange(request(reports[0].round), clients))
    took_part, blocks = delivered[: len(clients)], delivered[len(clients) :]
    assert took_part == [(client, None) for client in clients]
    assert {client for client, _ in blocks} == {None}
    found = [content for _, content in blocks]
    assert all(isinstance(content, Shuffled) for content in found)
    return found, shuffler  # type: ignore[return-value]


def streams(seed: int = 0) -> Callable[[int, int, str], Stream]:
    return lambda round, client, purpose: Stream.simulation(
        seed=seed, round=round, client=client, purpose=purpose
    )


def request(round: int = 1) -> RoundRequest:
    broadcast = Broadcast(round=round, weights=np.zeros(1, np.float32))
    return RoundRequest(run="run", phase=0, broadcast=broadcast)


def times_of(shuffler: Shuffler | Counting) -> dict[str, float]:
    found = shuffler.arrivals()
    assert found is not None
    return found


def joined(blocks: Sequence[Shuffled]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions, bits and arrival times of all blocks."""
    return (
        np.concatenate([block.positions for block in blocks]),
        np.concatenate([block.bits for block in blocks]),
        np.concatenate([block.arrival_seconds for block in blocks]),
    )


def random_bits(clients: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (clients, size), np.uint8)


def only(marked: int, clients: int, size: int) -> np.ndarray:
    """Return the bits of clients, one of which sends ones, the others zeros."""
    bits = np.zeros((clients, size), np.uint8)
    bits[marked] = 1
    return bits


SHAPES = [(1, 20, 1), (1, 20, 20), (5, 1, 1), (6, 20, 1), (6, 20, 7), (6, 20, 19), (6, 20, 20),
          (6, 21, 8), (3, 64, 16), (4, 300 * 4096 + 5, 4096),
          (4, 300 * 4097 + 5, 4097)]  # fmt: skip
shapes = pytest.mark.parametrize(("clients", "size", "chunk"), SHAPES)


@shapes
def test_every_message_of_every_client_is_delivered_once(
    clients: int, size: int, chunk: int
) -> None:
    labels = math.ceil(size / chunk)
    for marked in {0, clients // 2, clients - 1}:
        blocks, _ = shuffle([report(bits, chunk) for bits in only(marked, clients, size)])
        positions, bits, _ = joined(blocks)
        assert len(positions) == clients * labels
        assert np.bincount(positions, minlength=labels).tolist() == [clients] * labels
        from_marked = positions[bits[:, 0] == 1]
        assert sorted(from_marked.tolist()) == list(range(labels))


@shapes
def test_a_message_contains_the_bits_of_its_position(clients: int, size: int, chunk: int) -> None:
    sent = random_bits(clients, size)
    positions, bits, _ = joined(shuffle([report(row, chunk) for row in sent])[0])
    labels = math.ceil(size / chunk)
    padded = np.zeros((clients, labels * chunk), np.uint8)
    padded[:, :size] = sent
    messages = padded.reshape(clients, labels, chunk)
    assert bits.dtype == np.uint8
    assert bits.shape == (clients * labels, chunk)
    for position in {0, 1, labels // 2, labels - 2, labels - 1} & set(range(labels)):
        expected = sorted(row.tobytes() for row in messages[:, position])
        assert sorted(row.tobytes() for row in bits[positions == position]) == expected
    # All other positions are compared by their sums.
    sums = np.zeros((labels, chunk), np.int64)
    np.add.at(sums, positions, bits)
    np.testing.assert_array_equal(sums, messages.sum(0))


@shapes
def test_blocks_are_in_order_of_arrival_and_within_the_window(
    clients: int, size: int, chunk: int
) -> None:
    blocks, shuffler = shuffle([report(row, chunk) for row in random_bits(clients, size)])
    times = times_of(shuffler)
    for block in blocks:
        assert block.arrival_seconds.dtype == np.float64
        assert block.arrival_seconds.shape == block.positions.shape == (len(block.bits),)
        assert (np.diff(block.arrival_seconds) >= 0).all()
        assert block.arrival_seconds[0] >= times["response"] - 1e-6
        assert block.arrival_seconds[-1] <= times["response"] + times["delay"] + 1e-6
    assert times["first_arrival"] == min(block.arrival_seconds[0] for block in blocks)
    assert times["last_arrival"] == max(block.arrival_seconds[-1] for block in blocks)
    assert 0 <= times["first_wait"] <= times["last_wait"]


# Times


def test_arrivals_are_uniform_over_the_window() -> None:
    blocks, shuffler = shuffle([report(row, 1) for row in random_bits(5, 4000)])
    times, arrivals = times_of(shuffler), joined(blocks)[2]
    response, delay = times["response"], times["delay"]
    assert stats.kstest(arrivals, stats.uniform(response, delay).cdf).pvalue > 1e-6
    assert stats.kstest(arrivals, stats.uniform(response, delay * 0.95).cdf).pvalue < 1e-6


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_without_spread_the_times_are_the_typical_ones() -> None:
    times = delays(spread=0.0, compute_seconds=40.0, communication_seconds=2.0, delay_seconds=7.0)
    assert agree_delay(times, 9, generator(0)) == pytest.approx(7.0)
    schedule = draw_schedule(times, 9, 7.0, generator(0))
    assert schedule.response == pytest.approx(42.0)
    np.testing.assert_allclose(schedule.offsets, 42.0)


def test_the_response_is_that_of_the_slowest_client() -> None:
    times = delays(spread=1.0, delay_seconds=1.0)
    responses = [draw_schedule(times, n, 1.0, generator(1)).response for n in (1, 300)]
    typical = times.compute_seconds + times.communication_seconds
    assert responses[1] > 5 * typical  # the largest of 300 log-normal factors of sigma 1
    schedule = draw_schedule(times, 300, 1.0, generator(1))
    np.testing.assert_allclose(schedule.offsets, schedule.response)


def test_the_agreed_delay_is_the_median_of_the_proposals() -> None:
    # Log-normal proposals of sigma 2 around 10: their median is 10, their mean 10 e^2 = 74, and
    # the logarithm of a sample median of 101 has the standard deviation 2 sqrt(pi/2/101) = 0.25.
    times = delays(spread=2.0, delay_seconds=10.0)
    logs = [math.log(agree_delay(times, 101, generator(s)) / 10) for s in range(400)]
    assert abs(np.mean(logs)) < 6 * 0.25 / 20
    assert 0.7 < np.std(logs) / 0.25 < 1.3


@pytest.mark.parametrize("kind", [Shuffler, Counting])
def test_all_clients_agree_on_one_delay_for_all_rounds(kind: type[Any]) -> None:
    """Who takes part, and when, changes T_S but never T, the median of all clients' proposals."""
    times = delays(spread=1.0)
    agreed = agree_delay(times, 20, streams()(0, SERVER, "delay").generator())
    found = []
    for round, clients in ((1, 5), (2, 5), (7, 20)):
        reports = [report(row, 1, round=round) for row in random_bits(clients, 8)]
        shuffler = kind(Given(reports), times, 20, streams())
        list(shuffler.exchange(request(round), range(clients)))
        found.append(times_of(shuffler))
    assert {one["delay"] for one in found} == {agreed}
    assert len({one["response"] for one in found}) == 3


def test_streams_determine_all_times() -> None:
    reports = [report(row, 1) for row in random_bits(4, 50)]
    first, same, other = (joined(shuffle(reports, seed=seed)[0]) for seed in (0, 0, 1))
    for one, two in zip(first, same, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first[0], other[0])
    later = [report(row, 1, round=2) for row in random_bits(4, 50)]
    assert not np.array_equal(first[0], joined(shuffle(later)[0])[0])


# What the order reveals about the senders


def sender_test(times: Delays, marked: int, seed: int = 0) -> float:
    """Return the p-value for one client's messages arriving like those of the others."""
    reports = [report(bits, 1) for bits in only(marked, 8, 2000)]
    _, bits, arrivals = joined(shuffle(reports, times, seed)[0])
    mine = bits[:, 0] == 1
    return float(stats.ks_2samp(arrivals[mine], arrivals[~mine]).pvalue)


@pytest.mark.parametrize("marked", range(8))
def test_with_right_predictions_arrival_reveals_nothing_about_the_sender(marked: int) -> None:
    assert sender_test(delays(spread=1.0, prediction_error=0.0), marked) > 1e-7


def test_with_wrong_predictions_arrival_reveals_the_sender() -> None:
    times = delays(spread=1.0, prediction_error=0.5)
    assert max(sender_test(times, marked) for marked in range(8)) < 1e-7


def test_neighbouring_messages_of_a_client_do_not_arrive_together() -> None:
    reports = [report(bits, 1) for bits in only(2, 6, 4000)]
    positions, bits, arrivals = joined(shuffle(reports)[0])
    mine = bits[:, 0] == 1
    times = np.empty(4000)
    times[positions[mine]] = arrivals[mine]
    for lag in (1, 2, 10):
        assert stats.spearmanr(times[:-lag], times[lag:]).pvalue > 1e-7
    assert stats.spearmanr(np.arange(4000), times).pvalue > 1e-7


def test_clients_draw_their_delays_independently() -> None:
    found = []
    for marked in (0, 1):
        positions, bits, arrivals = joined(
            shuffle([report(row, 1) for row in only(marked, 4, 3000)])[0]
        )
        mine = bits[:, 0] == 1
        times = np.empty(3000)
        times[positions[mine]] = arrivals[mine]
        found.append(times)
    assert stats.spearmanr(*found).pvalue > 1e-7


# Several budgets


def test_budgets_are_kept_apart() -> None:
    budgets = [2.0, 0.5, 2.0, 0.5, 8.0]
    sent = random_bits(5, 30)
    blocks, _ = shuffle([report(b, 4, e) for b, e in zip(sent, budgets, strict=True)])
    assert {block.epsilon for block in blocks} == set(budgets)
    for epsilon in set(budgets):
        own = [block for block in blocks if block.epsilon == epsilon]
        positions, bits, _ = joined(own)
        rows = sent[[i for i, e in enumerate(budgets) if e == epsilon]]
        assert len(positions) == 8 * len(rows)
        sums = np.zeros((8, 4), np.int64)
        np.add.at(sums, positions, bits)
        np.testing.assert_array_equal(sums.reshape(-1)[:30], rows.sum(0))


def test_a_clients_times_do_not_depend_on_its_budget_group() -> None:
    sent = only(1, 4, 100)
    together = joined(shuffle([report(row, 1) for row in sent])[0])
    apart, _ = shuffle([report(r, 1, e) for r, e in zip(sent, [1.0, 2.0, 1.0, 1.0], strict=True)])
    (mine,) = [block for block in apart if block.epsilon == 2.0]
    marked = together[1][:, 0] == 1
    np.testing.assert_array_equal(together[2][marked], mine.arrival_seconds)
    np.testing.assert_array_equal(together[0][marked], mine.positions)


def exchanged(contents: Sequence[Any]) -> tuple[list[Delivery], Shuffler]:
    """Return everything that a shuffler delivers if clients 0, 1, ... answer with ``contents``."""
    shuffler = Shuffler(Given(contents), delays(), 9, streams())
    return list(shuffler.exchange(request(), range(len(contents)))), shuffler


def test_shuffled_messages_are_not_shuffled_again() -> None:
    (block,), _ = shuffle([report(random_bits(1, 8)[0], 1)])
    with pytest.raises(RunError, match="whole reports"):
        exchanged([block])


@pytest.mark.parametrize("field", [{"client": 1}, {"weight": 3.0}], ids=["name", "weight"])
def test_a_report_that_reveals_its_sender_is_not_passed_on(field: dict[str, Any]) -> None:
    told = replace(report(random_bits(1, 8)[0], 1), **field)
    with pytest.raises(RunError, match="name or reveal their senders"):
        exchanged([report(random_bits(1, 8)[0], 1), told])


def test_refusals_pass_with_their_senders_and_are_not_waited_for() -> None:
    """Every message of the other clients comes out, and each of them counts once as taking part."""
    sent, refusal = random_bits(3, 20), Refusal(1, Reason.OVER_BUDGET)
    first, second, third = (report(row, 1) for row in sent)
    delivered, _ = exchanged([first, refusal, second, third, refusal])
    assert delivered[:5] == [(0, None), (1, refusal), (2, None), (3, None), (4, refusal)]
    positions, bits, _ = joined([content for _, content in delivered[5:]])  # type: ignore[misc]
    sums = np.zeros((20, 1), np.int64)
    np.add.at(sums, positions, bits)
    assert np.bincount(positions).tolist() == [3] * 20
    np.testing.assert_array_equal(sums[:, 0], sent.sum(0))


@pytest.mark.parametrize("refusals", [0, 3])
def test_without_reports_nothing_is_delivered(refusals: int) -> None:
    contents = [Refusal(1, Reason.OVER_BUDGET)] * refusals
    delivered, shuffler = exchanged(contents)
    assert delivered == list(enumerate(contents))
    assert shuffler.arrivals() is None


# The server gets the same result


def server_results(
    epsilons: list[float], chunk: int, ranges: str
) -> tuple[Broadcast, Broadcast, np.ndarray]:
    """Return the next broadcast without and with shuffling, and the plain mean of the reports."""
    single = len(set(epsilons)) == 1
    settings = config(
        num_clients=len(epsilons), epsilon=epsilons[0] if single else epsilons, chunk=chunk,
        ranges=ranges, range_radius=0.3,
    )  # fmt: skip
    roles = Roles(settings, Problem((1, 8, 8), 10, 1437))
    broadcast = roles.broadcast
    size = broadcast.weights.size
    reports, decoded = [], []
    for client, epsilon in enumerate(epsilons):
        mechanism = TwoPoint(epsilon)
        stream = Stream.simulation(seed=0, round=1, client=client, purpose="mechanism")
        payload = mechanism.encode(np.linspace(-1, 1, size), stream)
        reports.append(
            Report(round=1, size=size, payload=payload, chunk=chunk,
                   epsilon=None if single else epsilon)
        )  # fmt: skip
        bits = np.unpackbits(np.frombuffer(payload, np.uint8), count=size)
        decoded.append(mechanism.scale * (2.0 * bits - 1))
    plain, shuffled = (
        roles.server.publish(roles.aggregate(iter(messages))[0])
        for messages in (reports, shuffle(reports)[0])
    )
    assert broadcast.ranges is not None
    return plain, shuffled, broadcast.ranges.restore(np.mean(decoded, axis=0))


@pytest.mark.parametrize("chunk", [1, 7, 649, 650])
@pytest.mark.parametrize("ranges", ["fixed", "adaptive"])
def test_the_server_step_is_the_same_with_and_without_shuffling(chunk: int, ranges: str) -> None:
    plain, shuffled, expected = server_results([1.0] * 9, chunk, ranges)
    assert plain.round == shuffled.round == 2
    assert plain.weights.tobytes() == shuffled.weights.tobytes()
    assert plain.ranges is not None
    assert shuffled.ranges is not None
    assert plain.ranges.radii.tolist() == shuffled.ranges.radii.tolist()
    np.testing.assert_allclose(plain.weights, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("chunk", [1, 100])
def test_the_server_step_is_also_the_same_with_several_budgets(chunk: int) -> None:
    plain, shuffled, expected = server_results([0.5, 4.0, 1.0, 4.0, 0.5, 4.0], chunk, "fixed")
    np.testing.assert_allclose(plain.weights, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(shuffled.weights, expected, rtol=1e-6, atol=1e-7)
