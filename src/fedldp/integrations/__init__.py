"""Compositions in training loops outside fedldp: the client side, around the user's own training.

It may use core, accounting, data, ledgers, protocol, models, algorithms, reporting, deployment.
"""

__all__ = [
    "client",
    "flower",
]
