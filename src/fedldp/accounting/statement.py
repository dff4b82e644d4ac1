"""The privacy statement of a run, computed from its configuration alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedldp.systems import SystemConfig

SIMULATED = "simulated with a fixed seed: this run itself protects nothing"
NO_ACCOUNTING = (
    "accounting is not in this version yet: no guarantee is stated, "
    "so assume none (epsilon = infinity)"
)


def statement(config: SystemConfig) -> dict[str, Any]:
    """Return the statement: the source's claim, the guarantees that are proven, and warnings."""
    claim = config.claim()
    return {
        "claim": None if claim is None else asdict(claim),
        "guarantees": [],
        "warnings": [SIMULATED, NO_ACCOUNTING],
    }
