"""The seeds of sets of runs, as users write them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedldp.core.errors import ConfigError

_MOST = 10_000


def read_seeds(text: str) -> list[int]:
    """Return the seeds in a string such as "0-4" or "0,2,5".

    Raises:
        ConfigError: the string does not have this form.
    """
    found: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", piece)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 0 <= last - first < _MOST:
            raise ConfigError(f"seeds {text}: write them as 0-4, or as 0,2,5")
        found += range(first, last + 1)
    return found


def check_seeds(seeds: Sequence[int], chosen_on: int | None = None) -> None:
    """Refuse seeds that are no integers, occur twice, or may not be measured.

    Args:
        seeds: the seeds.
        chosen_on: the seed on which tries are scored, if there are tries.

    Raises:
        ConfigError: there are such seeds, or none at all.
    """
    whole = all(isinstance(seed, int) and not isinstance(seed, bool) for seed in seeds)
    if not seeds or not whole or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds = {list(seeds)}: give one or more different integers from 0")
    if chosen_on in seeds:
        raise ConfigError(
            f"seeds = {list(seeds)}: tries are scored on seed {chosen_on}, which is not measured; "
            "leave it out"
        )
