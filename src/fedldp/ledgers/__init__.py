"""What clients have released.

``protocol`` is what every ledger can do, and ``budget`` what it must not exceed. ``sqlite`` stores
one client's ledger on its disk; ``columns`` stores the ledgers of many simulated clients.

It may use core, accounting.
"""

__all__ = [
    "budget",
    "columns",
    "protocol",
    "sqlite",
]
