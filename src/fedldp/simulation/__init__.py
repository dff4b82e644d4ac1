"""One machine plays clients, server and channel: the plan of a run, and the engine that runs it.

``settings`` turns what users write into configurations; ``sweeps`` does many runs.

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
