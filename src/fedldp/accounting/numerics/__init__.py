"""Certified bounds: numbers in, numbers out, rounded to the safe side. No event is known here."""

__all__ = [
    "binomial",
    "bits",
    "clones",
    "compose",
    "gaussian",
    "losses",
    "losses_grid",
    "moments",
    "selftest",
    "shuffle",
    "shuffle_one",
    "solve",
    "subsampled",
    "tilted",
]
