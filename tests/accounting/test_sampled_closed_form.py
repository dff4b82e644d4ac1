"""One sampled sum, in closed form with forty digits, costs what is printed."""

from __future__ import annotations

from typing import Any, Literal

import mpmath
import pytest

from fedldp.accounting.numerics.subsampled import SampledRelease, sampled_epsilon


def excess(release: SampledRelease, epsilon: float) -> Any:
    """Return the largest P(A) - e^epsilon Q(A) over half-lines A: P/Q increases."""
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


@pytest.mark.parametrize(
    ("rate", "noise", "sample"),
    [
        (1e-4, 0.051, "poisson"),
        (0.03, 1.0, "fixed-size"),
        (0.9, 1e3, "fixed-size"),
        (1.0, 0.3, "poisson"),
        (1e-4, 20.0, "poisson"),
    ],
)
def test_a_sampled_release_costs_the_printed_figure(
    sample: Literal["poisson", "fixed-size"], noise: float, rate: float
) -> None:
    release = SampledRelease(noise_multiplier=noise, sampling_rate=rate, sample=sample)
    with mpmath.workdps(40):
        for delta in (1e-12, 1e-5, 0.1):
            reached = excess(release, sampled_epsilon({release: 1}, delta))
            assert reached <= delta * (1 + mpmath.mpf(10) ** -9)
