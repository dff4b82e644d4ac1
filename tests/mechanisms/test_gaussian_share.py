"""Discrete Gaussian noise that is added up: shares, one server's noise, integers, and summands."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fedldp.accounting.events import GaussianShare, InClear
from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon, shares_mu
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.kinds import CLIPPED_UPDATES
from fedldp.core.randomness import Stream
from fedldp.mechanisms import MechanismSettings
from fedldp.mechanisms.codes import BoundedSteps
from fedldp.mechanisms.discrete import discrete_gaussian
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.gaussian_share import (
    SharedGaussian,
    largest_mu,
    shared_gaussian,
)
from fedldp.mechanisms.gaussian_summand import GaussianSummand, common_unit, summand
from fedldp.mechanisms.integer_gaussian import IntegerGaussian, integer_gaussian
from fedldp.mechanisms.summing import Summing
from fedldp.mechanisms.words import INTEGERS
from fedldp.protocol.wire import Report

SIZE = 64


class Noiseless(SharedGaussian):
    """The mechanism without noise, to show the rounding."""

    def _noise(self, size: int, stream: Stream) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


def largest_squared_norm(radius: float, size: int) -> float:
    """Return the paper's bound on the squared norm of a rounded vector, at beta = 2^-20."""
    root = math.sqrt(size)
    slack = math.sqrt(2 * math.log(2**20))
    likely = radius**2 + size / 4 + slack * (radius + root / 2)
    return min(likely, (radius + root) ** 2)


def fresh(number: int = 0, *, simulated: bool = False) -> Stream:
    return Stream(number.to_bytes(32, "little"), simulated=simulated)


def rounding(radius: float, size: int = SIZE, bits: int = 32) -> Noiseless:
    return Noiseless(radius, math.floor(largest_squared_norm(radius, size)), 3, bits)


