"""The quick mode's trials find planted mistakes, at a confidence of 99.9 %."""

from __future__ import annotations

from dataclasses import replace

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "setting"),
    [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS],
)
def test_a_planted_bug_is_found(cls: type[Mechanism], setting: tuple[float, int]) -> None:
    assert setting in QUICK.mechanism_settings
    found = audit(cls.__name__, [cls], effort=replace(QUICK, mechanism_settings=(setting,)))
    assert found.verdict == "bug"
    assert found.confidence == 0.999


@pytest.mark.slow
@pytest.mark.parametrize("setting", QUICK.mechanism_settings, ids=str)
def test_the_correct_mechanism_passes(setting: tuple[float, int]) -> None:
    found = audit("", [planted.FloatBits], effort=replace(QUICK, mechanism_settings=(setting,)))
    assert found.verdict == "ok"
