"""The settings of the compositions that nodes of other frameworks use."""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, Any] = {
    "num_clients": 10,
    "rounds": 4,
    "mechanism": "two_point",
    "epsilon": 1.0,
    "range_radius": 0.5,
}
