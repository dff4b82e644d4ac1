"""Signs of Gaussian noise are calibrated as the noise itself."""

from __future__ import annotations

from dataclasses import replace

from fedldp.algorithms.calibration import PerRun
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.personalized.mechanism_gaussian_sign import GaussianSign

COMMON = PerRun(epsilon=2.0, delta=1e-5, clip=1.5, rounds=12)


def test_signs_have_the_same_noise() -> None:
    signs = replace(COMMON, kind=GaussianSign).gaussian(0)
    assert isinstance(signs, GaussianSign)
    assert type(COMMON.gaussian(0)) is Gaussian
    assert (signs.clip, signs.sigma) == (1.5, COMMON.sigma(0))
