"""What a server and its clients send each other, and the code that runs at both ends.

``roles`` defines the types of an algorithm's two halves, for clients and server. ``wire`` defines
the values that they send each other, and how these become bytes. ``client_runtime`` protects a
client, with ``keys`` and ``client_store``; ``updates`` applies an encoder to a single client.
``server_loop`` runs the rounds over a transport. A simulation and real sites run the same code;
they differ in transport, keys and ledger.

It may use core, accounting, data, ledgers.
"""

__all__ = [
    "client_runtime",
    "client_store",
    "keys",
    "roles",
    "server_loop",
    "updates",
    "wire",
]
