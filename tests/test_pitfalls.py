"""The numbers on the page of pitfalls are those that the package computes, or dp-accounting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedldp.accounting.numerics.blanket import Subset, blanket_epsilon
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon, gaussian_sigma
from fedldp.accounting.numerics.shuffle_one import shuffled_one_epsilon
from fedldp.accounting.numerics.subsampled import (
    fixed_size_sample,
    poisson_sample,
    sampled_epsilon,
)
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.papers.personalized.mechanism_sign import sign_epsilon_per_coordinate

DELTA = 1e-5
PAGE = Path(__file__).parents[1] / "docs" / "pitfalls.md"
TEXT = " ".join(PAGE.read_text(encoding="utf-8").split())


def clamped() -> float:
    """The epsilon of a clamped probability at twice the radius."""
    scale = TwoPoint(1.0).scale
    probability = [min(max(0.5 + x / (2 * scale), 0.0), 1.0) for x in (2.0, -2.0)]
    return math.log(probability[0] / probability[1])


def classical(epsilon: float) -> float:
    """What the classical formula's noise for this epsilon really costs."""
    return gaussian_epsilon(epsilon / math.sqrt(2 * math.log(1.25 / DELTA)), DELTA)


def steps_at(sample: object) -> float:
    return sampled_epsilon({sample: 1000}, DELTA)  # type: ignore[dict-item]


def closed_form() -> float:
    """The closed form of Feldman, McMillan, Talwar 2021 at epsilon 1 with 100 reports."""
    growth = 8 * math.sqrt(math.e * math.log(4 / DELTA)) / 10 + 8 * math.e / 100
    return math.log(1 + (math.e - 1) / (math.e + 1) * growth)


def of_noise(*epsilons: float) -> float:
    """What Gaussian releases of these epsilons cost together."""
    mus = [(1 / gaussian_sigma(each, DELTA), 1) for each in epsilons]
    return gaussian_epsilon(compose_mu(mus), DELTA)


GROWING = [1 + t / 4 for t in range(10)]
HIDDEN = Subset(high=7, low=1, closest=1, categories=4)


@pytest.mark.slow
def test_a_number_is_what_the_package_computes() -> None:
    said = {
        "it is {:,.0f} for a report, or {:,.2f} at": [
            two_valued_epsilon(1.0, 21_840, delta) for delta in (0.0, DELTA)
        ],
        "a proven {:,.2f} for one round and {:,.2f} for ten": [
            two_valued_epsilon(
                sign_epsilon_per_coordinate(4, 7.75168842016862), 650 * rounds, DELTA
            )
            for rounds in (1, 10)
        ],
        "ε 1 becomes {:.4f}, {:.4f} and {:.0f}.": [
            shuffled_one_epsilon(1.0, honest, DELTA) for honest in (100, 10, 1)
        ],
        "n of 1,000, 100 and 10 give {:.2f}, {:.2f}, {:.2f}.": [
            blanket_epsilon(HIDDEN, n, DELTA) for n in (1000, 100, 10)
        ],
        "an ε of 1 becomes {:.4f} and": [clamped()],
        "sum claims {:.2f}, and with noise of 1 on the uncharged count it has {:.2f}.": [
            gaussian_epsilon(mu, DELTA) for mu in (2 / 4, math.hypot(2 / 4, 1 / 1))
        ],
        "their mean {:.3f}, or the last one, {:.2f}. They are {:.2f} as pure ε, and {:.2f}": [
            sum(GROWING) / 10,
            GROWING[-1],
            sum(GROWING),
            of_noise(*GROWING),
        ],
        "They are four releases: {:.2f}; with ten layers {:.2f}.": [
            of_noise(*[1.0] * layers) for layers in (4, 10)
        ],
        "keeps {:,.0f} of": [TwoPoint(20.0).threshold_min],
        "and sensitivity C has {:.4f}.": [gaussian_epsilon(2 / gaussian_sigma(1.0, DELTA), DELTA)],
        "for 10 and 15 really has {:.2f} and {:.2f}.": [classical(10), classical(15)],
        "five draws of a bit at ε 1 have ε {:.0f}.": [two_valued_epsilon(1.0, 5, DELTA)],
        "The true figure is {:.2f}.": [two_valued_epsilon(1.0, 100, DELTA)],
        "takes sensitivity 2 ({:.4f}), the other 1 (4.7285; the exact curve has {:.4f})": [
            gaussian_epsilon(mu, DELTA) for mu in (2.0, 1.0)
        ],
        "970.6 instead of {:.2f}.": [gaussian_epsilon(40.0, DELTA)],
        "sampling says {:.2f} (noise": [steps_at(poisson_sample(1.0, 1 / 1000))],
        "of equal size cost {:.2f}.": [steps_at(fixed_size_sample(1.0, 1, 1000))],
        "needs an ε of at most {:.2f} at n 100": [math.log(100 / (16 * math.log(2 / DELTA)))],
        "at ε 1 it gives {:.2f}, where {:.4f} is exact.": [
            closed_form(),
            shuffled_one_epsilon(1.0, 100, DELTA),
        ],
    }
    assert [text for text, values in said.items() if text.format(*values) not in TEXT] == []


