"""The time model of a small LDP-FL run, for its shuffler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Delays
from fedldp.algorithms.systems import find_system


def config(**settings: Any) -> RunConfig:
    known: dict[str, Any] = {
        "dataset": "digits", "model": "logistic", "num_clients": 10, "rounds": 1,
        "learning_rate": 0.1, "epsilon": 1.0,
    }  # fmt: skip
    return find_system("ldp_fl")(**known | settings)


def delays(**changes: Any) -> Delays:
    found = config().composition.channel.delays
    assert found is not None
    return replace(found, **changes)
