"""Toys and contracts for tests of your own parts, and of fedldp's.

``toys`` has a mechanism and a preset that are as small as can be; ``data``, ``clients`` and
``cases`` make what surrounds a part: examples, clients as a part sees them, and a whole
configuration's conversation.

``mechanisms``, ``systems``, ``events`` and ``attacks`` are contracts as ``checks``, each with what
is promised and what to do if the promise is broken; anybody can run them on parts of their own.
``boundary`` looks for what leaves a client past its mechanism.

Only tests and checks import this room; nothing in it protects anybody.

It may use core, accounting, data, ledgers, protocol, mechanisms, training, algorithms, reporting,
simulation, audit.
"""

__all__ = [
    "attacks",
    "boundary",
    "cases",
    "checks",
    "clients",
    "data",
    "events",
    "mechanisms",
    "systems",
    "toys",
]
