"""What releases cost and guarantee.

``events`` are what mechanisms release, as data; ``accountants`` is the one table that interprets
them, and ``numerics`` has the certified bounds. ``releases`` says which clients release what,
``prices`` what a ledger is charged, ``guarantees`` what is proven for a unit and an adversary, and
``statement`` puts it together. ``proven`` is an epsilon with its conditions, of a run or of a set
of runs.

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
    "proven",
    "releases",
    "statement",
]
