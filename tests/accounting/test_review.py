"""Checks of the independent privacy review: each fails only if something printed is not true.

Upper bounds are compared with slow second computations, from the definitions; lower bounds with
valid upper ones; and what the shuffler puts out with what its lines assume.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from clients import client_of
from scipy.signal import fftconvolve
from scipy.stats import binom

import fedldp
from fedldp.accounting.compose import two_valued_epsilon
from fedldp.accounting.gaussian import gaussian_epsilon
from fedldp.accounting.losses_grid import compose_upper
from fedldp.accounting.shuffle import (
    clone_losses,
    clones_epsilon,
    exponent_for,
    shuffled_composed_lower,
    shuffled_composed_upper,
)
from fedldp.accounting.shuffle_one import shuffled_one_epsilon
from fedldp.bounding import Ranges
from fedldp.data import Examples
from fedldp.mechanisms.piecewise import Piecewise
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.mechanisms.two_point_l1 import TwoPointL1
from fedldp.randomness import Stream
from fedldp.reporting.text import number
from fedldp.simulation.plan import Plan, plan, problem_of
from fedldp.systems.ldp_fl import LdpFlConfig, Randomise
from fedldp.transport.shuffler import Shuffler
from fedldp.wire import Broadcast, Report, Sensitive

SIZE = 650  # weights of quickstart's model
Law = dict[Any, Any]


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


def planned(**settings: Any) -> Plan:
    config = fedldp.recipe("quickstart", **settings)
    return plan(config, problem_of(config, None))


def line(made: Plan, unit: str, adversary: str, kind: str) -> dict[str, Any]:
    (found,) = (
        g
        for g in made.privacy["guarantees"]
        if (g["unit"], g["adversary"], g["kind"]) == (unit, adversary, kind)
    )
    return dict(found)


def has_shuffled(made: Plan) -> bool:
    return any(g["adversary"] == "shuffled-server" for g in made.privacy["guarantees"])


# --- slow second computations ---------------------------------------------------------------


def smallest_epsilon(p_law: Law, q_law: Law, delta: float) -> Any:
    """max over sets S of ln((P(S) - delta)/Q(S)), by Neyman and Pearson."""
    best = p_set = q_set = mp.mpf(0)
    for outcome in sorted(p_law, key=lambda o: -p_law[o] / q_law[o]):
        p_set += p_law[outcome]
        q_set += q_law[outcome]
        if p_set > delta:
            best = max(best, mp.log((p_set - delta) / q_set))
    return best


def add(first: Law, second: Law) -> Law:
    law: Law = {}
    for (a, x), (b, y) in itertools.product(first.items(), second.items()):
        law[a + b] = law.get(a + b, mp.mpf(0)) + x * y
    return law


def binomial(n: int, p: Any) -> Law:
    return {k: mp.binomial(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)}


def one_exact(epsilon: float, n: int, delta: float) -> Any:
    """One shuffled two-valued report, over all inputs of the others and both directions."""
    p = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    best = mp.mpf(0)
    for high in range(n):
        others = add(binomial(high, p), binomial(n - 1 - high, 1 - p))
        one, zero = add(others, {1: p, 0: 1 - p}), add(others, {1: 1 - p, 0: p})
        best = max(best, smallest_epsilon(one, zero, delta), smallest_epsilon(zero, one, delta))
    return best


def clone_pair(epsilon: float, n: int, *, two_valued: bool) -> tuple[Law, Law]:
    e = mp.exp(mp.mpf(epsilon))
    p, clone = e / (1 + e), 2 / (e + 1) if two_valued else 1 / e
    laws: tuple[Law, Law] = ({}, {})
    for c, mass_c in binomial(n - 1, clone).items():
        for a, mass_a in binomial(c, mp.mpf(1) / 2).items():
            for d in (0, 1):
                key = (a + d, c - a + 1 - d)
                for law, truth in zip(laws, (p, 1 - p), strict=True):
                    mass = mass_c * mass_a * (truth if d else 1 - truth)
                    law[key] = law.get(key, mp.mpf(0)) + mass
    return laws


def composed_exact(pair: tuple[Law, Law], count: int, delta: float) -> Any:
    losses: Law = {}
    for o, mass in pair[0].items():
        key = mp.nstr(mp.log(mass / pair[1][o]), 30)
        losses[key] = losses.get(key, mp.mpf(0)) + mass
    one = {mp.mpf(key): mass for key, mass in losses.items()}
    total: Law = {mp.mpf(0): mp.mpf(1)}
    for _ in range(count):
        total = add(total, one)
    return smallest_epsilon(total, {o: m * mp.exp(-o) for o, m in total.items()}, delta)


def two_valued_delta(epsilon: float, count: int, at: float) -> Any:
    e, p = mp.mpf(epsilon), 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return sum(
        mp.binomial(count, j) * p**j * (1 - p) ** (count - j) * -mp.expm1(at - (2 * j - count) * e)
        for j in range(count + 1)
        if (2 * j - count) * e > at
    )


# --- upper bounds ---------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0.99, 1e-2, 1e-5, 1e-12])
@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 1.0, 8.0, 20.0, 30.0])
def test_one_shuffled_report_by_enumeration(epsilon: float, delta: float) -> None:
    for n in (1, 2, 3, 5):
        assert mp.mpf(shuffled_one_epsilon(epsilon, n, delta)) >= one_exact(epsilon, n, delta)
        for two_valued in (True, False):
            pair = clone_pair(epsilon, n, two_valued=two_valued)
            found = (
                shuffled_composed_upper(epsilon, n, 1, delta)
                if two_valued
                else clones_epsilon(epsilon, n, delta)
            )
            exact = smallest_epsilon(*pair, delta)
            assert mp.mpf(found) >= min(exact, mp.mpf(epsilon))
            # The clone pair bounds the truth from above.
            assert exact >= one_exact(epsilon, n, delta) * (1 - mp.mpf(10) ** -25)


@pytest.mark.parametrize(
    ("epsilon", "n", "count", "delta"),
    [(1e-4, 2, 4, 1e-5), (1.0, 3, 3, 1e-2), (1.0, 2, 4, 1e-12), (10.0, 3, 3, 1e-5)],
)
def test_composed_shuffled_reports_by_enumeration(
    epsilon: float, n: int, count: int, delta: float
) -> None:
    exact = composed_exact(clone_pair(epsilon, n, two_valued=True), count, delta)
    assert mp.mpf(shuffled_composed_upper(epsilon, n, count, delta)) >= exact
    raw = compose_upper([(clone_losses(epsilon, n, exponent_for(delta, count)), count)], delta)
    assert mp.mpf(raw) >= exact
    assert mp.mpf(shuffled_composed_lower(epsilon, n, count, delta)) <= exact


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_fourier_composition_of_a_crowd_of_one_is_no_smaller_than_the_exact(epsilon: float) -> None:
    exact = two_valued_epsilon(epsilon, SIZE, 1e-5)
    assert two_valued_delta(epsilon, SIZE, exact) <= 1e-5
    raw = compose_upper([(clone_losses(epsilon, 1, exponent_for(1e-5, SIZE)), SIZE)], 1e-5)
    assert raw >= exact * (1 - 1e-12)


def test_gaussian_epsilon_is_enough() -> None:
    with mp.workdps(80):
        for mu, delta in itertools.product(
            [1e-6, 1e-3, 0.27, 1.0, 30.0, 1e4], [0.99, 1e-2, 1e-5, 1e-12, 1e-299]
        ):
            e, m = mp.mpf(gaussian_epsilon(mu, delta)), mp.mpf(mu)
            exact = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
            assert exact <= mp.mpf(delta)


# --- mechanisms keep to their events --------------------------------------------------------


class Fixed(Stream):
    """A stream whose next comparison is with the integer ``word`` of ``bits`` bits."""

    def __init__(self, word: int, bits: int) -> None:
        super().__init__(bytes(32), simulated=True)
        self.word, self.width = word, bits

    def integers(self, count: int, dtype: Any) -> Any:
        high = (self.word >> (self.width - 32)) - (1 << 31)
        return np.full(count, high if dtype is np.int32 else self.word & 0xFFFFFFFF, dtype)


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 1.0, 10.0, 20.0, 32.0])
def test_two_point_leaves_both_outcomes_their_share_for_every_input(
    epsilon: float, bits: Any
) -> None:
    if bits == 32 and epsilon > 10:
        return
    mechanism = TwoPoint(epsilon, bits)
    least = mechanism.threshold_min
    assert mp.log(mp.mpf(2**bits - least) / least) <= mp.mpf(epsilon)
    for kind in (np.float32, np.float64):
        for x in (-3e38, -1.0, np.nextafter(kind(-1), kind(0)), 0.0, 1.0, 3e38):
            values = np.array([x], kind)
            assert mechanism.encode(values, Fixed(least - 1, bits))[0] >> 7 == 1
            assert mechanism.encode(values, Fixed(2**bits - least, bits))[0] >> 7 == 0


@pytest.mark.parametrize("bits", [64, 32])
def test_two_point_l1_norm_of_the_thresholds_is_within_the_proof(bits: Any) -> None:
    for epsilon, d, clip in itertools.product((0.01, 1.0, 10.0), (1, 7, SIZE), (0.3, 5.0)):
        mechanism = TwoPointL1(epsilon, clip, bits)
        limit = mechanism.l1_limit(d)
        for values in (np.ones(d), np.full(d, limit / d), np.full(d, np.nextafter(limit / d, -9))):
            thresholds = mechanism.bits.thresholds(mechanism.bound(values))
            norm = sum(abs(Fraction(2 * t, 2**bits) - 1) for t in thresholds)
            allowed = mp.tanh(mp.mpf(epsilon) / 2) * mp.mpf(clip)
            assert mp.mpf(norm.numerator) / norm.denominator <= allowed


def test_piecewise_ratio_is_within_its_event() -> None:
    for epsilon, d in itertools.product((1e-6, 1e-3, 1.0, 30.0, 4000.0), (1, SIZE)):
        mechanism = Piecewise(epsilon)
        cell, sent = mechanism.window(d), mechanism.num_sent(d)
        exact = sent * mp.log(mp.mpf(cell.high) / cell.low)
        assert exact <= mp.mpf(mechanism.event(d).epsilon) <= mp.mpf(epsilon)
        assert cell.total < 2**64


# --- what the shuffler puts out is what its lines assume ------------------------------------


class Given:
    """A transport of reports that are there already."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.reports = reports

    def exchange(self, broadcast: Broadcast, clients: Sequence[int]) -> Iterator[Report]:
        yield from self.reports


