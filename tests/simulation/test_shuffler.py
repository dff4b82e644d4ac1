"""The shuffler: what it counts, when messages arrive, and what it does not pass on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedldp.accounting.accountants import loss_of
from fedldp.accounting.events import SubsetResponse
from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import Delays
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import RunError
from fedldp.core.kinds import HONEST_CATEGORIES
from fedldp.core.randomness import SERVER, Stream
from fedldp.mechanisms.k_closest import KClosest
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import (
    Broadcast,
    Counted,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundRequest,
)
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan
from fedldp.simulation.shuffler import (
    Counting,
    ReportShuffler,
    Schedule,
    agree_delay,
    draw_extremes,
    draw_schedule,
)
from fedldp.testing.clients import Roles


def config(**settings: Any) -> RunConfig:
    known: dict[str, Any] = {
        "dataset": "digits", "model": "logistic", "num_clients": 10, "rounds": 1,
        "learning_rate": 0.1, "epsilon": 1.0,
    }  # fmt: skip
    return find_system("ldp_fl")(**known | settings)


def delays(**changes: Any) -> Delays:
    found = config().composition.channel.delays
    assert found is not None
    return replace(found, **changes)


SIZE = 21


class Given:
    """A transport that delivers what it was constructed with."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        yield from self.deliveries


def stream(round: int, client: int, purpose: str) -> Stream:
    return Stream.simulation(seed=0, round=round, client=client, purpose=purpose)


def request(round: int = 1) -> RoundRequest:
    broadcast = Broadcast(round=round, weights=np.zeros(1, np.float32))
    return RoundRequest(run="run", phase=0, broadcast=broadcast)


def report(bits: np.ndarray, chunk: int, epsilon: float | None = None, round: int = 1) -> Report:
    payload = np.packbits(bits).tobytes()
    return Report(round=round, size=len(bits), payload=payload, chunk=chunk, epsilon=epsilon)


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
    deliveries: Sequence[Delivery], times: Delays
) -> tuple[list[Delivery], dict[str, float] | None]:
    shuffler = Counting(Given(deliveries), times, 9, stream)
    return list(shuffler.exchange(request(), range(len(deliveries)))), shuffler.arrivals()


@pytest.mark.parametrize("columns", [{"client": np.arange(5)}, {"weight": np.ones(5)}])
def test_a_message_that_reveals_its_sender_does_not_pass(columns: dict[str, Any]) -> None:
    sender, block = of_block([report(bits, 4) for bits in random_bits(5)])
    assert isinstance(block, Reports)
    with pytest.raises(RunError, match="name or reveal their senders"):
        exchanged([(sender, replace(block, **columns))], delays(chunk=4))


