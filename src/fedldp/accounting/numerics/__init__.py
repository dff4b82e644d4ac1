"""Certified bounds, rounded conservatively: numbers in, numbers out; events are not used here."""

__all__ = [
    "binomial",
    "bits",
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
