"""What this paper's claims compute; ``claims.toml`` names these functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedldp.papers import Engine

_MAPS = Path(__file__).with_name("importance.json")
"""What benchmarks/priority_maps.py printed."""


def share_of_weights(engine: Engine) -> Sequence[float]:
    """Return the share of all weights that belongs to 20 % of the features."""
    return [(0.2 * 784 * 256) / (785 * 256 + 257 * 10)]


def correlations(engine: Engine) -> Sequence[float]:
    """Return the least rank correlation of both methods: of all pixels, and of those inside."""
    found = _maps()
    return [min(found[name]) for name in ("rank_correlation", "rank_correlation_inside")]


def mean_ranks(engine: Engine) -> Sequence[float]:
    """Return, for each method, the mean rank over the rounds: of pixels outside, and inside."""
    found = _maps()["mean_ranks_outside_and_inside"]
    return [
        sum(each) / len(each) for method in ("sensitivity", "variance") for each in found[method]
    ]


def _maps() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_MAPS.read_text(encoding="utf-8"))
    return content
