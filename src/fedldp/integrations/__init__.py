"""Compositions in loops that are not fedldp's: their client's half around somebody else's training.

It may use core, accounting, data, ledgers, protocol, models, algorithms, reporting, deployment.
"""

__all__ = [
    "client",
    "flower",
]
