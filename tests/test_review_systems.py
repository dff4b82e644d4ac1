"""Adversarial tests of events, statements and systems: no epsilon is too small, no report is free.

Each states one property. The oracles are slow and exact, and share no code with what they test.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
import torch

from fedldp.accounting.budget import cost
from fedldp.accounting.events import (
    DrawnOnce,
    Event,
    GaussianReport,
    InClear,
    PerRecord,
    PureCoordinates,
    PureReport,
    SampledClientsGaussian,
    SampledGaussian,
    TwoValuedBits,
    from_record,
    to_record,
)
from fedldp.accounting.gaussian import compose_mu, gaussian_epsilon
from fedldp.accounting.guarantees import DISCRETE, IDEALISED, ONCE
from fedldp.accounting.releases import DOWNLINK, Releases
from fedldp.accounting.sampled import SECRET_RECORDS
from fedldp.accounting.statement import statement
from fedldp.accounting.subsampled import SampledRelease, sampled_epsilon
from fedldp.data import Dataset, Examples
from fedldp.errors import ConfigError, PrivacyError, RunError
from fedldp.mechanisms.cldp import table
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.randomised_bits import RandomisedBits, Variant
from fedldp.mechanisms.unary import Unary
from fedldp.mechanisms.unary import Variant as Encoding
from fedldp.simulation.engine import simulate
from fedldp.systems import Exchange, Problem, System, SystemConfig
from fedldp.systems.personalized import PersonalizedConfig
from fedldp.systems.personalized_sound import PersonalizedSoundConfig
from fedldp.systems.secure_aggregation import SecureAggregationConfig
from fedldp.wire import Broadcast, Incoming

BITS = TwoValuedBits(epsilon=1.0, coordinates=10)
CLEAR = InClear(what="weights")
NOISE = GaussianReport(mu=1.0, rho=0.5)
STEPS = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.01, steps=10)

Line = dict[str, Any]


def lines(releases: Releases, delta: float = 1e-5) -> list[Line]:
    found = statement(releases, claim=None, shuffler=None, delta=delta)["guarantees"]
    assert isinstance(found, list)
    return found


def of_unit(found: list[Line], unit: str, adversary: str = "server") -> list[Line]:
    return [line for line in found if (line["unit"], line["adversary"]) == (unit, adversary)]


# Statements of clients whose events differ


@pytest.mark.parametrize("other", [CLEAR, NOISE, PureReport(epsilon=9.0)])
def test_no_epsilon_of_a_weight_is_printed_that_does_not_hold_for_every_client(
    other: Event,
) -> None:
    assert of_unit(lines({1: {0: BITS, 1: BITS}}), "weight")
    assert not of_unit(lines({1: {0: BITS, 1: other}}), "weight")
    assert not of_unit(lines({1: {0: BITS}, 2: {0: other}}), "weight")


def test_a_line_for_all_clients_counts_discrete_noise_where_one_of_them_adds_it() -> None:
    (alone,) = of_unit(lines({1: {1: NOISE}}), "client-run")
    for pure in (3.0, 4.6):  # the noise costs 4.38
        mixed = of_unit(lines({1: {0: PureReport(epsilon=pure), 1: NOISE}}), "client-run")
        assert mixed[0]["epsilon"] == pytest.approx(max(alone["epsilon"], pure), rel=1e-5)
        assert DISCRETE in mixed[0]["assumptions"]


def test_a_line_for_all_clients_rests_on_what_any_of_them_needs() -> None:
    ideal = PureReport(epsilon=3.0, idealised=True)
    worst = PureReport(epsilon=8.0)
    for line in of_unit(lines({1: {0: ideal, 1: worst}}), "client-run"):
        assert line["epsilon"] > 7
        assert IDEALISED in line["assumptions"]
    for line in of_unit(lines({1: {0: DrawnOnce(drawn=BITS), 1: worst, 2: BITS}}), "client-run"):
        assert ONCE in line["assumptions"]
    record = PerRecord(record=STEPS, client=CLEAR)
    (line,) = of_unit(lines({1: {0: record, 1: BITS}}), "record")
    assert {SECRET_RECORDS, IDEALISED} <= set(line["assumptions"])


def test_idealised_pure_noise_stays_idealised_beside_gaussian_noise() -> None:
    ideal = PureReport(epsilon=3.0, idealised=True)
    for line in of_unit(lines({1: {0: ideal}, 2: {0: NOISE}}), "client-run"):
        assert IDEALISED in line["assumptions"]


def test_a_client_in_clear_leaves_no_epsilon_to_anyone_at_any_delta() -> None:
    for delta in (0.0, 1e-5):
        for events in ((CLEAR, BITS), (DrawnOnce(drawn=CLEAR), BITS), (CLEAR, NOISE)):
            by_client = dict(enumerate(events))
            for unit in ("client-round", "client-run"):
                assert {x["kind"] for x in of_unit(lines({1: by_client}, delta), unit)} == {"none"}


def test_gaussian_noise_among_pure_reports_has_no_line_at_delta_zero() -> None:
    for releases in ({1: {0: BITS, 1: NOISE}}, {1: {0: BITS}, 2: {0: NOISE}}):
        assert {x["kind"] for x in of_unit(lines(releases, 0.0), "client-run")} == {"none"}


# Drawn once


def test_what_is_drawn_once_and_what_is_drawn_anew_both_count() -> None:
    once = DrawnOnce(drawn=PureReport(epsilon=2.0))
    other = DrawnOnce(drawn=PureReport(epsilon=3.0))
    fresh = PureReport(epsilon=2.0)
    releases = {1: {0: once}, 2: {0: once}, 3: {0: other}, 4: {0: fresh}, 5: {0: fresh}}
    pure, _ = of_unit(lines(releases), "client-run")
    assert pure["epsilon"] == 2.0 + 3.0 + 2 * 2.0
    # The client is there in five rounds, and the line must not rest on fewer.
    assert "the client takes part in at most 5 rounds" in pure["assumptions"]


def test_a_budget_charges_what_is_drawn_once_each_time_it_is_told_of_it() -> None:
    once = DrawnOnce(drawn=PureReport(epsilon=2.0))
    assert cost(once, "pure") == cost(PureReport(epsilon=2.0), "pure") == 2.0


@pytest.mark.parametrize(
    "event",
    [
        DrawnOnce(drawn=DrawnOnce(drawn=BITS)),
        DrawnOnce(drawn=PerRecord(record=BITS, client=CLEAR)),
        DrawnOnce(drawn=STEPS),
        PerRecord(record=BITS, client=STEPS),
        PerRecord(record=BITS, client=PerRecord(record=BITS, client=BITS)),
        SampledClientsGaussian(noise_multiplier=1.0, sample_size=5, population=10),
    ],
)
def test_a_nesting_that_means_nothing_raises_and_is_never_free(event: Event) -> None:
    with pytest.raises(ConfigError):
        lines({1: {0: event}})


def test_a_budget_looks_into_events_for_kinds_that_it_does_not_know() -> None:
    class Weaker(PureReport):
        """Epsilon means something else here."""

    hidden = Weaker(epsilon=1e-3)
    for event in (hidden, DrawnOnce(drawn=hidden), PerRecord(record=BITS, client=hidden)):
        with pytest.raises(PrivacyError, match="no budget knows it"):
            cost(event, "pure")


def test_a_ledgers_record_gives_every_event_back() -> None:
    coordinates = PureCoordinates(groups=((0.1, 3), (2.0, 1)))
    events = (DrawnOnce(drawn=coordinates), PerRecord(record=STEPS, client=DrawnOnce(drawn=CLEAR)))
    for event in events:
        assert from_record(json.loads(json.dumps(to_record(event)))) == event


def test_the_downlinks_line_says_nothing_for_the_server() -> None:
    downlink = SampledClientsGaussian(noise_multiplier=2.0, sample_size=5, population=10)
    found = lines({r: {0: CLEAR, DOWNLINK: downlink} for r in (1, 2)})
    assert {x["kind"] for x in found if x["adversary"] == "server"} == {"none"}
    (line,) = of_unit(found, "client-run", "downlink")
    assert line["epsilon"] > 0


# Sampled sums: one release in closed form, in forty digits


def excess(release: SampledRelease, epsilon: float) -> Any:
    """Return the largest P(A) - e^epsilon Q(A), over half-lines: P/Q rises along the line."""
    s, q = mpmath.mpf(release.noise_multiplier), mpmath.mpf(release.sampling_rate)
    rest, alpha = (0 if release.sample == "poisson" else -1), mpmath.e ** mpmath.mpf(epsilon)

    def gap(y: Any) -> Any:
        p = (1 - q) * mpmath.npdf(y, rest, s) + q * mpmath.npdf(y, 1, s)
        return p - alpha * ((1 - q) * mpmath.npdf(y, rest, s) + q * mpmath.npdf(y, -1, s))

    low, high = -60 * s - 5, 60 * s + 5
    if gap(high) <= 0:
        return mpmath.mpf(0)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (low, middle) if gap(middle) > 0 else (middle, high)

    def above(mean: int) -> Any:
        return mpmath.ncdf((mean - high) / s)

    return (1 - q) * (1 - alpha) * above(rest) + q * (above(1) - alpha * above(-1))


@pytest.mark.parametrize("sample", ["poisson", "fixed-size"])
@pytest.mark.parametrize("noise", [0.051, 0.3, 1.0, 20.0, 1e3])
@pytest.mark.parametrize("rate", [1e-4, 0.03, 0.9, 1.0])
def test_a_sampled_release_costs_what_is_printed(
    sample: Literal["poisson", "fixed-size"], noise: float, rate: float
) -> None:
    release = SampledRelease(noise_multiplier=noise, sampling_rate=rate, sample=sample)
    with mpmath.workdps(40):
        for delta in (1e-12, 1e-5, 0.1):
            reached = excess(release, sampled_epsilon({release: 1}, delta))
            assert reached <= delta * (1 + mpmath.mpf(10) ** -9)


# Mechanisms: the worst ratio of probabilities, by exact fractions


def exceeds(ratio: Fraction, epsilon: float) -> bool:
    with mpmath.workdps(60):
        return bool(mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator) > epsilon)


@pytest.mark.parametrize("end", [1, 2, 3, 9, 20])
@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.1, 1.0, 5.0, 40.0, 80.0, 300.0, 1e3])
def test_condensed_privacy_costs_what_all_pairs_of_inputs_show(alpha: float, end: int) -> None:
    law = table(alpha, end)
    sums = law.up_to(np.arange(2 * end + 1)).tolist()
    weights = [law.peak] + [b - a for a, b in pairwise(sums)]
    numbers = range(-end, end + 1)
    totals = {v: sum(weights[abs(v - u)] for u in numbers) for v in numbers}
    worst = Fraction(1)
    for report in numbers:
        seen = [Fraction(weights[abs(v - report)], totals[v]) for v in numbers]
        worst = max(worst, max(seen) / min(seen))
    assert not exceeds(worst, law.epsilon)
    assert exceeds(worst, law.epsilon * (1 - 2e-9)), "the statement's lower bound is too large"
    with mpmath.workdps(60):  # the condensed guarantee, of neighbouring numbers
        neighbours = max(
            Fraction(weights[abs(v - u)] * totals[v + 1], weights[abs(v + 1 - u)] * totals[v])
            for u in numbers
            for v in numbers[:-1]
        )
        assert not exceeds(neighbours, alpha)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 10.0, 31.99, 32.0])
@pytest.mark.parametrize("categories", [2, 3, 10, 65_536])
def test_categories_cost_at_most_their_epsilon(epsilon: float, categories: int) -> None:
    window = KRR(epsilon, categories).window
    assert window.low >= 1
    assert window.total < 2**64
    assert not exceeds(Fraction(window.high, window.low), epsilon)
    variants: tuple[Encoding, ...] = ("symmetric", "optimised")
    for variant in variants:
        law = Unary(epsilon, categories, variant).law
        one, zero = Fraction(law.if_one, 2**64), Fraction(law.if_zero, 2**64)
        assert not exceeds(one * (1 - zero) / (zero * (1 - one)), epsilon)


@pytest.mark.parametrize("variant", ["symmetric", "theorem_1", "theorem_2"])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("size", [1, 2, 3, 501])
def test_randomised_bits_cost_at_least_the_sum_of_their_worst_ratios(
    variant: Variant, epsilon: float, size: int
) -> None:
    for alpha in (1e-3, 1.0, 10.0, 1e6):
        mechanism = RandomisedBits(epsilon, variant, alpha)
        try:
            laws = mechanism.laws(size)
        except ConfigError:
            continue  # a bit that tells nothing is refused
        event = mechanism.event(size)
        exact = mpmath.mpf(0)
        with mpmath.workdps(60):
            for place in range(size):
                law = laws[place % len(laws)]
                ones = Fraction(law.if_one, law.if_zero)
                zeros = Fraction(2**64 - law.if_one, 2**64 - law.if_zero)
                worst = max(ones, 1 / ones, zeros, 1 / zeros)
                exact += mpmath.log(mpmath.mpf(worst.numerator) / worst.denominator)
            printed = sum(mpmath.mpf(each) * count for each, count in event.groups)
            assert exact <= printed <= exact * (1 + 1e-15)
            assert sum(count for _, count in event.groups) == size
            if variant == "symmetric":
                assert printed <= mpmath.mpf(epsilon)


# Systems

OWN = Problem((4,), 2, 40)


def own_data(labels: Sequence[int]) -> Dataset:
    generator = np.random.default_rng(0)

    def some(answers: Sequence[int]) -> Examples:
        features = generator.random((len(answers), 4), dtype=np.float32)
        return Examples(features, np.array(answers, np.int64))

    return Dataset("own", some(labels), some([0, 1, 0]), 2)


def settings(**changes: Any) -> dict[str, Any]:
    small = {"dataset": "own.npz", "num_clients": 4, "rounds": 5, "model": "logistic", "clip": 1.0}
    return {**small, **changes}


@pytest.mark.parametrize("probability", [1.0, 0.01])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (PersonalizedSoundConfig, {"report": "gaussian"}),
        (PersonalizedSoundConfig, {"report": "sign"}),
        (PersonalizedConfig, {"perturbation": "sign"}),
    ],
)
def test_a_client_reports_however_few_examples_it_has(
    kind: type[SystemConfig], changes: dict[str, Any], probability: float
) -> None:
    """A refusal would tell the number, which no event charges for."""
    shares = {"partition": "power-law:3", "sampling_probability": probability, "epsilon": 1.0}
    made = kind(**settings(**shares, **changes))
    result = simulate(made, dataset=own_data([0, 1] * 11))
    assert [record.clients for record in result.rounds] == [4] * 5


def sound(**changes: Any) -> PersonalizedSoundConfig:
    budgets = {"epsilon": [1.0, 2.0, 4.0, 8.0], "client_delta": [1e-5, 1e-3, 1e-2, 1e-6]}
    return PersonalizedSoundConfig(**settings(**{**budgets, **changes}))


@pytest.mark.parametrize("changes", [{}, {"selects_first": True}, {"clients_per_round": 2}])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_that_a_client_sends_keeps_to_its_own_epsilon_at_its_own_delta(
    changes: dict[str, Any], seed: int
) -> None:
    made = sound(seed=seed, rounds=12, **changes)
    for client in range(4):
        event = made.release(client, 10, OWN)
        assert isinstance(event, GaussianReport)
        if made.selects_first:
            there = [client in (made.participants(r) or []) for r in range(1, 13)]
            assert sum(there) == made.rounds_of(client)
        epsilon, delta = made.budget(client)
        composed = compose_mu([event.mu] * max(1, made.rounds_of(client)))
        assert gaussian_epsilon(composed, delta) <= epsilon
        # Two reports of opposite directions, before noise: as far apart as the clip lets them be.
        ends = np.full(10, 1e3)
        mechanism = made.mechanism(client)
        apart = np.linalg.norm(mechanism.bound(ends) - mechanism.bound(-ends))
        assert apart / made.sigma(client) <= event.mu <= 2 * 1.0 / made.sigma(client) * (1 + 1e-9)


def test_who_is_selected_follows_from_public_settings_alone() -> None:
    made = sound(selects_first=True)
    same = sound(selects_first=True, partition="power-law:3", learning_rate=0.1, report="sign")
    assert made.selected == same.selected
    # A changed copy selects by its own settings, not by what the first one found.
    fewer = made.changed(rounds=2)
    assert isinstance(fewer, PersonalizedSoundConfig)
    assert [fewer.rounds_of(c) for c in range(4)] == [
        sum(c in chosen for chosen in made.selected[:2]) for c in range(4)
    ]


class Curious(SecureAggregationConfig):
    """A server that asks a client who does not take part, and so was not charged."""

    def build(self, problem: Problem, *, device: torch.device) -> System:
        honest = super().build(problem, device=device)

        def ask(exchange: Exchange, broadcast: Broadcast, clients: Sequence[int]) -> Incoming:
            (other, *_) = set(range(self.num_clients)) - set(clients)
            return exchange(broadcast, [*clients, other])

        return replace(honest, gather=ask)


def test_only_clients_that_were_charged_can_be_asked() -> None:
    made = Curious(**settings(clients_per_round=3, learning_rate=0.1))
    with pytest.raises(RunError, match=r"round 1: a client was asked that does not take part"):
        simulate(made, dataset=own_data([0, 1] * 20))


def test_a_sum_in_clear_has_no_epsilon_however_many_clients_hide_in_it() -> None:
    made = SecureAggregationConfig(**settings(learning_rate=0.1))
    found = simulate(made, dataset=own_data([0, 1] * 20)).privacy["guarantees"]
    assert {line["kind"] for line in found} == {"none"}
