"""Certified bounds, rounded conservatively; they are computed from numbers, not from events."""

__all__ = [
    "blanket",
    "compose",
    "gaussian",
    "known",
    "moments",
    "selftest",
    "shuffle_one",
    "solve",
    "subsampled",
]
