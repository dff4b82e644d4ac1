"""The quick mode's trials find planted mistakes, at a confidence of 99.9 %."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import planted
import pytest

from fedldp.audit.efforts import QUICK
from fedldp.audit.mechanisms import audit
from fedldp.mechanisms import Mechanism

# Where each mistake shows: the cheapest setting of the quick mode.
BUGS: list[tuple[type[Mechanism], tuple[float, int]]] = [
    (planted.Float32Probabilities, (12.0, 1)),
    (planted.MissingClip, (1.0, 1)),
    (planted.WrongK, (1.0, 1)),
    (planted.ClampedProbability, (1.0, 1)),
    (planted.ClosedThreshold, (12.0, 1)),
    (planted.LaplaceForC, (1.0, 1)),
    (planted.GaussianForC, (12.0, 1)),
    (planted.StreamTwice, (0.5, 8)),
    (planted.OneStreamForAll, (1.0, 1)),
    (planted.PrivateRange, (4.0, 64)),
    (planted.SentRange, (0.5, 8)),
    (planted.LengthTells, (1.0, 1)),
    (planted.RefusalTells, (1.0, 1)),
]
LONG = {
    planted.GaussianForC, planted.LaplaceForC, planted.MissingClip, planted.PrivateRange,
    planted.SentRange,
}  # fmt: skip


# Mistakes that need many trials, or have a slow mechanism, are slow tests.
@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("cls", "setting"),
    [
        pytest.param(*bug, id=bug[0].__name__, marks=[pytest.mark.slow] * (bug[0] in LONG))
        for bug in BUGS
    ],
)
def test_a_planted_bug_is_found(cls: type[Mechanism], setting: tuple[float, int]) -> None:
    assert setting in QUICK.mechanism_settings
    found = audit(cls.__name__, [cls], effort=replace(QUICK, mechanism_settings=(setting,)))
    assert found.verdict == "bug"
    assert found.confidence == 0.999


@pytest.mark.slow
def test_a_planted_bug_is_found_among_all_settings() -> None:
    """The bug shows in one setting only, and all settings share the confidence."""
    assert audit("MissingClip", [planted.MissingClip], effort=QUICK).verdict == "bug"


@pytest.mark.parametrize(
    "setting",
    [pytest.param(s, id=str(s), marks=[pytest.mark.slow, pytest.mark.spare][: 1 + (at == 0)])
     for at, s in enumerate(QUICK.mechanism_settings)],
)  # fmt: skip
def test_the_correct_mechanism_passes(setting: tuple[float, int]) -> None:
    found = audit("", [planted.FloatBits], effort=replace(QUICK, mechanism_settings=(setting,)))
    assert found.verdict == "ok"


def true_epsilon(mechanism: planted.Float32Probabilities) -> float:
    """Return the epsilon of a coordinate, where the float32 U is one of 2^24 numbers k 2^-24."""
    high, low = (
        math.ceil(float(mechanism.probabilities(np.array([x]))[0]) * 2**24) for x in (1.0, -1.0)
    )
    full = 1 << 24
    return max(math.log(high / low), math.log((full - low) / (full - high)))


def test_what_float32_costs_at_epsilon_12() -> None:
    """With a centre, the error is large and found; without one, it is too small for such an
    audit."""
    assert true_epsilon(planted.Float32Probabilities(12.0)) > 12.5
    assert 12 < true_epsilon(planted.PlainFloat32(12.0)) < 12.01
