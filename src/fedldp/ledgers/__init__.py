"""What clients have released: budgets, one protocol, and its two stores.

``sqlite`` keeps one client's ledger on its disk, ``columns`` those of many simulated clients.

It may use core, accounting.
"""

__all__ = [
    "budget",
    "columns",
    "protocol",
    "sqlite",
]
