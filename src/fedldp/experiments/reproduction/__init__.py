"""The papers' tables and figures as targets, compared with measured results."""

__all__ = [
    "comparison",
    "pages",
    "results",
    "targets",
]
