"""One machine that plays clients, server and channel: the plan of a run, and its engine.

``settings`` makes configurations of what users write; ``sweeps`` does many runs.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, training, algorithms,
reporting.
"""

__all__ = [
    "counting",
    "engine",
    "evaluating",
    "executors",
    "in_process",
    "inputs",
    "participation",
    "plan",
    "population",
    "report_shuffler",
    "result",
    "schedule",
    "settings",
    "sweeps",
    "trained",
]