def stream(round: int, client: int, purpose: str) -> Stream:
    return Stream.simulation(seed=0, round=round, client=client, purpose=purpose)


def shuffled(config: Any, values: np.ndarray[Any, Any]) -> Any:
    """Return what a shuffler puts out for clients with these weights, shape (n, d)."""
    assert isinstance(config, LdpFlConfig)
    ranges = Ranges.fixed(0.0, 1.0, (values.shape[1],))
    broadcast = Broadcast(round=1, weights=np.zeros(values.shape[1], np.float32), ranges=ranges)
    reports = []
    for index, row in enumerate(values.astype(np.float32)):
        examples = Examples(np.zeros((0, 1), np.float32), np.zeros(0, np.int64))
        client = replace(client_of(examples, index), stream=partial(stream, 1, index))
        reports.append(Randomise(config)(Sensitive(row), broadcast, client))
    delays = config.delays()
    assert delays is not None
    return list(Shuffler(Given(reports), delays, stream).exchange(broadcast, range(len(reports))))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"delay_seconds": 1e-15, "latency_spread": 0.0},
        {"delay_seconds": 1e-14},
        {"delay_seconds": 1e-6, "compute_seconds": 1e9},
    ],
)
def test_order_and_time_of_arrival_do_not_tell_whose_a_message_is(settings: Any) -> None:
    made = planned(rounds=1, epsilon=20.0, **settings)
    if not has_shuffled(made):
        return
    # Client 0 has weights of 1 and all others of -1, so a bit tells whose it is.
    values = -np.ones((100, SIZE))
    values[0] = 1.0
    first: list[bool] = []
    classes: dict[float, list[int]] = {}
    for block in shuffled(made.config, values):
        for position in range(SIZE):
            at = block.positions == position
            first.append(bool(block.bits[at][0, 0]))
        for time, bit in zip(block.arrival_seconds, block.bits[:, 0], strict=True):
            classes.setdefault(float(time), []).append(int(bit))
    assert np.mean(first) < 0.1  # 0.01 for a shuffler; standard deviation 0.004
    # An arrival time that many messages share is no mark of one client.
    for bits in classes.values():
        assert len(bits) < 100 or np.mean(bits) < 0.1


