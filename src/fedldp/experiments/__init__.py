"""Experiments: sets of runs, which runs are due, and what their results say.

- ``sweeping``: a grid over settings, seeds and recipes, with one table of results;
- ``comparing``: systems at an equal guarantee and with equal effort;
- ``advising``: who in a table can be protected, from whom, and at what cost;
- ``reproduction``: the papers' tables and figures as targets.

It may use core, accounting, data, protocol, models, algorithms, reporting, simulation.
"""

__all__ = ["advising", "comparing", "reproduction", "sweeping"]
