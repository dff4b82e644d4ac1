"""What clients have released.

``protocol`` is what every ledger can do, and ``budget`` what it must not exceed. ``sqlite`` stores
one client's ledger on its disk, in a ``database`` that also holds what the client keeps;
``columns`` stores the ledgers of many simulated clients.

It may use core, accounting.
"""

__all__ = [
    "budget",
    "columns",
    "database",
    "protocol",
    "sqlite",
]