@pytest.mark.parametrize("chunk", [1, 4, 20, 21])
@pytest.mark.parametrize("budgets", [[None] * 5, [2.0, 0.5, 2.0, 0.5, 8.0]])
def test_the_server_gets_counts_and_times(chunk: int, budgets: list[float | None]) -> None:
    """The same from single reports and from blocks of reports."""
    bits, given = random_bits(5), delays(chunk=chunk)
    reports = [report(row, chunk, budget) for row, budget in zip(bits, budgets, strict=True)]
    counted, times = exchanged(list(enumerate(reports)), given)
    assert counted[:5] == [(client, None) for client in range(5)]
    found = [content for _, content in counted[5:]]
    for each, budget in zip(found, sorted(set(budgets), key=lambda e: e or 0.0), strict=True):
        own = bits[[other == budget for other in budgets]]
        assert isinstance(each, Counted)
        assert (each.epsilon, each.reports) == (budget, len(own))
        assert each.ones.tolist() == own.sum(0).tolist()
        sent = -(-SIZE // chunk)
        assert each.uplink_bits == len(own) * (SIZE + sent * math.ceil(math.log2(sent)))
    latency = stream(1, SERVER, "latency").generator()
    delay = agree_delay(given, 9, stream(0, SERVER, "delay").generator())
    due = draw_schedule(given, 5, delay, latency)
    assert times is not None
    assert (times["delay"], times["response"]) == (due.delay, due.response)
    assert (times["first_wait"], times["last_wait"]) == (due.waits.min(), due.waits.max())
    if budgets[0] is None:
        block, block_times = exchanged([of_block(reports)], given)
        assert block_times == times
        ((sender, nothing), (_, together)) = block
        assert (sender, nothing) == (range(5), None)
        assert isinstance(together, Counted)
        assert together.ones.tolist() == bits.sum(0).tolist()


@pytest.mark.parametrize("chunk", [1, 7, 650])
def test_the_server_step_gives_the_same_weights(chunk: int) -> None:
    roles = Roles(config(chunk=chunk), Problem((1, 8, 8), 10, 1437))
    bits = random_bits(9, 650)
    reports = [report(row, chunk) for row in bits]
    delivery = of_block(reports)
    counted, _ = exchanged([delivery], delays(chunk=chunk))
    incoming: list[list[Any]] = [reports, [delivery[1]], [counted[-1][1]]]
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
    delivered, times = exchanged([(0, refusal), (4, report(random_bits(1)[0], 1))], delays())
    assert delivered[:2] == [(0, refusal), (4, None)]
    assert times is not None
    delivered, times = exchanged([(0, refusal)], delays())
    assert (delivered, times) == ([(0, refusal)], None)


def test_a_report_without_a_sender_is_refused() -> None:
    with pytest.raises(RunError, match="whole reports"):
        exchanged([(None, report(random_bits(1)[0], 1))], delays())


# Times


def test_all_clients_agree_on_one_delay_for_all_rounds() -> None:
    """Who takes part, and when, changes T_S but never T, the median of all clients' proposals."""
    times = delays(spread=1.0)
    agreed = agree_delay(times, 20, stream(0, SERVER, "delay").generator())
    found = []
    for round, clients in ((1, 5), (2, 5), (7, 20)):
        sent = [(n, report(bits, 1, round=round)) for n, bits in enumerate(random_bits(clients))]
        shuffler = Counting(Given(sent), times, 20, stream)
        list(shuffler.exchange(request(round), range(clients)))
        found.append(shuffler.arrivals() or {})
    assert {one["delay"] for one in found} == {agreed}
    assert len({one["response"] for one in found}) == 3


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


def test_only_wrong_predictions_give_each_client_a_window_of_its_own() -> None:
    """Otherwise, as in the test above, arrival reveals nothing about the sender."""
    wrong = draw_schedule(delays(spread=1.0, prediction_error=0.5), 8, 1.0, generator(0))
    assert len(set(wrong.offsets.tolist())) == 8


def test_the_agreed_delay_is_the_median_of_the_proposals() -> None:
    # Log-normal proposals of sigma 2 around 10: their median is 10, their mean 10 e^2 = 74, and
    # the logarithm of a sample median of 101 has the standard deviation 2 sqrt(pi/2/101) = 0.25.
    times = delays(spread=2.0, delay_seconds=10.0)
    logs = [math.log(agree_delay(times, 101, generator(s)) / 10) for s in range(400)]
    assert abs(np.mean(logs)) < 6 * 0.25 / 20
    assert 0.7 < np.std(logs) / 0.25 < 1.3


# Whole reports

PROBLEM = Problem((1, 8, 8), 10, 1437)


def whole(payload: bytes, **changes: Any) -> Report:
    return replace(Report(round=1, size=5, payload=payload, chunk=5), **changes)


def shuffled(*deliveries: Delivery) -> list[Delivery]:
    return list(ReportShuffler(Given(deliveries)).exchange(request(), range(9)))


def test_the_order_follows_from_the_reports_alone() -> None:
    payloads = [bytes(np.random.default_rng(i).integers(0, 3, 4, np.uint8)) for i in range(40)]
    *named, (nobody, content) = shuffled(*[(i, whole(p)) for i, p in enumerate(payloads)])
    assert named == [(client, None) for client in range(40)]
    assert nobody is None
    assert isinstance(content, Reports)
    assert [each.payload for each in content] == sorted(payloads)
    assert content.client is None
    *_, (_, backwards) = shuffled(*[(i, whole(p)) for i, p in enumerate(payloads[::-1])])
    assert isinstance(backwards, Reports)
    np.testing.assert_array_equal(backwards.payloads, content.payloads)


def test_a_second_report_of_a_client_is_dropped() -> None:
    found = shuffled((3, whole(b"b")), (3, whole(b"a")), (4, whole(b"a")))
    assert found[:-1] == [(3, None), (4, None)]
    assert [each.payload for each in found[-1][1]] == [b"a", b"b"]  # type: ignore[union-attr]


def test_refusals_pass_and_without_a_report_nothing_is_delivered() -> None:
    refusal = Refusal(round=1, reason=Reason.OVER_BUDGET)
    assert shuffled((1, refusal)) == [(1, refusal)]
    several = Reports.of([whole(b"y"), whole(b"x")])
    found = shuffled((1, refusal), ([2, 5], several))
    assert found[:-1] == [(1, refusal), (2, None), (5, None)]
    assert [each.payload for each in found[-1][1]] == [b"x", b"y"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (whole(b"ab"), "of different sizes"),
        (whole(b"a", epsilon=1.0), "differ in more than their payloads"),
        (whole(b"a", size=6, chunk=6), "differ in more than their payloads"),
        (whole(b"a", chunk=2), "reports of several messages"),
        (whole(b"a", client=4), "name or reveal their senders"),
        (whole(b"a", weight=2.0), "name or reveal their senders"),
    ],
)
def test_values_that_distinguish_clients_do_not_pass(other: Report, line: str) -> None:
    with pytest.raises(RunError, match=line):
        shuffled((1, whole(b"a")), (2, other))


