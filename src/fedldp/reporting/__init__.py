"""The records of runs and their presentation: folders, text, HTML, charts, tables for other tools.

It may use core, accounting, ledgers, protocol, algorithms.
"""

__all__ = [
    "card",
    "charts",
    "export",
    "html",
    "progress",
    "record",
    "runs",
    "schema",
    "scores",
    "text",
]