def decoded(mechanism: SharedGaussian, payload: bytes) -> NDArray[np.int64]:
    total = mechanism.aggregate(8 * len(payload) // mechanism.bits)
    total.add(payload)
    return total.total()


# The norm bound


vectors = st.one_of(
    st.lists(st.floats(-1e300, 1e300), min_size=SIZE, max_size=SIZE),
    st.lists(st.sampled_from([0.0, 1e-300, 0.5, -0.5, 1.0, 1e150]), min_size=SIZE, max_size=SIZE),
    st.lists(st.floats(-1, 1, width=32), min_size=SIZE, max_size=SIZE),
)


@settings(max_examples=75)
@given(vectors, st.sampled_from([1.0, 2.5, 17.0, 1e3, 1e6]), st.integers(0, 99))
def test_no_rounded_vector_is_longer_than_charged(
    values: list[float], radius: float, number: int
) -> None:
    mechanism = rounding(radius)
    whole = decoded(mechanism, mechanism.encode(np.array(values) / 1e150, fresh(number)))
    assert sum(int(v) ** 2 for v in whole) <= mechanism.squared_norm
    assert mechanism.event(SIZE).squared_distance == 4 * mechanism.squared_norm


def test_a_vector_that_would_round_too_long_is_rounded_towards_zero() -> None:
    """Every coordinate is in the middle of a step, and there is almost no room to round up."""
    values = np.full(SIZE, 1 / math.sqrt(SIZE))
    tight = Noiseless(12.0, 145, 3, 32)  # 64 times 1.5^2 is 144, and 64 times 1 is 64
    rounded = [decoded(tight, tight.encode(values, fresh(number))) for number in range(20)]
    assert any((whole == 1).all() for whole in rounded)
    assert all((whole**2).sum() <= 145 for whole in rounded)


def test_the_charged_length_nearly_always_suffices_and_rounding_is_unbiased() -> None:
    values = np.full(SIZE, 1 / math.sqrt(SIZE))
    mechanism = rounding(20.0)
    total = np.zeros(SIZE)
    for number in range(4000):
        whole = decoded(mechanism, mechanism.encode(values, fresh(number)))
        assert set(whole) <= {2, 3}
        total += whole
    assert not np.any(np.abs(total / 4000 - 2.5) > 6 * 0.5 / math.sqrt(4000))


def test_only_long_vectors_are_shrunk() -> None:
    mechanism = rounding(1e5)
    values = np.random.default_rng(0).normal(size=SIZE)
    values /= np.linalg.norm(values)
    for factor, kept in ((0.5, 0.5), (1.0, 1.0), (7.0, 1.0), (1e200, 1.0)):
        whole = decoded(mechanism, mechanism.encode(values * factor, fresh()))
        np.testing.assert_allclose(whole / 1e5, values * kept, atol=1.01e-5)
        np.testing.assert_allclose(mechanism.bound(values * factor), values * kept, rtol=1e-12)


# The noise of sums


def exact_law(scale_bits: int, shares: int) -> NDArray[np.float64]:
    reach = 12 << scale_bits
    single = np.exp(-(np.arange(-reach, reach + 1) ** 2) / 2 / 4**scale_bits)
    single /= single.sum()
    law = single
    for _ in range(shares - 1):
        law = np.convolve(law, single)
    return law


@pytest.mark.parametrize("shares", [1, 2, 5])
def test_sums_of_reports_have_the_law_of_exact_convolution(shares: int) -> None:
    """A chi-square test over a sum's possible values, for shares drawn as in deployment."""
    size = 20_000
    mechanism = SharedGaussian(1.0, 10**6, 3, 16)
    total = mechanism.aggregate(size)
    for number in range(shares):
        total.add(mechanism.encode(np.zeros(size), fresh(number + 1)))
    law = exact_law(3, shares)
    middle, edge = law.size // 2, math.ceil(2.5 * 8 * math.sqrt(shares))
    inside = law[middle - edge : middle + edge + 1]
    found = np.bincount(np.clip(total.total(), -edge - 1, edge + 1) + edge + 1)
    expected = np.array([(1 - inside.sum()) / 2, *inside, (1 - inside.sum()) / 2]) * size
    assert stats.chisquare(found, expected).pvalue > 1e-4


@pytest.mark.parametrize("simulated", [False, True])
def test_a_simulation_has_noise_of_the_same_deviation(simulated: bool) -> None:
    mechanism = SharedGaussian(1.0, 10**6, 6, 24)
    noise = decoded(mechanism, mechanism.encode(np.zeros(100_000), fresh(5, simulated=simulated)))
    assert noise.std() == pytest.approx(64, rel=0.01)
    assert abs(noise.mean()) < 1


# Words and the modulus


@pytest.mark.parametrize(
    "mechanism",
    [
        *(SharedGaussian(1.0, 10**6, 3, bits) for bits in (8, 16, 24, 32)),
        *(IntegerGaussian(10, 1, 3, bits) for bits in (8, 24, 40, 64)),
    ],
)
def test_words_are_sent_in_whole_bytes_and_added_modulo(mechanism: Any) -> None:
    bits = mechanism.bits
    values = np.random.default_rng(bits).integers(-(2**40), 2**40, (5, 100))
    values[0, :3] = -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))
    total = mechanism.aggregate(100)
    for row in values:
        payload = bytes(mechanism.words.pack(row))
        assert len(payload) == 100 * bits // 8 == mechanism.payload_bits(100) // 8
        assert mechanism.words.unpack(payload).tolist() == [int(each) % 2**bits for each in row]
        total.add(payload)
    half = 2 ** (bits - 1)
    signed = [(sum(map(int, column)) + half) % 2**bits - half for column in values.T]
    assert total.total().tolist() == signed


def test_a_sum_counts_clients_whether_they_come_one_by_one_or_summed() -> None:
    mechanism = SharedGaussian(100.0, 11_000, 3, 16)
    values = np.full(SIZE, 0.1)
    payloads = [mechanism.encode(values, fresh(number)) for number in range(9)]
    one_by_one, summed = mechanism.aggregate(SIZE), mechanism.aggregate(SIZE)
    for payload in payloads:
        one_by_one.add(payload)
    words = sum(mechanism.words.unpack(payload).astype(np.int64) for payload in payloads)
    summed.add(mechanism.words.pack(np.asarray(words)).tobytes(), clients=9)
    np.testing.assert_array_equal(one_by_one.mean(), summed.mean())
    with pytest.raises(RunError, match="different models"):
        summed.add(payloads[0][:-1])
    with pytest.raises(RunError, match="no report"):
        mechanism.aggregate(SIZE).mean()


# Calibration


