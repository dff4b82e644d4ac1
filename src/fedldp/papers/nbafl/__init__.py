"""NbAFL (Wei et al. 2020)."""

__all__ = [
    "parts",
    "preset",
]
