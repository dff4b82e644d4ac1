"""What releases cost and guarantee: events, the table of accountants, prices, the statement.

This package knows neither data nor models. It computes only with numbers and strings, without
torch.

It may use core.
"""

__all__ = [
    "accountants",
    "events",
    "guarantees",
    "numerics",
    "prices",
    "releases",
    "statement",
]
