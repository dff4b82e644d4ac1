"""Randomised bits: known figures, exact ratios, the comparison of integers; codes of numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from exact import exp_bounds
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted

from fedldp.accounting.prices import cost
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.papers.ldpfl import bits as bits_module
from fedldp.papers.ldpfl.bits import FULL, BitLaw, FixedPoint, Rounding
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits, Variant


@pytest.fixture(scope="module", autouse=True)
def _sixty_digits() -> Iterator[None]:
    with mp.workdps(60):
        yield


VARIANTS = ["symmetric", "theorem_1", "theorem_2"]


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=7, round=1, client=number, purpose="bits")


def probabilities(mechanism: RandomisedBits, size: int, position: int) -> tuple[mp.mpf, mp.mpf]:
    """Return P(1 -> 1) and P(0 -> 1) as the paper prints them: eq. 11, Theorem 1 and eq. 13."""
    epsilon, alpha = mp.mpf(mechanism.epsilon), mp.mpf(mechanism.alpha)
    if mechanism.variant == "symmetric":
        power = mp.exp(epsilon / size)
        return power / (1 + power), 1 / (1 + power)
    to_zero = alpha * mp.exp(epsilon / (mp.mpf(size) / 2))
    if mechanism.variant == "theorem_1":
        one = 1 / (1 + alpha)
    else:
        one = alpha / (1 + alpha) if position % 2 == 0 else 1 / (1 + alpha**3)
    return one, 1 - to_zero / (1 + to_zero)


# The guarantee, from the integers


def log_at_most(epsilon: float, ratio: Fraction) -> bool:
    """Return whether ln(ratio) <= epsilon, using a number above e^epsilon by a relative 1e-90."""
    return ratio <= exp_bounds(Fraction(epsilon))[1]


mechanisms = st.builds(
    RandomisedBits,
    st.floats(-4, 6).map(lambda x: 10.0**x),
    st.sampled_from(VARIANTS),
    st.floats(-2, 5).map(lambda x: 10.0**x),
)


@settings(max_examples=50)
@given(mechanisms, st.integers(1, 30_000))
def test_the_thresholds_lie_between_the_papers_probabilities(
    mechanism: RandomisedBits, size: int
) -> None:
    try:
        laws = mechanism.laws(size)
    except ConfigError:
        p, q = probabilities(mechanism, size, 0)
        assert abs(p - q) < mp.mpf(2) ** -63
        return
    for position, law in enumerate(laws):
        p, q = (FULL * x for x in probabilities(mechanism, size, position))
        if p < q:
            p, q, law = FULL - p, FULL - q, BitLaw(FULL - law.if_one, FULL - law.if_zero)
        capped = mechanism.variant == "symmetric" and mechanism.epsilon / size > 32
        slack = mp.mpf("1e-25")
        assert law.if_one <= p + slack
        assert law.if_zero >= q - slack
        if not capped:
            loss = p * mp.mpf(2) ** -49 if mechanism.variant == "symmetric" else 0
            assert law.if_one >= p - 1 - slack - loss
            assert law.if_zero <= max(q, 1) + 1 + slack + loss


@settings(max_examples=50)
@given(st.integers(1, FULL - 1), st.integers(1, FULL - 1))
def test_the_epsilon_of_a_law_is_exactly_its_largest_ratio(one: int, zero: int) -> None:
    if one == zero:
        with pytest.raises(ConfigError, match="have the same distribution"):
            BitLaw(one, zero)
        return
    law = BitLaw(one, zero)
    ratios = [Fraction(one, zero), Fraction(FULL - one, FULL - zero)]
    largest = max(*ratios, *(1 / ratio for ratio in ratios))
    assert log_at_most(law.epsilon, largest)
    assert not log_at_most(law.epsilon * (1 - 2.0**-51), largest)


@pytest.mark.parametrize(
    "mechanism",
    [RandomisedBits(2.0), RandomisedBits(0.5, "theorem_2"), RandomisedBits(3.0, "theorem_1", 0.4)],
    ids=repr,
)
def test_all_inputs_and_outputs_of_three_bits(mechanism: RandomisedBits) -> None:
    # Enumerates the outputs: the event is the largest ratio over all pairs of inputs, and the mean
    # and variance of the report are as stated.
    size = 3
    laws = [mechanism.laws(size)[j % len(mechanism.laws(size))] for j in range(size)]
    inputs = list(itertools.product((0, 1), repeat=size))

    def law_of(bits: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        ones = [
            Fraction(w.if_one if b else w.if_zero, FULL) for b, w in zip(bits, laws, strict=True)
        ]
        law = {(): Fraction(1)}
        for p in ones:
            law = {
                (*out, y): mass * (p if y else 1 - p) for out, mass in law.items() for y in (0, 1)
            }
        return law

    of = {bits: law_of(bits) for bits in inputs}
    largest = max(of[a][y] / of[b][y] for a in inputs for b in inputs for y in inputs)
    assert math.log(largest) == pytest.approx(cost(mechanism.event(size), "pure"), rel=1e-13)
    for bits, law in of.items():
        values = np.array(bits) * 2.0 - 1
        estimates = {}
        for out in law:
            aggregate = mechanism.aggregate(size)
            aggregate.add(np.packbits(out).tobytes())
            estimates[out] = aggregate.mean()
        mean = sum(float(mass) * estimates[out] for out, mass in law.items())
        square = sum(float(mass) * estimates[out] ** 2 for out, mass in law.items())
        np.testing.assert_allclose(mean, mechanism.expected(values), atol=1e-9)
        np.testing.assert_allclose(square - mean**2, mechanism.variance(values), rtol=1e-9)


@pytest.mark.parametrize(
    ("size", "epsilon", "variant"),
    [(1, 1e-6, "symmetric"), (2, 1.0, "theorem_1"), (3, 1e3, "theorem_2"), (501, 1e9, "theorem_1")],
)
def test_randomised_bits_cost_at_least_the_sum_of_their_worst_ratios(
    variant: Variant, epsilon: float, size: int
) -> None:
    for alpha in (1e-3, 1.0, 10.0, 1e6):
        mechanism = RandomisedBits(epsilon, variant, alpha)
        try:
            laws = mechanism.laws(size)
        except ConfigError:
            continue  # a bit that reveals nothing is refused
        event = mechanism.event(size)
        exact = mp.mpf(0)
        for place in range(size):
            law = laws[place % len(laws)]
            ones = Fraction(law.if_one, law.if_zero)
            zeros = Fraction(FULL - law.if_one, FULL - law.if_zero)
            worst = max(ones, 1 / ones, zeros, 1 / zeros)
            exact += mp.log(mp.mpf(worst.numerator) / worst.denominator)
        printed = sum(mp.mpf(each) * count for each, count in event.groups)
        assert exact <= printed <= exact * (1 + 1e-15)
        assert sum(count for _, count in event.groups) == size
        if variant == "symmetric":
            assert printed <= mp.mpf(epsilon)


# Comparing integers


def test_a_bit_is_the_comparison_of_a_whole_word_with_its_threshold() -> None:
    law = BitLaw(0x8000_0000_0000_0005, 0x1234_0000_0000_0000)
    near = [-(2**48), -2, -1, 0, 1, 2, 2**48]
    cases = [(bit, t + step) for bit, t in ((1, law.if_one), (0, law.if_zero)) for step in near]
    cases += [(bit, word) for bit in (0, 1) for word in (0, FULL - 1)]
    high = [word >> 48 for _, word in cases]
    ties = [word for bit, word in cases if word >> 48 == (law.if_one if bit else law.if_zero) >> 48]
    # For a late word, the upper 48 bits count.
    script = Scripted((np.uint16, high), (np.uint64, [(w << 16) % FULL | 0xFFFF for w in ties]))
    given = np.array([[bit for bit, _ in cases]], np.uint8)
    (found,) = bits_module.randomise(given, [law], script)  # type: ignore[arg-type]
    expected = [int(word < (law.if_one if bit else law.if_zero)) for bit, word in cases]
    assert found.tolist() == expected
    assert 0 < len(ties) < len(cases)
    assert not script.requests


@pytest.mark.parametrize("shape", [(300, 1001), (3, 150_000), (4000, 1)])
def test_every_row_is_randomised_by_column(shape: tuple[int, int]) -> None:
    mechanism = RandomisedBits(8.0 * shape[1], "theorem_2", 3.0)
    bits = np.random.default_rng(0).integers(0, 2, shape, np.uint8)
    before = bits.copy()
    found = mechanism.randomise(bits, stream())
    np.testing.assert_array_equal(bits, before)
    assert (found.shape, found.dtype) == (shape, np.uint8)
    for first, law in enumerate(mechanism.laws(shape[1])[: shape[1]]):
        for bit, threshold in ((0, law.if_zero), (1, law.if_one)):
            chosen = found[:, first::2][bits[:, first::2] == bit]
            p = threshold / FULL
            assert chosen.size > 1000
            assert abs(chosen.mean() - p) <= 6 * math.sqrt(p * (1 - p) / chosen.size)


# Parameters


@pytest.mark.parametrize(
    ("alternating", "known"), [(True, 34884.836349495786), (False, 0.90909494436566567)]
)
def test_known_answers_of_ldpfl(alternating: bool, known: float) -> None:
    # LDPFL, Theorems 2 and 1: alpha 10, epsilon 0.5, 10,240 bits
    event = RandomisedBits(0.5, "theorem_2" if alternating else "theorem_1", 10.0).event(10_240)
    found = mp.fsum(epsilon * count for epsilon, count in event.groups)
    assert float(found) == pytest.approx(known, rel=1e-15 if alternating else 1e-9)
    if alternating:
        assert event.groups == (
            (pytest.approx(2.3026738717972064, rel=1e-15), 5120),
            (pytest.approx(4.510770727713689, rel=1e-15), 5120),
        )


# Fixed-point codes


digits = st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(any)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)


def by_hand(value: float, whole: int, fraction: int, rounding: Rounding) -> str:
    """Return the code of one number as text (a sign, then digits), in exact arithmetic."""
    rounded = math.floor if rounding == "down" else round  # round: halfway to an even number
    units = min(rounded(abs(Fraction(value)) * 2**fraction), 2 ** (whole + fraction) - 1)
    sign = "1" if math.copysign(1.0, value) < 0 else "0"
    return sign + format(units, f"0{whole + fraction}b")


numbers = floats | st.integers(-200, 200).map(lambda halves: halves / 2**4)


@given(st.lists(numbers, min_size=1, max_size=8), digits, st.sampled_from(["down", "nearest"]))
def test_codes_are_those_of_exact_arithmetic(
    values: list[float], places: tuple[int, int], rounding: Rounding
) -> None:
    bits = FixedPoint(*places, rounding=rounding).encode(np.array([values], np.float32))
    expected = "".join(by_hand(value, *places, rounding) for value in values)
    assert "".join(map(str, bits[0])) == expected