def test_probabilities_in_floats_become_certain() -> None:
    assert "from ε 17.5 in float32 and from 37.5 in float64" in TEXT
    one = np.float32(1)
    assert one / (one + np.exp(np.float32(-17.5))) == 1
    assert 1 / (1 + math.exp(-37.5)) == 1


Law = dict[Any, Fraction]
"""The probability of each report that can come."""


def median_clip(norms: Sequence[int]) -> Law:
    """A clip at the median of all clients' norms, which is broadcast."""
    return {sorted(norms)[len(norms) // 2]: Fraction(1)}


def largest_bit(values: Sequence[int]) -> Law:
    """The position of the largest value, and its sign by a bit of epsilon ln 3."""
    place = max(range(len(values)), key=lambda each: abs(values[each]))
    one = Fraction(3, 4) if values[place] > 0 else Fraction(1, 4)
    return {(place, 1): one, (place, -1): 1 - one}


def rounded(value: Fraction) -> Law:
    """Random rounding to a whole number, unbiased."""
    above = value - math.floor(value)
    law = {math.floor(value): 1 - above, math.floor(value) + 1: above}
    return {each: chance for each, chance in law.items() if chance}


def growing_bits(value: int) -> Law:
    """A bit in each of three rounds, with odds of 2, 4 and 8 to 1 for the true one."""
    law: Law = {(): Fraction(1)}
    for odds in (2, 4, 8):
        true = Fraction(odds, odds + 1)
        bits = {value: true, 1 - value: 1 - true}
        law = {(*o, bit): p * q for o, p in law.items() for bit, q in bits.items()}
    return law


def exact_epsilon(law: Law, other: Law) -> float:
    """Return the pure epsilon of two laws, in the worse direction."""
    if law.keys() != other.keys():
        return math.inf
    return max(abs(math.log(law[each] / other[each])) for each in law)


@pytest.mark.parametrize(
    ("trick", "inputs", "epsilon"),
    [
        (median_clip, ([1, 2, 4], [1, 3, 4]), math.inf),
        (growing_bits, (0, 1), math.log(2 * 4 * 8)),
        (largest_bit, ([5, 1], [1, 5]), math.inf),
        (largest_bit, ([5, 1], [-5, 1]), math.log(3)),
        (rounded, (Fraction(1, 4), Fraction(5, 4)), math.inf),
        (rounded, (Fraction(1, 4), Fraction(3, 4)), math.log(3)),
    ],
)
def test_what_a_planted_trick_releases(trick: Any, inputs: Any, epsilon: float) -> None:
    assert exact_epsilon(*map(trick, inputs)) == pytest.approx(epsilon)


@pytest.fixture
def other() -> Any:
    """The accountant that the page names, in the version that it names."""
    module = pytest.importorskip("dp_accounting")
    if version("dp-accounting") != "0.6.0":
        pytest.skip("the page is about dp-accounting 0.6.0")
    return module


def test_what_another_accountant_says_of_bits_and_noise(other: Any) -> None:
    replaced = other.NeighboringRelation.REPLACE_ONE
    bit = other.RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    noise = other.GaussianDpEvent(1.0)
    by_losses = other.pld.PLDAccountant(replaced).compose(noise).get_epsilon(DELTA)
    by_orders = other.rdp.RdpAccountant(neighboring_relation=replaced).compose(noise)
    composed = other.pld.PLDAccountant(replaced).compose(bit, 100).get_epsilon(DELTA)
    assert f"costs what it costs once: {composed:.5f} for a bit of ε 1." in TEXT
    said = f"sensitivity 2 ({by_losses:.4f}), the other 1 ({by_orders.get_epsilon(DELTA):.4f};"
    assert said in TEXT


@pytest.mark.slow
def test_what_another_accountant_says_of_large_losses(other: Any) -> None:
    losses = other.pld.privacy_loss_distribution.from_gaussian_mechanism(
        1 / 40,
        value_discretization_interval=1e-2,  # the default takes a minute, and says the same
    )
    assert f"gets {losses.get_epsilon_for_delta(DELTA):.1f} instead of" in TEXT
