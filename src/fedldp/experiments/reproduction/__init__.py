"""The papers' tables and figures as targets, compared with measured results."""

__all__ = [
    "comparison",
    "figure",
    "pages",
    "results",
    "runner",
    "targets",
]