def test_budgets_that_the_shuffler_keeps_apart_do_not_hide_each_other() -> None:
    lone = math.nextafter(326.0, 1e9)
    made = planned(mechanism="two_point_l1", clip=1e6, epsilon=[326.0] * 99 + [lone], rounds=1)
    sizes = [len(b.positions) / SIZE for b in shuffled(made.config, np.zeros((100, SIZE)))]
    if min(sizes) > 1:
        return
    # Alone in its group, a client's report is in clear view: the guarantee is the local one.
    epsilon = made.config.release(99, SIZE, made.problem).epsilon  # type: ignore[attr-defined]
    for unit in ("client-round", "client-run"):
        printed = line(made, unit, "shuffled-server", "approximate")["epsilon"]
        assert two_valued_delta(epsilon, SIZE, printed) <= 1e-5


# --- lower bounds ---------------------------------------------------------------------------


def test_lower_bound_of_one_report_in_a_large_crowd() -> None:
    n, epsilon, delta = 10_000, 1.0, 1e-5

    def lower(clients: int) -> float | None:
        crowd = {"dataset": "mnist", "num_clients": 20_000, "clients_per_round": clients}
        made = planned(**crowd, rounds=1, epsilon=epsilon)
        found: float | None = line(made, "weight", "shuffled-server", "approximate")["lower"]
        return found

    assert lower(n + 1) is None  # the worst case over the others is searched for up to 10,000
    printed = lower(n)
    assert printed is not None
    p = 1 / (1 + math.exp(-epsilon))
    edges = np.linspace(0, n, 17).astype(int)

    def delta_of(high: int, low: int, at: float) -> float:
        others = fftconvolve(
            binom.pmf(np.arange(high + 1), high, p), binom.pmf(np.arange(low + 1), low, 1 - p)
        )
        one, zero = (np.convolve(others, [1 - a, a]) for a in (p, 1 - p))
        return float(np.maximum(one - math.exp(at) * zero, 0).sum())

    # By data processing, leaving out the others whose end differs within a block bounds it above.
    at = printed * (1 - 1e-6)
    blocks = itertools.pairwise(edges)
    assert max(delta_of(a, n - 1 - (b - 1), at) for a, b in blocks) >= delta * (1 - 1e-3)


