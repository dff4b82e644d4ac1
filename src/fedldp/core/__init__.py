"""Code that all other parts use: errors, randomness, plug-ins, frozen settings, ranges, checks.

It may use nothing.
"""

__all__ = [
    "bounding",
    "errors",
    "exact",
    "formatting",
    "frozen_config",
    "numbers",
    "randomness",
    "registry",
    "trial",
]
