"""Simulated runs: one machine acts as the clients, the server and the channel.

``plan`` computes the plan of a run, and ``engine`` carries it out. ``settings`` turns what users
write into configurations, and ``sweeps`` carries out many runs.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, training, algorithms,
reporting.
"""

__all__ = [
    "engine",
    "evaluating",
    "executors",
    "in_process",
    "inputs",
    "participation",
    "plan",
    "population",
    "recorded",
    "result",
    "settings",
    "shuffler",
    "sweeps",
    "trained",
]
