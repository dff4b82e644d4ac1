"""What NbAFL's reports and statement reveal."""

from __future__ import annotations

import pytest

from fedldp.papers.nbafl.parts import NbaflNoise
from fedldp.papers.nbafl.preset import nbafl
from fedldp.testing.clients import lines
from fedldp.testing.data import SMALL

# NbAFL and feature priority


def test_nbafl_has_its_published_noise_and_the_guarantee_of_its_clip() -> None:
    common = {"clip": 5.0, "delta": 0.01, "rounds": 25, "clients": 30, "smallest": 1120}
    every, single = NbaflNoise(**common, exposures=25), NbaflNoise(**common, exposures=1)
    assert every.uplink_sigma(0.5) == pytest.approx(1.38728190182689, rel=1e-14)
    assert every.downlink_sigma(0.5) == 0
    assert single.uplink_sigma(1.0) == pytest.approx(0.0277456380365379, rel=1e-14)
    assert single.downlink_sigma(1.0) == pytest.approx(0.022559628540147, rel=1e-14)
    for noise, epsilon in ((every, 0.5), (single, 1.0)):
        event = noise.mechanism(epsilon).event(1000)
        assert event.mu == pytest.approx(2 * 5 / noise.uplink_sigma(epsilon), rel=1e-6)


def test_an_example_count_in_clear_leaves_no_guarantee() -> None:
    for send in ("weights", "update"):
        config = nbafl(**SMALL, epsilon=1.0, clip=1.0, weighting="examples", send=send)
        assert {line["kind"] for line in lines(config, "client-run")} == {"none"}


# DP-SGD


# Central DP


# PrivUnit FL


# The recipes
