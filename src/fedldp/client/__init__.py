"""What runs on a client: the one place where its privacy is enforced, in a simulation or not.

It may use core, accounting, data, ledgers, protocol, parts.
"""

__all__ = [
    "runtime",
]