def made(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "system": "composed", "dataset": "digits", "model": "linear", "num_clients": 12,
        "rounds": 2, "learning_rate": 0.1, "mechanism": "k_closest", "bound": "norm",
        "epsilon": 4.0, "channel": "shuffle", "participation": "all",
    }  # fmt: skip
    return find_system("composed").model_validate(settings | changes)


@pytest.mark.parametrize("mechanism", ["k_closest", "nearest_direction"])
def test_a_run_learns_the_same_as_from_named_reports(mechanism: str) -> None:
    config = made(mechanism=mechanism)
    through = simulate(config)
    named = simulate(config.changed(channel="named"))
    assert [each.uplink_bits_per_client for each in through.rounds] == [
        each.uplink_bits_per_client for each in named.rounds
    ]
    for name, weights in through.weights.items():
        np.testing.assert_allclose(weights, named.weights[name], rtol=1e-4, atol=1e-6)
    lines = {(g.unit, g.adversary): g.epsilon for g in through.privacy.guarantees}
    without = {(g.unit, g.adversary): g.epsilon for g in named.privacy.guarantees}
    assert {key: lines[key] for key in without} == without
    assert lines["client-round", "shuffled-server"] <= lines["client-round", "server"]
    assert through.privacy.warnings == named.privacy.warnings


def test_a_client_is_charged_for_the_weights_of_its_category() -> None:
    event = made().algorithm(PROBLEM).encoder(0).event()
    mechanism = KClosest(4.0, 1.0)
    size = made().layout(PROBLEM).size
    assert event == mechanism.category(size)
    assert isinstance(event, SubsetResponse)
    window = mechanism.choice(size).window
    assert (event.high, event.low) == (window.high, window.low)
    assert (event.closest, event.categories) == (window.width, window.cells)
    assert loss_of(event) == loss_of(mechanism.event(size))
    assert made(channel="named").algorithm(PROBLEM).encoder(0).event() == mechanism.event(size)


def test_with_single_participation_a_round_hides_a_client_among_its_own_cohort() -> None:
    def of(**changes: Any) -> Guarantee:
        found = plan(made(num_clients=60, **changes), PROBLEM).privacy.guarantees
        return next(g for g in found if (g.unit, g.adversary) == ("client-run", "shuffled-server"))

    once = of(participation="once", rounds=3, untrusted_clients=2)
    (honest,) = HONEST_CATEGORIES.among(once.assumptions)
    assert honest.values["reports"] == 18
    assert once.epsilon == pytest.approx(of(rounds=1, untrusted_clients=42).epsilon)
    assert of(rounds=1).epsilon < once.epsilon < of(rounds=3).epsilon


@pytest.mark.slow
def test_a_budget_is_calibrated_against_the_server_behind_the_shuffler() -> None:
    target = {"unit": "client-run", "epsilon": 1.0, "adversary": "shuffled-server", "delta": 1e-5}
    calibrated = plan(
        made(mechanism="nearest_direction", num_clients=200, epsilon=1.0, target=target), PROBLEM
    )
    found = {(g.unit, g.adversary): g.epsilon for g in calibrated.privacy.guarantees}
    assert 0.9 < found["client-run", "shuffled-server"] <= 1.0
    assert found["client-run", "server"] > 1.5


@pytest.mark.parametrize("name", ["k_closest", "nearest_direction"])
def test_the_seed_of_a_report_does_not_identify_its_sender(name: str) -> None:
    mechanism = made(mechanism=name).algorithm(PROBLEM).release(0).mechanism
    keys = SecretKeys(bytes(32), "run")
    values = np.zeros(made().layout(PROBLEM).size)
    seeds = {mechanism.encode(values, keys.fresh(1, 0, "mechanism"))[:16] for _ in range(4)}
    assert len(seeds) == 4
