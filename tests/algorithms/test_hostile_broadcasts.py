"""A broadcast that makes training overflow on some examples only, reveals nothing about them.

Its weights are finite: 3e38 for two pixels of one class. If both are bright in an image, its logit
    is beyond float32 and training gives NaN. A client that then refused would reveal whether the
    second pixel is bright. A client's own policy refuses such weights; these tests bypass it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedldp.algorithms.problem import Problem
from fedldp.core.bounding import LARGEST_WEIGHT
from fedldp.data import Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.keys import SimulationKeys
from fedldp.protocol.roles import Batch, ClientRole
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    RoundRequest,
    Sensitive,
    pack_request,
    read_reply_to,
)
from fedldp.simulation.settings import from_mapping
from fedldp.testing.clients import Roles, client_of, trained
from fedldp.testing.data import SMALL

COUNT = 20
PROBLEM = Problem((1, 8, 8), 10, 3 * COUNT)
CLASS, FIRST, SECOND = 4, 27, 36
PLACE = 7
"""The image whose second pixel must stay hidden."""

SETTINGS: dict[str, dict[str, Any]] = {
    "nbafl, examples": {"epsilon": 1.0, "clip": 1.0, "weighting": "examples"},
    "priority, sensitivity": {
        "epsilon_low": 1.0, "epsilon_high": 10.0, "clip": 1.0, "noisier_share": 0.4,
        "model": "mlp", "importance": "sensitivity",
    },
    "personalized, bare-sign": {
        "rounds": 1, "sampling_probability": 0.99, "clip": 1.0, "perturbation": "bare-sign",
    },
    "dp_sgd": {"noise_multiplier": 1.0, "batch_size": COUNT},
    "central_dp": {"noise_multiplier": 1.0, "clip": 1.0},
    "privunit_fl": {"epsilon": 10.0},
    "distributed_gaussian": {"epsilon": 10.0},
}  # fmt: skip
every_system = pytest.mark.parametrize("name", SETTINGS)


def roles_of(name: str) -> Roles:
    system = name.partition(",")[0]
    return Roles(from_mapping({**SMALL, "system": system, **SETTINGS[name]}), PROBLEM)


def told(roles: Roles, size: float = 3e38) -> Broadcast:
    """Return the hostile broadcast, in which all weights but two are 0."""
    weights = np.zeros(roles.layout.size, np.float32)
    dense = weights[: roles.layout.sizes[0]].reshape(roles.layout.shapes[0])
    dense[CLASS, [FIRST, SECOND]] = size
    return replace(roles.broadcast, weights=weights)


def examples_with(pixel: float, *, label: int = CLASS) -> Examples:
    """Return images with a first pixel of 1, and a second pixel of 0 except in one image."""
    features = np.random.default_rng(0).random((COUNT, 64), dtype=np.float32)
    features[:, FIRST], features[:, SECOND] = 1, 0
    features[PLACE, SECOND] = pixel
    labels = np.full(COUNT, CLASS)
    labels[PLACE] = label
    return Examples(features.reshape(COUNT, 1, 8, 8), labels)


def reports(roles: Roles, pixels: list[float], *, label: int = CLASS) -> Iterator[Report]:
    for pixel in pixels:
        yield roles.report(told(roles), client_of(examples_with(pixel, label=label)))


DARK, BRIGHT = [0.0, 0.05, 0.1], [0.2, 0.6, 1.0]
"""Values of the second pixel. Each weight is 3e38, and 3.4e38 or more is infinite."""


@pytest.mark.parametrize("name", [n for n in SETTINGS if n != "priority, sensitivity"])
def test_the_bytes_of_a_report_do_not_depend_on_the_pixel(name: str) -> None:
    """All images have the class that the model predicts, so without overflow nothing changes.

    The accuracy's dependence on a pixel, which priority by sensitivity releases, does change.
    """
    roles = roles_of(name)
    for pixels, finite in ((DARK, True), (BRIGHT, name == "dp_sgd")):
        for pixel in pixels:
            found = trained(roles.local_update, told(roles), client_of(examples_with(pixel)))
            assert np.isfinite(found).all() == finite, "or this test shows nothing"
    sent = list(reports(roles, [*DARK, *BRIGHT]))
    assert len({report.payload for report in sent}) == 1
    assert all(report == sent[0] for report in sent)


# The client's own policy


def answered(roles: Roles, weights: np.ndarray, step: Any, folder: Path) -> Report | Refusal:
    """Return a client's answer, in bytes, to a request with these weights."""
    runtime = ClientRuntime.of_one(
        index=0,
        examples=examples_with(1.0),
        role=ClientRole(local_update=step, encoder=roles.encoder()),
        policy=Policy(run="run", rounds=roles.config.rounds, phases=1, layout=roles.layout),
        keys=SimulationKeys(0, 0),
        store=FolderStore(folder, "run"),
        ledgers=MemoryLedger(),
    )
    request = RoundRequest(run="run", phase=0, broadcast=replace(roles.broadcast, weights=weights))
    return read_reply_to(request, runtime.answer(pack_request(request)))


def never(broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Any]:
    raise AssertionError("a client trained on weights that it had not agreed to")


@every_system
@pytest.mark.parametrize("size", [3e38, -3e38, 1.0001e9])
def test_a_client_refuses_such_weights_before_it_looks_at_an_example(
    name: str, size: float, tmp_path: Path
) -> None:
    roles = roles_of(name)
    found = answered(roles, told(roles, size).weights, never, tmp_path)
    assert found == Refusal(round=1, reason=Reason.OUT_OF_RANGE)


@every_system
def test_a_client_answers_the_largest_weights_that_it_agreed_to(name: str, tmp_path: Path) -> None:
    roles = roles_of(name)
    weights = told(roles, LARGEST_WEIGHT).weights
    assert isinstance(answered(roles, weights, roles.local_update, tmp_path), Report)
