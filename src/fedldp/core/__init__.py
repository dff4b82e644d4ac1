"""What every room uses: errors, randomness, the scan, frozen settings, ranges, checks of numbers.

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
