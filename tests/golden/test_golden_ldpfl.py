"""Short runs of LDPFL with recorded numbers, which no refactoring may change.

Randomised bits of given features, and reports for given weights, are exact.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.data import Examples
from fedldp.papers.ldpfl.parts import OnBits
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import Roles, client_of, sender_of

PROBLEM = Problem((1, 8, 8), 10, 1437)
EXAMPLES = Examples(np.zeros((40, 1, 8, 8), np.float32), np.arange(40) % 10)
# Integers divided by 32, so exact in float32 on every machine; they exceed the codes' range at both
# ends.
FEATURES = ((np.arange(40 * 128) * 37 % 1101 - 550) / np.float32(32)).astype(np.float32)


class GivenFeatures:
    """Stands in for an encoder, with features that no processor rounds."""

    def features(self, images: np.ndarray, device: torch.device) -> np.ndarray:
        return FEATURES.reshape(40, 128)[: len(images)]


@pytest.mark.parametrize(
    ("name", "changes", "bits", "labels"),
    [
        (
            "ldpfl-digits",
            {},
            "3cffe53e3bf976b0510becbf7728139f",
            "d2e569ff258da19d4c6c85251d92ec91",
        ),
        (
            "ldpfl-digits",
            {"randomisation": "symmetric", "epsilon": 500.0},
            "7685ecf50a571985f5bfba91d934a1b5",
            "d2e569ff258da19d4c6c85251d92ec91",
        ),
        (
            "ldpfl-digits-public",
            {"seed": 1},
            "ba3a4cbc2b77e94a6f74861a292111f8",
            "6492fe938e740c3b78470d3e39d05efa",
        ),
    ],
)
def test_the_kept_bits_of_given_features(
    name: str,
    changes: dict[str, Any],
    bits: str,
    labels: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = fedldp.recipe(name, **changes)
    local = config.composition.local
    assert isinstance(local, OnBits)
    codes = local.codes(PROBLEM, torch.device("cpu"))
    monkeypatch.setattr(type(codes), "_encoder", lambda *_: GivenFeatures())
    broadcast = Broadcast(round=1, weights=np.zeros(1, np.float32))
    own = client_of(EXAMPLES, folder=tmp_path, seed=config.seed)
    kept = codes.for_training(broadcast, own)
    assert kept["bits"].shape == (36, 160)
    assert (digest(kept["bits"]), digest(kept["labels"].astype("<i8"))) == (bits, labels)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ldpfl-digits", "89fd500c5fcef510d247fe8c7f1f31d6"),
        ("ldpfl-sound-digits", "2e923911ee4147d04cb9fe6842fb0da1"),
    ],
)
def test_the_reports_for_given_weights(name: str, expected: str) -> None:
    roles = Roles(fedldp.recipe(name), PROBLEM)
    size = roles.layout.size
    weights = ((np.arange(size) * 37 % 1001 - 500) / np.float32(1000)).astype(np.float32)
    report = roles.encode(weights, roles.broadcast, sender_of(len(EXAMPLES)))
    assert digest(np.frombuffer(report.payload, np.uint8)) == expected


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()[:32]
