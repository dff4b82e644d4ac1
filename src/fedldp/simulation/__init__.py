"""Simulated runs: one machine acts as the clients, the server and the channel.

``settings`` turns what users write into configurations, and ``given`` their data. ``plan`` computes
what a run will do and cost, with the ``participation`` of its clients. ``engine`` carries the run
out: on ``inputs``, with a ``population`` of clients that ``executors`` ask in this process, in
``workers`` or on the nodes of a Ray ``cluster``, through a ``shuffler`` if there is one. ``result``
is what a run returns, also from its folder, and ``trained`` its model. ``noise`` says how long the
noise in a mean will be, ``signal`` what reports would say without it. ``evaluating`` tests a model
on other rows, and ``asking`` asks the people of a table without training one.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, training, algorithms,
reporting.
"""

__all__ = [
    "asking",
    "cluster",
    "engine",
    "evaluating",
    "executors",
    "given",
    "inputs",
    "noise",
    "participation",
    "plan",
    "population",
    "result",
    "settings",
    "shuffler",
    "workers",
]
