"""What releases cost and guarantee: events, the table of accountants, prices, the statement.

It knows neither data nor models. It computes with numbers and text alone, without torch.

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
