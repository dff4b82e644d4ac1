"""Experiments: sets of runs, which runs are due, and what their results say.

An experiment says which runs are due, given the rows so far (``runs``), and is nothing but a view
of its rows. One loop makes them (``engine``), on this machine or on a cluster, and each run's
row is kept as soon as it has ended (``store``), under the digest of "the same run" (``identity``).
So every experiment is continued by the same command.

- ``sweeping``: a grid over settings, seeds and recipes, with one table of results;
- ``comparing``: systems at an equal guarantee and with equal effort;
- ``advising``: who in a table can be protected, from whom, and at what cost;
- ``reproduction``: the papers' tables and figures as targets.

It may use core, accounting, data, protocol, mechanisms, models, training, algorithms, reporting,
simulation.
"""

__all__ = [
    "advising",
    "comparing",
    "engine",
    "identity",
    "reproduction",
    "runs",
    "store",
    "sweeping",
]
