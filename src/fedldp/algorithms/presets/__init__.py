"""Presets: one paper or baseline per file, found by a scan of this package.

Each preset is a function from settings to a composition of parts; see ``algorithms.preset``.
"""

__all__ = [
    "central_dp",
    "composed",
    "distributed_gaussian",
    "dp_sgd",
    "fedavg",
    "person_dp_sgd",
    "secure_aggregation",
]
