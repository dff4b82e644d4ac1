"""Uneven noise is claimed for the noise that is drawn."""

from __future__ import annotations

from typing import Any

import pytest

from fedldp.algorithms.bounds import InNorm
from fedldp.core.errors import PrivacyError
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.papers.priority.importance import FirstLayer, NoisierFeatures
from fedldp.papers.priority.parts import UnevenRelease
from fedldp.protocol.wire import Layout

SIZE = 13


def test_uneven_noise_is_claimed_for_the_noise_that_is_drawn() -> None:
    layer = FirstLayer(Layout(names=("a.weight",), shapes=((1, SIZE),)))
    noisier = NoisierFeatures(
        first_layer=layer, least=Gaussian(1.0, 2.0), ratio=3.0, which="least", share=0.5
    )
    right: dict[str, Any] = {
        "bound": InNorm(clip=1.0), "size": SIZE, "noisier": noisier, "ranks": "public"
    }  # fmt: skip
    assert UnevenRelease(mechanism=noisier.least, **right).event() == noisier.least.event(SIZE)
    with pytest.raises(PrivacyError, match="least noise"):
        UnevenRelease(mechanism=Gaussian(1.0, 200.0), **right)
