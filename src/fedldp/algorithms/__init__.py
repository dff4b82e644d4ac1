"""Algorithms as compositions of parts: presets of papers, and what users set.

``composition`` has the slots; each other module is the kinds of one part, or the settings of all.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, secure_sum, training,
parts.
"""

__all__ = [
    "bounds",
    "calibration",
    "channel",
    "composition",
    "config",
    "features",
    "participation",
    "preset",
    "presets",
    "problem",
    "release",
    "server_update",
    "settings",
    "settings_docs",
    "systems",
    "validation",
]
