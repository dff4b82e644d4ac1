"""Code that all other parts use: errors, randomness, plug-ins, frozen settings, ranges, locks.

It may use nothing.
"""

__all__ = [
    "bounding",
    "errors",
    "formatting",
    "frozen_config",
    "locks",
    "numbers",
    "randomness",
    "registry",
    "trial",
]
