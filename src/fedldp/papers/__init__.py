"""The papers: one folder each, with all that only this paper has.

A folder holds presets (``preset*.py``), mechanisms (``mechanism*.py``), the paper's own parts and
training, and recipes (``recipes/*.toml``), which are found by a scan. No other room imports or
names what is in a folder.

It may use core, accounting, data, protocol, mechanisms, models, training, algorithms.
"""

__all__ = [
    "cldp_fed",
    "ldp_fl",
    "ldpfl",
    "nbafl",
    "personalized",
    "priority",
    "privunit_fl",
]
