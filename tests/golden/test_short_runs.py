"""Short runs with recorded numbers, which no refactoring may change.

What integers decide is exact, so it hashes to the same value on every machine; what logarithms
decide is rounded first. tests/gate has the bytes of whole runs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedldp
from fedldp.algorithms.presets.dp_sgd import NoisySteps, dp_sgd
from fedldp.algorithms.problem import Problem
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.rotation import Rotation
from fedldp.papers.ldpfl.parts import OnBits
from fedldp.papers.priority.importance import variance_importance
from fedldp.papers.priority.parts import first_layer_of
from fedldp.papers.priority.preset import priority
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Update
from fedldp.protocol.wire import Broadcast, Report
from fedldp.testing.clients import Roles, client_of, sender_of

DIGITS = Problem((1, 8, 8), 10, 1437)


def numbers(size: int, unit: int) -> np.ndarray:
    """Return integers over ``unit``, which are the same float32 on every machine."""
    return ((np.arange(size) * 37 % 1001 - 500) / np.float32(unit)).astype(np.float32)


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]


def roles_of(name: str, **settings: Any) -> tuple[Any, Roles]:
    config = fedldp.recipe(name, **settings)
    return config, Roles(config.with_schedule(draws_of_seed(config.seed)), DIGITS)


# Reports


def first_round(name: str, *, changes: bool = False, **settings: Any) -> list[Report]:
    """Return the first round's reports of three clients.

    Their weights are given and exceed the range at both ends, or their changes of the broadcast's.
    """
    config, roles = roles_of(name, **settings)
    start, size = roles.broadcast, roles.layout.size
    given = [
        start.weights + numbers(size, 4096) / np.float32(2**client)
        if changes
        else numbers(size, 1000) / np.float32(client + 1)
        for client in range(3)
    ]
    return [
        roles.encode(weights, start, sender_of(7, client, seed=config.seed))
        for client, weights in enumerate(given)
    ]


PLAIN = {"num_clients": 3, "range_radius": 0.2}
MIX = {"num_clients": 3, "epsilon": [1.0, 5.0, 10.0], "num_examples": 300, "rounds": 10}
BARE = {**MIX, "aggregation": "mean", "epsilon": None}
SIGN = {**MIX, "perturbation": "sign"}
CLDP = {"changes": True}
FEDAVG = "350df5cff8ff7ee112530cd77f50f1e1"


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("quickstart", PLAIN, "2132230fcb5e71b8329ddac2e94ed3c2"),
        (
            "quickstart",
            {**PLAIN, "epsilon": [0.1, 4.0, 32.0]},
            "2dd76c2c1d0d60e527a6615f5c611e7c",
        ),
        ("fedavg-quickstart", {"num_clients": 3}, FEDAVG),
        (
            "personalized-digits",
            {**MIX, "clip": [0.2, 0.3, 200.0]},
            "39864882d7039eba06268bb61985d287",
        ),
        ("personalized-digits", {**SIGN, "clip": 0.4}, "87e67a89f7a26fff5a13bc1dbe352122"),
        ("personalized-digits", {**BARE, "perturbation": "none"}, FEDAVG),
        ("personalized-sound-digits", MIX, "39d95b7333e9eccc8cd4ab8c97b7a0a4"),
        (
            "personalized-sound-digits",
            {**SIGN, "participation": "preselected"},
            "8fabe07158c5a969b5f83ba5078242a7",
        ),
        ("cldp-fed-digits", CLDP, "186b0f0302ce1edc4565c9fba0292129"),
        (
            "cldp-fed-digits",
            {**CLDP, "alpha": 1.0, "clip": 1.0, "precision": 10},
            "9e50728c4c55e071947be33b61046a68",
        ),
    ],
)
def test_the_first_reports(name: str, settings: dict[str, Any], expected: str) -> None:
    reports = first_round(name, **settings)
    assert digest(*(report.payload for report in reports)) == expected
    named = name.startswith("personalized")
    assert [report.client for report in reports] == ([0, 1, 2] if named else [None] * 3)


def test_the_first_report_in_full() -> None:
    report = first_round("quickstart", **PLAIN, chunk=10)[0]
    assert (report.round, report.size, report.chunk) == (1, 650, 10)
    assert (report.weight, report.epsilon) == (None, None)
    assert len(report.payload) == 82
    assert report.payload[:16].hex() == "01047f58f27c9a00376cc203dde466ff"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ldpfl-digits", "89fd500c5fcef510d247fe8c7f1f31d6"),
        ("ldpfl-sound-digits", "2e923911ee4147d04cb9fe6842fb0da1"),
    ],
)
def test_the_first_report_of_ldpfl(name: str, expected: str) -> None:
    assert digest(first_round(name)[0].payload) == expected


def test_the_reports_of_privunit_fl() -> None:
    """Lengths are exact; the last digit of a direction depends on the machine's logarithm."""
    found = [report.payload for report in first_round("privunit-fl-digits", changes=True)]
    assert [len(payload) for payload in found] == [2601] * 3
    assert [payload[-1] for payload in found] == [3, 3, 1]
    directions = np.array([np.frombuffer(payload, "<f4", 3) for payload in found])
    expected = [
        [-0.0428446, -0.0004288, -0.0536444],
        [0.0035680, -0.0104104, -0.0335292],
        [0.0038461, -0.0124921, -0.0416124],
    ]
    np.testing.assert_allclose(directions, expected, atol=2e-7)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("nbafl-digits", {}, "69d679c86ac884d297b2a45babda898a"),
        ("nbafl-digits", {"send": "update", "seed": 1}, "407be39deba1a67815530bc4b7b1ccb5"),
        ("priority-digits", {}, "c3fec5724362a4577f1353bf0e9b73e3"),
        (
            "priority-digits",
            {"noisier": "most", "model": "mlp"},
            "5495d240b802ab565cdd5a37cdd65167",
        ),
        ("priority-public-digits", {}, "dbece32c608a3ab48cf76d366bbbcbe4"),
    ],
)
def test_the_noisy_reports_of_round_2(name: str, settings: dict[str, Any], expected: str) -> None:
    config, roles = roles_of(name, num_clients=3, **settings)
    size, start = roles.layout.size, roles.broadcast
    weights = numbers(size, 16384)
    public = {name: np.arange(values.size) * 7 % 64 / 64 for name, values in start.public.items()}
    broadcast = Broadcast(round=2, weights=weights, public=public)
    steps = (np.arange(size) % 19 - 9) / np.float32(2048)

    def update(client: int) -> Any:
        after = weights + np.float32(client + 1) * steps
        if not isinstance(config, priority):
            return after
        pair = map(first_layer_of(config, DIGITS).weights, (weights, after))
        importance = variance_importance(*pair)
        return Update(rows=after[None], aux={"importance": importance[None]})

    senders = [sender_of(9, client, seed=config.seed, round=2) for client in range(3)]
    payloads = [
        roles.encode(update(client), broadcast, sender).payload
        for client, sender in enumerate(senders)
    ]
    rounded = np.round(np.frombuffer(b"".join(payloads), "<i4") / 4096).astype("<i4")
    assert digest(rounded.tobytes()) == expected


