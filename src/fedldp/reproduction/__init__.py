"""The papers' tables and figures as targets, compared with measured results.

It may use core, accounting, data, protocol, models, algorithms, reporting, simulation.
"""

__all__ = [
    "comparison",
    "figure",
    "pages",
    "results",
    "runner",
    "targets",
]
