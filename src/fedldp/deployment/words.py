"""Ten words in place of a SHA-256 digest, for two people to compare by telephone.

A word stands for 10 bits, so ten words stand for 100. Finding a second file with the same words as
a given one takes about 2^100 tries; making two files with the same words takes about 2^50. Each try
takes 2^19 steps of SHA-256, because PBKDF2 is applied to the digest first, so making the two files
takes 2^69 steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

WORDS = 10
_STEPS = 1 << 18
_BITS = 10
_SALT = b"fedldp words\x01"


def words_of(digest: bytes) -> str:
    """Return the ten words of a digest, separated by spaces; takes about a tenth of a second."""
    stretched = hashlib.pbkdf2_hmac("sha256", digest, _SALT, _STEPS, dklen=32)
    left = int.from_bytes(stretched)
    found = []
    for _ in range(WORDS):
        left, place = divmod(left, len(_LIST))
        found.append(_LIST[place])
    return " ".join(found)


def unknown_words(typed: Sequence[str]) -> list[str]:
    """Return the typed words that are not in the list, ignoring case."""
    return [word for word in typed if word.lower() not in _LIST]


_LIST = tuple(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split())
assert len(_LIST) == 1 << _BITS
