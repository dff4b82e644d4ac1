"""Algorithms as compositions of parts: presets of papers, what users set, recipes.

``composition`` has the slots; each other module is the kinds of one part, or the settings of all.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, secure_sum, training.
"""

__all__ = [
    "bounds",
    "calibration",
    "channel",
    "composition",
    "config",
    "features",
    "own_importance",
    "participation",
    "people",
    "per_client",
    "per_report",
    "portions",
    "preset",
    "presets",
    "problem",
    "public_importance",
    "recipes",
    "release",
    "server_update",
    "settings",
    "settings_docs",
    "systems",
    "validation",
]
