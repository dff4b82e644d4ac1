"""Algorithms composed of parts: presets for papers, users' settings, and recipes.

``composition`` defines the slots for parts. Each of the other modules defines the kinds of one
part, or settings.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, secure_sum, training.
"""

__all__ = [
    "bounds",
    "budgets",
    "calibration",
    "channel",
    "composition",
    "config",
    "features",
    "own_code",
    "participation",
    "people",
    "per_client",
    "preset",
    "presets",
    "problem",
    "recipes",
    "release",
    "run_settings",
    "server_update",
    "settings",
    "settings_docs",
    "systems",
    "validation",
]
