"""More noise in some coordinates: its deviation, and the guarantee from the least noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scripted import deployed

from fedldp.algorithms.bounds import InNorm
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.priority.importance import FirstLayer
from fedldp.papers.priority.mechanism import UnevenGaussian, check_ratio
from fedldp.papers.priority.parts import UnevenRelease
from fedldp.protocol.wire import Layout

SIZE = 20_000
NOISIER = np.arange(SIZE) % 4 == 1


def simulated(number: int = 0) -> Stream:
    return Stream.simulation(seed=number, round=1, client=0, purpose="mechanism")


def sent(mechanism: Gaussian, values: np.ndarray, stream: Stream) -> np.ndarray:
    indices = np.frombuffer(mechanism.encode(values, stream), "<i4")
    return indices * mechanism.ball.step


@pytest.mark.parametrize("stream", [simulated, deployed])
@pytest.mark.parametrize(("clip", "sigma", "ratio"), [(5.0, 0.07, 20.0), (1.0, 2.5, 3.0)])
def test_every_coordinate_has_its_noise(
    clip: float, sigma: float, ratio: float, stream: type[Stream]
) -> None:
    mechanism = UnevenGaussian(clip, sigma, NOISIER, ratio)
    noise = sent(mechanism, np.zeros(SIZE), stream())
    deviations = np.sqrt(mechanism.variance(np.zeros(SIZE)))
    np.testing.assert_allclose(np.unique(deviations), [sigma, ratio * sigma])
    for part, deviation in ((NOISIER, ratio * sigma), (~NOISIER, sigma)):
        np.testing.assert_allclose(deviations[part], deviation)
        assert stats.kstest(noise[part] / deviation, "norm").pvalue > 1e-3


@given(
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.floats(1.0, 60.0),
    st.floats(0.5, 10.0),
    st.integers(0, 1000),
)
def test_the_report_is_the_even_one_with_more_noise(
    noisier: list[bool], ratio: float, clip: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(scale=5, size=5)
    even, mask = Gaussian(clip, 1.0), np.array(noisier)
    uneven = UnevenGaussian(clip, 1.0, mask, ratio)
    first = np.frombuffer(even.encode(values, simulated(seed)), "<i4")
    second = np.frombuffer(uneven.encode(values, simulated(seed)), "<i4")
    np.testing.assert_array_equal(first[~mask], second[~mask])
    # The added noise depends neither on the values nor on the noise of the even report.
    other = np.frombuffer(even.encode(-values, simulated(seed)), "<i4")
    moved = np.frombuffer(uneven.encode(-values, simulated(seed)), "<i4")
    np.testing.assert_array_equal(second - first, moved - other)


def test_the_guarantee_is_that_of_the_least_noise() -> None:
    even, uneven = Gaussian(5.0, 0.07), UnevenGaussian(5.0, 0.07, NOISIER, 20.0)
    assert uneven.event(SIZE) == even.event(SIZE)
    exact = 2 * 5.0 / 0.07  # the whole difference may be where the noise is smallest
    assert uneven.event(SIZE).mu == pytest.approx(exact, rel=1e-4)
    assert uneven.event(SIZE).mu <= exact * (1 + 1e-9)


def test_all_or_no_coordinates_may_be_noisier() -> None:
    none = UnevenGaussian(1.0, 1.0, np.zeros(SIZE, np.bool_), 5.0)
    everyone = UnevenGaussian(1.0, 1.0, np.ones(SIZE, np.bool_), 5.0)
    zeros = np.zeros(SIZE)
    even = Gaussian(1.0, 1.0).encode(zeros, simulated())
    for stream in (simulated, deployed):
        assert np.std(sent(none, zeros, stream())) == pytest.approx(1.0, rel=0.03)
        assert np.std(sent(everyone, zeros, stream())) == pytest.approx(5.0, rel=0.03)
    assert none.encode(zeros, simulated()) == even


@pytest.mark.parametrize(("clip", "sigma"), [(1e-9, 1e-5), (1.0, 1.0), (5.0, 0.07), (1e4, 1.0)])
def test_ratios_that_the_integers_cannot_hold_are_refused(clip: float, sigma: float) -> None:
    least = Gaussian(clip, sigma)
    for ratio in (0.99, 0.0, float("nan"), float("inf"), 1e12):
        with pytest.raises(ConfigError, match="times as much noise"):
            check_ratio(least, ratio)
        with pytest.raises(ConfigError, match="times as much noise"):
            UnevenGaussian(clip, sigma, NOISIER, ratio)
    largest = 2.0**31 / 8 / 2**least.scale_bits * 0.9
    check_ratio(least, 1.0)
    check_ratio(least, largest)
    # Eight deviations of the noise plus the longest coordinate fit into 32 bits.
    assert least.ball.radius + 8 * largest * 2**least.scale_bits < 2**31


def test_nan_is_refused() -> None:
    values = np.zeros(SIZE)
    values[7] = np.nan
    with pytest.raises(PrivacyError):
        UnevenGaussian(1.0, 1.0, NOISIER, 2.0).encode(values, simulated())


def test_a_release_is_claimed_for_the_noise_that_is_drawn() -> None:
    layer, least = FirstLayer(Layout(names=("a.weight",), shapes=((1, 13),))), Gaussian(1.0, 2.0)
    release = UnevenRelease(
        bound=InNorm(clip=1.0), mechanism=least, size=13, first_layer=layer, ratio=3.0,
        which="least", share=0.5, ranks="public",
    )  # fmt: skip
    assert release.event() == least.event(13)
    drawn = release.uneven(release.picked_in(2, np.arange(13.0)))
    assert (drawn.clip, drawn.sigma, drawn.noisier.sum()) == (least.clip, least.sigma, 6)
    assert not release.picked_in(1, np.arange(13.0)).any()
