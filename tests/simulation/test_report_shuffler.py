"""A shuffler of whole reports delivers what came in, in an order that reveals nothing about
senders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedldp.accounting.accountants import loss_of
from fedldp.accounting.events import SubsetResponse
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import RunError
from fedldp.mechanisms.k_closest import KClosest
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.server_loop import Delivery
from fedldp.protocol.wire import Broadcast, Reason, Refusal, Report, Reports, RoundRequest
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan
from fedldp.simulation.shuffler import ReportShuffler

ASKED = RoundRequest(
    run="run", phase=0, broadcast=Broadcast(round=1, weights=np.zeros(1, np.float32))
)
PROBLEM = Problem((1, 8, 8), 10, 1437)


class Given:
    """A transport that delivers what it was constructed with."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        yield from self.deliveries


def report(payload: bytes, **changes: Any) -> Report:
    return replace(Report(round=1, size=5, payload=payload, chunk=5), **changes)


def shuffled(*deliveries: Delivery) -> list[Delivery]:
    return list(ReportShuffler(Given(deliveries)).exchange(ASKED, range(9)))


def test_the_order_follows_from_the_reports_alone() -> None:
    payloads = [bytes(np.random.default_rng(i).integers(0, 3, 4, np.uint8)) for i in range(40)]
    *named, (nobody, content) = shuffled(*[(i, report(p)) for i, p in enumerate(payloads)])
    assert named == [(client, None) for client in range(40)]
    assert nobody is None
    assert isinstance(content, Reports)
    assert [each.payload for each in content] == sorted(payloads)
    assert content.client is None
    *_, (_, backwards) = shuffled(*[(i, report(p)) for i, p in enumerate(payloads[::-1])])
    assert isinstance(backwards, Reports)
    np.testing.assert_array_equal(backwards.payloads, content.payloads)


def test_a_second_report_of_a_client_is_dropped() -> None:
    found = shuffled((3, report(b"b")), (3, report(b"a")), (4, report(b"a")))
    assert found[:-1] == [(3, None), (4, None)]
    assert [each.payload for each in found[-1][1]] == [b"a", b"b"]  # type: ignore[union-attr]


def test_refusals_pass_and_without_a_report_nothing_is_delivered() -> None:
    refusal = Refusal(round=1, reason=Reason.OVER_BUDGET)
    assert shuffled((1, refusal)) == [(1, refusal)]
    several = Reports.of([report(b"y"), report(b"x")])
    found = shuffled((1, refusal), ([2, 5], several))
    assert found[:-1] == [(1, refusal), (2, None), (5, None)]
    assert [each.payload for each in found[-1][1]] == [b"x", b"y"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (report(b"ab"), "reports of 1 and 2 bytes"),
        (report(b"a", epsilon=1.0), "differ in more than their payloads"),
        (report(b"a", size=6, chunk=6), "differ in more than their payloads"),
        (report(b"a", chunk=2), "a report of several messages"),
        (report(b"a", client=4), "name or reveal their senders"),
        (report(b"a", weight=2.0), "name or reveal their senders"),
    ],
)
def test_values_that_distinguish_clients_do_not_pass(other: Report, line: str) -> None:
    with pytest.raises(RunError, match=line):
        shuffled((1, report(b"a")), (2, other))


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
    lines = {(g["unit"], g["adversary"]): g["epsilon"] for g in through.privacy["guarantees"]}
    without = {(g["unit"], g["adversary"]): g["epsilon"] for g in named.privacy["guarantees"]}
    assert {key: lines[key] for key in without} == without
    assert lines["client-round", "shuffled-server"] <= lines["client-round", "server"]
    assert through.privacy["warnings"] == named.privacy["warnings"]


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
    def of(**changes: Any) -> dict[str, Any]:
        found = plan(made(num_clients=60, **changes), PROBLEM).privacy["guarantees"]
        return next(
            g for g in found if (g["unit"], g["adversary"]) == ("client-run", "shuffled-server")
        )

    once = of(participation="once", rounds=3, untrusted_clients=2)
    assert "18 honest reports in every round" in " ".join(once["assumptions"])
    assert once["epsilon"] == pytest.approx(of(rounds=1, untrusted_clients=42)["epsilon"])
    assert of(rounds=1)["epsilon"] < once["epsilon"] < of(rounds=3)["epsilon"]


def test_a_budget_is_calibrated_against_the_server_behind_the_shuffler() -> None:
    target = {"unit": "client-run", "epsilon": 1.0, "adversary": "shuffled-server", "delta": 1e-5}
    calibrated = plan(
        made(mechanism="nearest_direction", num_clients=200, epsilon=1.0, target=target), PROBLEM
    )
    found = {(g["unit"], g["adversary"]): g["epsilon"] for g in calibrated.privacy["guarantees"]}
    assert 0.9 < found["client-run", "shuffled-server"] <= 1.0
    assert found["client-run", "server"] > 1.5


@pytest.mark.parametrize("name", ["k_closest", "nearest_direction"])
def test_the_seed_of_a_report_does_not_identify_its_sender(name: str) -> None:
    mechanism = made(mechanism=name).algorithm(PROBLEM).release(0).mechanism
    keys = SecretKeys(bytes(32), "run")
    values = np.zeros(made().layout(PROBLEM).size)
    seeds = {mechanism.encode(values, keys.fresh(1, 0, "mechanism"))[:16] for _ in range(4)}
    assert len(seeds) == 4
