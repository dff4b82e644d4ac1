"""Presets: one paper or baseline per file, found by a scan of this package.

Each preset is a function from settings to a composition of parts; see ``algorithms.preset``.
"""

__all__ = [
    "central_dp",
    "cldp_fed",
    "composed",
    "distributed_gaussian",
    "dp_sgd",
    "fedavg",
    "ldp_fl",
    "ldpfl",
    "ldpfl_sound",
    "nbafl",
    "person_dp_sgd",
    "personalized",
    "personalized_sound",
    "priority",
    "priority_public",
    "privunit_fl",
    "secure_aggregation",
]
