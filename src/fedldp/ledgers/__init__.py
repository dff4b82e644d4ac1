"""What clients have released: budgets, the ledger protocol, and its two stores.

``sqlite`` keeps one client's ledger on its disk; ``columns`` keeps those of many simulated clients.

It may use core, accounting.
"""

__all__ = [
    "budget",
    "columns",
    "protocol",
    "sqlite",
]
