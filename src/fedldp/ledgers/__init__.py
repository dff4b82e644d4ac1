"""What clients have released: budgets, the ledger protocol, and its two stores.

``sqlite`` stores one client's ledger on its disk; ``columns`` stores the ledgers of many simulated
clients.

It may use core, accounting.
"""

__all__ = [
    "budget",
    "columns",
    "protocol",
    "sqlite",
]
