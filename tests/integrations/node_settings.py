"""The settings of the runs that nodes of other frameworks take part in."""

from __future__ import annotations

from typing import Any

SETTINGS: dict[str, Any] = {
    "system": "composed",
    "dataset": "digits",
    "model": "logistic",
    "num_clients": 10,
    "rounds": 4,
    "learning_rate": 0.1,
    "participation": "all",
    "mechanism": "two_point",
    "epsilon": 1.0,
    "range_radius": 0.5,
}
