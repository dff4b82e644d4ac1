"""Condensed privacy: exact ratios from the table, the sampler, the moments, and CLDP-Fed's cost."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from exact import exp_bounds
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted

import fedldp
from fedldp.accounting.events import PureCoordinates
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import RunError
from fedldp.mechanisms import MechanismSettings
from fedldp.papers.cldp_fed.mechanism import CLDP, WeightTable, table
from fedldp.simulation.plan import plan

mp.mp.dps = 40

# Two distances in the table, and two beyond it
TINY = WeightTable(end=2, floor_weight=2, cumulative=np.array([0, 4, 7]), peak=6)


def weights(of: WeightTable) -> list[int]:
    """Return w(0), w(1), ..., w(2 M)."""
    inside = np.diff(of.cumulative).tolist()
    return [of.peak, *inside, *[of.floor_weight] * (2 * of.end - of.last)]


def laws(of: WeightTable) -> dict[int, dict[int, Fraction]]:
    """Return the probability of every report of every whole number."""
    w, numbers = weights(of), range(-of.end, of.end + 1)
    totals = {v: sum(w[abs(v - y)] for y in numbers) for v in numbers}
    return {v: {y: Fraction(w[abs(v - y)], totals[v]) for y in numbers} for v in numbers}


def largest_ratio(of: WeightTable) -> Fraction:
    """Return the largest ratio of probabilities over all pairs of inputs and all outputs."""
    law = laws(of)
    columns = [[law[v][y] for v in law] for y in law]
    return max(max(column) / min(column) for column in columns)


alphas = st.floats(-6, 3).map(lambda x: 10.0**x)


# The guarantee, from the integers


@settings(max_examples=15)
@given(alphas, st.integers(1, 40))
def test_epsilon_is_the_largest_ratio(alpha: float, end: int) -> None:
    found, largest = table(alpha, end).epsilon, largest_ratio(table(alpha, end))
    assert largest <= exp_bounds(Fraction(found))[1]
    assert math.log(largest) >= found * (1 - 1.1e-9)
    assert found <= 2 * alpha * end * (1 + 1e-9)
    law, numbers = laws(table(alpha, end)), range(-end, end)
    neighbours = max(law[v][y] / law[v + 1][y] for v in numbers for y in law[v])
    assert neighbours <= exp_bounds(Fraction(alpha))[1], "the condensed guarantee"


def test_the_papers_setting() -> None:
    # alpha 1, c 1, 10 digits: LDP-FL, Section 5.2, quotes epsilon alpha 2 c 10^10; the sampler
    # cannot distinguish that much.
    mechanism = CLDP(1.0, 1.0, 10)
    assert mechanism.end == 10**10
    ratio = Fraction(mechanism.table.peak, mechanism.table.floor_weight)
    totals = mechanism.table.totals(np.array([0, -mechanism.end])).tolist()
    largest = ratio * Fraction(*totals)
    assert mechanism.table.epsilon == pytest.approx(math.log(largest), rel=1e-8)
    assert mechanism.table.epsilon >= math.log(largest)
    assert mechanism.event(7) == PureCoordinates(groups=((mechanism.table.epsilon, 7),))


@pytest.mark.parametrize(("alpha", "end"), [(1e-3, 1000), (0.05, 300), (1.0, 20), (10.0, 4)])
def test_weights_are_exponential_up_to_a_common_constant(alpha: float, end: int) -> None:
    found = table(alpha, end)
    share = Fraction(found.floor_weight * (2 * end + 1), 2**60)
    assert share < Fraction(1, 2**16)
    top = found.peak - found.floor_weight
    for k, weight in enumerate(weights(found)):
        exact = mp.mpf(top) * mp.exp(-mp.mpf(alpha) / 2 * k)
        assert abs(weight - found.floor_weight - exact) <= 1 + exact * mp.mpf("1e-30")
    assert 2**59 < found.totals(np.zeros(1, np.int64))[0] < 2**60


# The sampler


@pytest.mark.parametrize("value", range(-2, 3))
def test_every_word_belongs_to_one_report_and_each_report_has_its_weight(value: int) -> None:
    w = weights(TINY)
    assert w == [6, 4, 3, 2, 2]
    total = sum(w[abs(value - y)] for y in range(-2, 3))
    words = np.arange(3 * total)
    drawn = TINY.draw(np.full(3 * total, value), Scripted((np.uint64, words)))  # type: ignore[arg-type]
    counts = np.bincount(drawn + 2, minlength=5)
    assert counts.tolist() == [3 * w[abs(value - y)] for y in range(-2, 3)]


def test_the_last_words_are_drawn_again() -> None:
    value = np.array([2, 2, 2])
    total = int(TINY.totals(value)[0])
    limit = 2**64 // total * total
    assert limit < 2**64
    script = Scripted(
        (np.uint64, [0, limit - 1, limit]), (np.uint64, [2**64 - 1]), (np.uint64, [0])
    )
    drawn = TINY.draw(value, script)  # type: ignore[arg-type]
    assert drawn.tolist() == [2, -2, 2]
    assert not script.requests


@pytest.mark.parametrize(
    "found", [TINY, table(0.3, 12), table(9.0, 15)], ids=["tiny", "flat", "steep"]
)
def test_moments(found: WeightTable) -> None:
    numbers = np.arange(-found.end, found.end + 1)
    means, variances = found.moments(numbers)
    for v, mean, variance in zip(numbers.tolist(), means, variances, strict=True):
        law = laws(found)[v]
        exact = sum(p * y for y, p in law.items())
        assert mean == pytest.approx(float(exact), rel=1e-12, abs=1e-12)
        square = sum(p * y * y for y, p in law.items())
        assert variance == pytest.approx(float(square - exact**2), rel=1e-9)


# The mechanism


def test_values_are_whole_steps() -> None:
    mechanism = CLDP(0.5, 0.3, 2)
    assert mechanism.end == 30
    values = np.array([0.299, 0.304, 0.31, -9.0, 0.004, -0.0151, 1e300])
    expected = [0.3, 0.3, 0.3, -0.3, 0.0, -0.02, 0.3]
    np.testing.assert_allclose(mechanism.bound(values), expected, rtol=1e-15)
    inside = mechanism.expected(np.array([0.3, -0.3, 0.0]))
    assert 0 < inside[0] < 0.3
    np.testing.assert_allclose(inside, [inside[0], -inside[0], 0], atol=1e-15)


@pytest.mark.parametrize(("precision", "bits"), [(2, 8), (4, 16), (6, 32), (10, 64)])
def test_a_report_has_whole_bytes(precision: int, bits: int) -> None:
    mechanism = CLDP(5.0, 1.0, precision)
    assert mechanism.payload_bits(3) == 3 * bits
    payload = np.full(3, 2 * mechanism.end, f"<u{bits // 8}").tobytes()
    aggregate = mechanism.aggregate(3)
    aggregate.add(payload)
    np.testing.assert_allclose(aggregate.mean(), [1, 1, 1])
    wrong = np.full(3, 2 * mechanism.end + 1, f"<u{bits // 8}").tobytes()
    with pytest.raises(RunError, match="beyond the clip"):
        aggregate.add(wrong)


@pytest.mark.parametrize(
    ("epsilon", "clip"), [(1e-4, 0.002), (0.1, 0.1), (4.0, 1.0), (1e-4, 7.0), (0.1, 1e6)]
)
def test_settings_give_the_pure_budget_of_a_weight(clip: float, epsilon: float) -> None:
    asked = MechanismSettings(epsilon=epsilon, delta=0, clip=clip, size=3)
    mechanism = CLDP.from_settings(asked)
    assert 1000 <= mechanism.end < 10_000
    ((found, size),) = mechanism.event(3).groups
    assert size == 3
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-5)


# The statement


def test_alpha_is_claimed_and_the_pure_epsilon_of_all_weights_is_stated() -> None:
    """LDP-Fed's alpha 1, c 1 and ten digits, from Sun, Qian, Chen 2021, section 2."""
    config = fedldp.recipe("cldp-fed-digits", alpha=1.0, clip=1.0, precision=10, rounds=15)
    privacy = plan(config, Problem((1, 8, 8), 10, 1437)).privacy
    assert privacy.claim.epsilon == 1.0
    assert privacy.claim.unit == "weight"
    assert "one step of 1e-10" in privacy.claim.source
    pure = {g.unit: g.epsilon for g in privacy.guarantees if g.kind == "pure"}
    assert pure["weight"] == pytest.approx(39.3, abs=0.05)
    assert pure["client-round"] == pytest.approx(650 * pure["weight"], rel=1e-12)
    assert pure["client-run"] == pytest.approx(15 * 650 * pure["weight"], rel=1e-12)