@pytest.mark.parametrize(
    ("size", "mu", "shares"), [(1024, 1e-3, 1), (32768, 0.1, 99), (1024, 3.0, 10_000)]
)
def test_the_noise_meets_its_mu_and_wastes_almost_nothing(
    size: int, mu: float, shares: int
) -> None:
    if mu == 1e-3 and shares == 1:
        return  # so much noise would need a grid of more than 2^16 steps
    found = shared_gaussian(size, mu, shares=shares, clients=shares, rounds=10, words=(32,))
    event = found.event(size)
    reached = shares_mu(event.squared_distance, event.variance, shares)
    assert mu * 0.999 < reached <= mu
    # The noise of the sum over the clip, compared with the continuous mechanism
    noise = math.sqrt(shares) * 2**found.scale_bits / found.radius
    assert 2 / mu <= noise < 1.1 * 2 / mu


def test_sums_do_not_wrap_in_the_worst_case() -> None:
    """All clients send the same rotated vector of full length, with all of their noise."""
    from fedldp.mechanisms.rotation import Rotation

    clients, size = 50, 1000
    mechanism = shared_gaussian(1024, 0.5, shares=50, clients=clients, rounds=1, words=(16,))
    values = Rotation(size, 1).forward(np.eye(size)[:1])[0]
    total = mechanism.aggregate(1024)
    for number in range(clients):
        total.add(mechanism.encode(values, fresh(number)))
    off = total.mean() - values
    assert np.abs(off).max() < 6 * 2**mechanism.scale_bits / mechanism.radius / math.sqrt(clients)


def test_from_settings_one_share_alone_protects_its_client() -> None:
    settings = MechanismSettings(epsilon=2.0, delta=1e-5, clip=1.0, size=650)
    event = SharedGaussian.from_settings(settings).event(1024)
    mu = shares_mu(event.squared_distance, event.variance, 1)
    assert 1.99 < gaussian_epsilon(mu, 1e-5) <= 2.0
    assert Fraction(event.squared_distance, event.variance) > 0


@given(
    one=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6),
    change=st.lists(st.integers(-1000, 1000), min_size=6, max_size=6),
    step=st.integers(1, 500),
)
@example(one=[249] * 6, change=[1] * 6, step=500)  # every coordinate crosses the middle of a step
@settings(max_examples=75)
def test_two_vectors_are_as_close_on_the_coarser_grid_as_the_event_says(
    one: list[int], change: list[int], step: int
) -> None:
    values = np.array(one, float)
    other = values + np.array(change[: len(one)], float)
    distance = math.isqrt(sum(each * each for each in change[: len(one)])) + 1
    mechanism = IntegerGaussian(distance, step, 8, 64)
    gap = (mechanism.bound(values) - mechanism.bound(other)) / step
    event = mechanism.event(len(one))
    assert sum(int(each) ** 2 for each in gap) <= event.squared_distance


@pytest.mark.parametrize(
    ("size", "shares", "epsilon"), [(10, 1, 0.1), (3930, 9, 1.0), (1 << 17, 9, 8.0)]
)
def test_the_noise_is_enough_and_hardly_more(epsilon: float, shares: int, size: int) -> None:
    rounds = 100
    mu = largest_mu(epsilon, 1e-5) / math.sqrt(rounds)
    found = integer_gaussian(
        size, mu, distance=1 << 31, shares=shares, vectors=60_000, largest=1 << 30
    )
    event = found.event(size)
    reached = shares_mu(event.squared_distance, event.variance, shares)
    assert gaussian_epsilon(compose_mu([(reached, rounds)]), 1e-5) <= epsilon
    assert reached > 0.99 * mu
    # The part of the cost that is left for the vectors after that of the grid.
    signal = 2**31 / found.step / math.sqrt(shares * event.variance)
    assert signal > 0.95 * mu


def test_a_modulus_holds_all_vectors_and_the_noise() -> None:
    found = integer_gaussian(4, 0.1, distance=2000, shares=3, vectors=50, largest=1000)
    stream = fresh()
    vectors = np.full((3, 4), 1000.0 * 50 / 3)
    vectors[:, 1] *= -1
    total = found.aggregate(4)
    for vector in vectors:
        total.add(found.encode(vector, stream))
    tolerance = 6 * math.sqrt(3) * found.step * 2**found.scale_bits / 3
    np.testing.assert_allclose(total.mean(), vectors.mean(axis=0), atol=tolerance)


