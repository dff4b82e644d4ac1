"""The papers' tables and figures as targets, compared with measured results.

It may use core, accounting, data, protocol, mechanisms, models, algorithms, papers,
reporting, simulation.
"""

__all__ = [
    "comparison",
    "figure",
    "pages",
    "papers",
    "results",
    "runner",
    "statements",
    "targets",
]
