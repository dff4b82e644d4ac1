"""What a server and its clients send each other, and the code that runs at both ends.

``roles`` has the types of an algorithm's two halves. ``wire`` has the values that cross and how
they become bytes. ``client_runtime`` protects a client, and ``server_loop`` runs the rounds. A
simulation and real sites run the same code; they differ in transport, keys and ledger.

It may use core, accounting, data, ledgers.
"""

__all__ = [
    "client_keys",
    "client_runtime",
    "client_store",
    "policy",
    "roles",
    "server_keys",
    "server_loop",
    "transport",
    "updates",
    "wire",
]
