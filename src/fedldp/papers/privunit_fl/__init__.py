"""PrivUnit in federated learning (Bhowmick et al. 2018)."""

__all__ = [
    "mechanism",
    "preset",
]
