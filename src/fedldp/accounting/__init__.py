"""What releases cost and guarantee: events, the table of accountants, prices, the statement.

It knows neither data nor models, and computes in numbers and text alone: no torch.

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
