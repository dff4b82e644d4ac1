"""Compositions in training loops outside fedldp: the client side, around the user's own training.

``loop`` is a composition from settings alone, with its statement; ``client`` is its client for any
such loop; ``flower`` makes a mod of it for Flower, and ``nvflare`` a filter for NVIDIA FLARE.

It may use core, accounting, data, ledgers, protocol, models, algorithms, reporting and
simulation.
"""

__all__ = [
    "client",
    "flower",
    "loop",
    "nvflare",
]
