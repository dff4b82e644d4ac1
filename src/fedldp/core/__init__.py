"""What every room uses: errors, randomness, plug-in discovery, frozen settings, ranges, checks.

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
]
