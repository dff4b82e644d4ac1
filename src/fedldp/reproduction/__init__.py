"""The papers' tables and figures as targets, beside what was measured.

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
