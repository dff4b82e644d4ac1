"""Short runs of the distributed Gaussian with recorded numbers, which no refactoring may change."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder
from fedldp.core.randomness import Stream
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.rotation import Rotation
from fedldp.testing.clients import Roles

# Integers divided by a power of two, so exact in float32 on every machine.
CHANGE = ((np.arange(650) * 37 % 1001 - 500) / np.float32(4096)).astype(np.float32)


def test_the_report_of_a_client_with_its_own_keys() -> None:
    """Drawn as in deployment, with integers only, so the same bits on every machine."""
    mechanism = SharedGaussian(1000.0, 1_020_000, 8, 24)
    rotated = Rotation(650, 7).forward(CHANGE[None].astype(np.float64) / 4)[0]
    payload = mechanism.encode(rotated, Stream(bytes(range(32)), simulated=False))
    assert hashlib.sha256(payload).hexdigest()[:32] == "d7a24fa5bf55687a72f0574fc4670934"


def test_the_noise_for_a_budget() -> None:
    found = fedldp.recipe("distributed-gaussian-digits")
    encoder = Roles(found, Problem((1, 8, 8), 10, 1437)).encoder()
    assert isinstance(encoder, Encoder)
    mechanism = encoder.release.mechanism
    assert isinstance(mechanism, SharedGaussian)
    assert (mechanism.scale_bits, mechanism.squared_norm) == (16, 29803400271)
    assert mechanism.radius == pytest.approx(172633.9794490621, rel=1e-9)
