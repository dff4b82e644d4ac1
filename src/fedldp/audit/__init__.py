"""Attacks on mechanisms and systems, and exact lower bounds on epsilon that follow from them.

It may use core, accounting, data, ledgers, protocol, mechanisms, secure_sum, training, algorithms,
reporting, simulation.
"""

__all__ = [
    "attacks",
    "bounds",
    "efforts",
    "foreign",
    "game",
    "harness",
    "mechanism_checks",
    "mechanisms",
    "observations",
    "page",
    "plans",
    "playing",
    "report_games",
    "results",
]
