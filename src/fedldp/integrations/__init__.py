"""Compositions in training loops outside fedldp: the client side, around the user's own training.

``client`` is a composition's client for any such loop, and ``flower`` makes a mod of it for Flower.

It may use core, accounting, data, ledgers, protocol, models, algorithms, reporting, deployment.
"""

__all__ = [
    "client",
    "flower",
]
