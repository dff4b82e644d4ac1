"""What this paper's claims compute; ``claims.toml`` names these functions."""

from __future__ import annotations

from collections.abc import Sequence

from fedldp.papers import Engine


def share_of_weights(engine: Engine) -> Sequence[float]:
    """Return the share of all weights that belongs to 20 % of the features."""
    return [(0.2 * 784 * 256) / (785 * 256 + 257 * 10)]
