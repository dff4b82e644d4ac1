"""What passes between a server and its clients, and both ends of it.

``roles`` are the two halves of an algorithm as types, ``wire`` the values that cross and their
bytes; the client's runtime protects a client, ``server_loop`` runs the rounds. They are the same in
a simulation and at real sites, which differ in transport, keys and ledger.

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
