"""CLDP-Fed (Truex et al. 2020)."""

__all__ = [
    "mechanism",
    "preset",
]
