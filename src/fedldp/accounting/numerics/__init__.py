"""Certified bounds, rounded conservatively; they are computed from numbers, not from events."""

__all__ = [
    "binomial",
    "blanket",
    "clones",
    "compose",
    "gaussian",
    "losses",
    "moments",
    "pld_fft",
    "selftest",
    "shuffle",
    "shuffle_one",
    "solve",
    "subsampled",
    "tilted_pld",
]
