"""A small configuration of personalised LDP, shared by its tests."""

from __future__ import annotations

from typing import Any

from fedldp.algorithms.problem import Problem
from fedldp.papers.personalized.parts import PublishedNoise
from fedldp.papers.personalized.preset import personalized

DIGITS = Problem((1, 8, 8), 10, 1437)
SIZE = 650


def config(**changes: Any) -> personalized:
    settings: dict[str, Any] = {
        "dataset": "digits", "num_clients": 3, "rounds": 10, "epsilon": [1.0, 5.0, 10.0],
        "clip": 2.0, "sampling_probability": 0.8, "delta": 1 / 500, "num_examples": 300,
        "local_epochs": 3, "batch_size": 100,
    }  # fmt: skip
    return personalized(**{**settings, **changes})


def noise(settings: personalized) -> PublishedNoise:
    """Return the calibration of settings with noise."""
    found = settings.composition.calibration
    assert isinstance(found, PublishedNoise)
    return found