def test_the_report_of_a_client_with_its_own_keys() -> None:
    """Drawn as in deployment, with integers only, so the same bits on every machine."""
    mechanism = SharedGaussian(1000.0, 1_020_000, 8, 24)
    rotated = Rotation(650, 7).forward(numbers(650, 4096)[None].astype(np.float64) / 4)[0]
    payload = mechanism.encode(rotated, Stream(bytes(range(32)), simulated=False))
    assert digest(payload) == "d7a24fa5bf55687a72f0574fc4670934"


# What servers and clients compute


def test_the_samples_of_a_client_of_dp_sgd() -> None:
    config, _ = roles_of("dp-sgd-digits")
    assert isinstance(config, dp_sgd)
    client = client_of(load_dataset("digits").train)
    sums = NoisySteps(settings=config).sums(DIGITS)
    samples = list(sums.samples(client.fresh("batches"), len(client.examples)))
    assert [len(places) for places in samples] == [250, 254, 235, 250, 240, 223]
    assert samples[0][:8].tolist() == [2, 3, 4, 15, 22, 23, 42, 55]


class GivenFeatures:
    """Stands in for an encoder, with features that no processor rounds and that exceed the codes'
    range at both ends."""

    def features(self, images: np.ndarray, device: torch.device) -> np.ndarray:
        found = (np.arange(40 * 128) * 37 % 1101 - 550) / np.float32(32)
        return found.astype(np.float32).reshape(40, 128)[: len(images)]


OF_DIGITS = "d2e569ff258da19d4c6c85251d92ec91"


@pytest.mark.parametrize(
    ("name", "changes", "bits", "labels"),
    [
        ("ldpfl-digits", {}, "3cffe53e3bf976b0510becbf7728139f", OF_DIGITS),
        (
            "ldpfl-digits",
            {"randomisation": "symmetric", "epsilon": 500.0},
            "7685ecf50a571985f5bfba91d934a1b5",
            OF_DIGITS,
        ),
        (
            "ldpfl-digits-public",
            {"seed": 1},
            "ba3a4cbc2b77e94a6f74861a292111f8",
            "6492fe938e740c3b78470d3e39d05efa",
        ),
    ],
)
def test_the_bits_that_a_client_of_ldpfl_keeps(
    name: str,
    changes: dict[str, Any],
    bits: str,
    labels: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, _ = roles_of(name, **changes)
    local = config.composition.local
    assert isinstance(local, OnBits)
    codes = local.codes(DIGITS, torch.device("cpu"))
    monkeypatch.setattr(type(codes), "_encoder", lambda *_: GivenFeatures())
    broadcast = Broadcast(round=1, weights=np.zeros(1, np.float32))
    examples = Examples(np.zeros((40, 1, 8, 8), np.float32), np.arange(40) % 10)
    kept = codes.for_training(broadcast, client_of(examples, folder=tmp_path, seed=config.seed))
    assert kept["bits"].shape == (36, 160)
    assert digest(kept["bits"].tobytes()) == bits
    assert digest(kept["labels"].astype("<i8").tobytes()) == labels