@pytest.mark.parametrize(("bits", "epsilon"), [(64, 1.0), (64, 32.0), (32, 1e-6), (32, 10.0)])
def test_lower_bound_of_one_weight_is_what_the_integers_give(bits: Any, epsilon: float) -> None:
    made = planned(rounds=1, epsilon=epsilon, integer_bits=bits)
    least = TwoPoint(epsilon, bits).threshold_min
    realised = mp.log(mp.mpf(2**bits - least) / least)
    lower = mp.mpf(line(made, "weight", "server", "pure")["lower"] or 0)
    assert lower <= realised * (1 + mp.mpf(10) ** -12)  # far less than anyone reads


def test_lower_bound_of_one_weight_under_an_l1_clip() -> None:
    made = planned(rounds=1, mechanism="two_point_l1", clip=0.5, epsilon=1.0)
    config = made.config
    assert isinstance(config, LdpFlConfig)
    mechanism = config.randomiser(1.0, SIZE)
    assert isinstance(mechanism, TwoPointL1)
    corner = np.zeros(SIZE)
    corner[0] = 1
    high, low = (mechanism.bits.thresholds(mechanism.bound(s * corner))[0] for s in (1, -1))
    reached = max(mp.log(mp.mpf(high) / low), mp.log(mp.mpf(2**64 - low) / (2**64 - high)))
    assert mp.mpf(line(made, "weight", "server", "pure")["lower"] or 0) <= reached


def test_lower_bound_of_a_report_under_an_l1_clip() -> None:
    clip = 620.0  # below d, yet d eps0 is below the bound for the whole
    made = planned(rounds=1, mechanism="two_point_l1", clip=clip, epsilon=600.0)
    eps0 = made.config.release(0, SIZE, made.problem).epsilon  # type: ignore[attr-defined]
    a = mp.tanh(mp.mpf(eps0) / 2)
    # sum ln(1 + a u) - sum ln(1 - a v): the first concave, the second convex, sum u, sum v <= S.
    true = SIZE * mp.log1p(a * clip / SIZE) - clip * mp.log1p(-a)
    assert mp.mpf(line(made, "client-round", "server", "pure")["lower"] or 0) <= true


def test_lower_bound_of_a_run_whose_crowds_differ() -> None:
    settings: dict[str, Any] = {"epsilon": [0.5] * 90 + [1.0] * 10, "clients_per_round": 20}
    made = planned(rounds=6, seed=13, **settings)
    crowds: dict[int, list[tuple[float, int]]] = {}
    for events in made.releases.values():
        sizes = Counter(events.values())
        for client, event in events.items():
            crowds.setdefault(client, []).append((event.epsilon, sizes[event]))  # type: ignore[attr-defined]
    upper = max(
        compose_upper(
            [
                (clone_losses(epsilon, crowd, exponent_for(1e-5, 6 * SIZE)), SIZE * rounds)
                for (epsilon, crowd), rounds in Counter(own).items()
            ],
            1e-5,
        )
        for own in {tuple(sorted(own)) for own in crowds.values()}
        if own[0][0] == 1.0 or len(own) == max(map(len, crowds.values()))
    )
    printed = line(made, "client-run", "shuffled-server", "approximate")["lower"]
    assert printed is None or printed <= upper


# --- what people read -----------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [5e-10, 1e-12, 218_400.0002, 0.12340000005, 1.0 + 5e-10])
def test_printed_epsilon_is_not_below_the_true_one(epsilon: float) -> None:
    printed = Fraction(number(epsilon).replace(",", ""))
    assert printed >= Fraction(epsilon) * (1 - Fraction(1, 10**12))
