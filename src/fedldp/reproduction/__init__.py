"""The papers' tables and figures as targets, beside what was measured.

It may use core, accounting, data, protocol, mechanisms, models, algorithms, reporting, simulation.
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
