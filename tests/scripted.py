"""A stream with given words, for tests that enumerate the outputs of a sampler."""

from __future__ import annotations

from typing import Any

import numpy as np


class Scripted:
    """A stream that returns given words: one request after another, each in its type."""

    def __init__(self, *requests: tuple[type, Any]) -> None:
        self.requests = [np.array(words, dtype) for dtype, words in requests]

    def integers(self, count: int, dtype: type) -> np.ndarray:
        words = self.requests.pop(0)
        assert (words.dtype, words.shape) == (np.dtype(dtype), (count,))
        return words
