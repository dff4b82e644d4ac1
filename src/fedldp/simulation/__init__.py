"""One machine plays clients, server and channel: a run's plan, and the engine that runs it.

``settings`` turns what users write into configurations; ``sweeps`` carries out many runs.

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