def test_noise_in_deployment_has_the_distribution_of_the_event() -> None:
    mechanism = IntegerGaussian(10, 1, 4, 24)
    words = mechanism.words.unpack(mechanism.encode(np.zeros(20_000), fresh())).astype(np.int64)
    noise = (words + 2**23) % 2**24 - 2**23
    event = mechanism.event(1)
    assert isinstance(event, GaussianShare)
    assert abs(noise.mean()) < 5 * 16 / math.sqrt(20_000)
    assert abs(noise.var() / event.variance - 1) < 5 * math.sqrt(2 / 20_000)


LENGTH = 30
UNIT = common_unit(2.0)
MECHANISMS = [summand(1.0, sigma, UNIT) for sigma in (2.0, 3.7, 60.0)]


def words(mechanism: GaussianSummand, values: np.ndarray, stream: Stream) -> np.ndarray:
    return INTEGERS.unpack(mechanism.encode(values, stream)).view(np.int64)


def whole_steps(mechanism: GaussianSummand, values: np.ndarray, stream: Stream) -> np.ndarray:
    """Return a report on its own grid without the fractions of steps, which only its client can
    do."""
    return (words(mechanism, values, stream) + mechanism.units // 2) // mechanism.units


@pytest.mark.parametrize("mechanism", [*MECHANISMS, *GaussianSummand.examples()], ids=repr)
def test_the_report_is_the_gaussians_times_a_public_number(mechanism: GaussianSummand) -> None:
    """Equal up to fractions of a step, so the guarantee is exactly that of the Gaussian."""
    alone = Gaussian(mechanism.clip, mechanism.sigma)
    values = np.random.default_rng(0).normal(size=LENGTH)
    for stream in (fresh, lambda: Stream.simulation(seed=1, round=1, client=0, purpose="x")):
        report = np.frombuffer(alone.encode(values, stream()), "<i4").astype(np.int64)
        np.testing.assert_array_equal(whole_steps(mechanism, values, stream()), report)
    assert mechanism.event(LENGTH) == alone.event(LENGTH)
    steps = whole_steps(mechanism, values, fresh())
    noise = discrete_gaussian(LENGTH, mechanism.scale_bits, fresh())
    np.testing.assert_array_equal(steps - noise, mechanism.ball.clip(values))
    exact = Fraction(mechanism.sigma) / (1 << mechanism.scale_bits)
    assert (
        mechanism.units * Fraction(mechanism.unit) == exact
    )  # the step of the client's grid, in units


@given(st.floats(1e-3, 1e3), st.floats(1, 1e4), st.floats(1e-2, 10))
def test_the_noise_is_never_less_than_requested(least: float, times: float, clip: float) -> None:
    sigma = least * times
    if not clip / 1e4 <= sigma <= clip * 9e3:
        return
    found = summand(clip, sigma, common_unit(least))
    assert sigma <= found.sigma <= sigma * (1 + 2.0**-10)
    assert found.units * Fraction(found.unit) > 0


def test_a_sum_is_read_with_the_unit_alone() -> None:
    rng = np.random.default_rng(1)
    values = [rng.normal(size=LENGTH) / 10 for _ in MECHANISMS]
    found = MECHANISMS[0].aggregate(LENGTH)  # any client's aggregate works
    summing = MECHANISMS[2].summing(LENGTH, 3)
    exact = np.zeros(LENGTH)
    for number, (mechanism, value) in enumerate(zip(MECHANISMS, values, strict=True)):
        found.add(mechanism.encode(value, fresh(number)))
        exact += whole_steps(mechanism, value, fresh(number)) * mechanism.ball.step
    assert summing.bits == 64
    half = sum(mechanism.ball.step for mechanism in MECHANISMS) / 2  # half a step of each client
    np.testing.assert_allclose(found.mean(), exact / 3, rtol=0, atol=half / 3)


def test_a_sum_does_not_reveal_the_clients_common_deviation() -> None:
    """Neither a common step of all clients nor a common divisor of some steps divides the sum.

    The fractions of steps are uniform, so remainders modulo any number look random.
    """
    size, one = 4000, MECHANISMS[1]
    total = sum(words(one, np.zeros(size), fresh(number)) for number in range(3))
    assert np.gcd.reduce(total) == 1
    for number in (2, one.units, one.units - 1):
        parts = min(number, 8)
        counts = np.bincount(total % number * parts // number, minlength=parts)
        expected = np.bincount(np.arange(number) * parts // number) * size / number
        assert (
            (counts - expected) ** 2 / expected
        ).sum() < 40  # 7 degrees of freedom: probability 1e-6


def test_noise_that_leaves_no_room_is_refused() -> None:
    assert MECHANISMS[2].fits(1000)
    assert not MECHANISMS[2].fits(1 << 30)
    for mechanism in MECHANISMS:
        widest = mechanism.ball.radius + (64 << mechanism.scale_bits)
        assert 1000 * widest * mechanism.units < 1 << 63


STEPS = BoundedSteps(Gaussian(0.5, 2.0))
STEPS_SIZE, MOST = 40, 5


def words_of_steps(values: np.ndarray) -> np.ndarray:
    payload = STEPS.encode(values, fresh())
    return INTEGERS.unpack(payload).view(np.int64)


@given(st.integers(0, 2**32), st.floats(1e-12, 1e30), st.floats(1e-12, 1e30))
def test_replacing_a_client_moves_a_sum_by_at_most_the_sensitivity(
    seed: int, one: float, other: float
) -> None:
    """Checked in exact integers, including rounding, for vectors of any length and direction."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=STEPS_SIZE)
    first, second = words_of_steps(direction * one), words_of_steps(-direction * other)
    squared = sum((int(a) - int(b)) ** 2 for a, b in zip(first, second, strict=True))
    assert squared <= STEPS.ball.sensitivity**2
    for each in (first, second):
        assert sum(int(a) ** 2 for a in each) <= STEPS.ball.radius**2


def test_the_radius_is_the_clip_in_steps_rounded_down() -> None:
    exact = Fraction(0.5) / Fraction(2.0) * STEPS.noise.proven_scale
    assert exact - 1 < STEPS.ball.radius <= exact
    event = STEPS.noised(STEPS_SIZE)
    assert event == STEPS.noise.event(STEPS_SIZE)
    mu = Fraction(2 * STEPS.ball.radius) / (
        (1 << STEPS.noise.scale_bits) - Fraction(16, 1 << STEPS.noise.scale_bits)
    )
    assert mu <= Fraction(event.mu) < mu * (1 + Fraction(1, 10**12))


def test_a_single_report_is_in_clear_and_draws_nothing() -> None:
    event = STEPS.event(STEPS_SIZE)
    assert isinstance(event, InClear)
    assert CLIPPED_UPDATES in event.sent
    values = np.full(STEPS_SIZE, 1e-3)
    assert STEPS.encode(values, fresh(1)) == STEPS.encode(values, fresh(2))
    with pytest.raises(ConfigError, match="too long"):
        BoundedSteps(Gaussian(1.0, 1e4)).event(1 << 20)


def test_the_servers_noise_is_the_exact_sampler_of_its_secret_stream() -> None:
    total = np.arange(STEPS_SIZE, dtype=np.int64)
    found = STEPS.noisy(total, fresh())
    expected = total + discrete_gaussian(STEPS_SIZE, STEPS.noise.scale_bits, fresh())
    np.testing.assert_array_equal(found, expected)


def summed(totals: np.ndarray) -> np.ndarray:
    """Return what a server reads from a secure sum with the total words ``totals``."""
    summing: Summing = STEPS.summing(STEPS_SIZE, MOST)
    modulus = 1 << summing.bits
    raised = np.array([int(each) % modulus for each in totals], np.uint64)
    found = summing.total(1, raised, MOST)
    assert isinstance(found, Report)
    assert found.weight == MOST
    return INTEGERS.unpack(found.payload).view(np.int64)


def test_noise_hides_neighbours_even_if_others_make_the_sum_wrap() -> None:
    """A lying site may push a sum to the end of the modulus, and an honest site beyond it.

    Neighbouring sums then read as numbers nearly a modulus apart. With the noise added in the same
    modulus, they are neighbours around the ring: both carry the same noise.
    """
    half = 1 << 63
    below, above = ([end] * STEPS_SIZE for end in (half - 1, half))
    read = [summed(np.array(each, object)) for each in (below, above)]
    assert int(read[0][0]) - int(read[1][0]) == 2 * half - 1
    noisy = [STEPS.noisy(each, fresh()) for each in read]
    apart = {int(b) - int(a) for a, b in zip(*noisy, strict=True)}
    assert apart <= {1, 1 - 2 * half}
    assert {each < 0 for each in noisy[0].tolist()} == {True, False}  # in both directions
