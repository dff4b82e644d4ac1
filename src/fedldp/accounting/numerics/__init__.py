"""Certified bounds, rounded conservatively; they are computed from numbers, not from events."""

__all__ = [
    "blanket",
    "compose",
    "gaussian",
    "losses",
    "pld_fft",
    "selftest",
    "shuffle",
    "shuffle_one",
    "solve",
    "subsampled",
]
