"""Streams that are known, for tests that enumerate the outputs of a sampler."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedldp.core.randomness import Stream


class Scripted:
    """A stream that returns given words: one request after another, each in its type."""

    def __init__(self, *requests: tuple[type, Any]) -> None:
        self.requests = [np.array(words, dtype) for dtype, words in requests]

    def integers(self, count: int, dtype: type) -> np.ndarray:
        words = self.requests.pop(0)
        assert (words.dtype, words.shape) == (np.dtype(dtype), (count,))
        return words


class Words:
    """A stream that returns given words, as many as it is asked for."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def integers(self, count: int, dtype: Any) -> np.ndarray:
        drawn, self.words = self.words[:count], self.words[count:]
        assert len(drawn) == count, "more words were read than there should be"
        return np.array(drawn, dtype)


def deployed(number: int = 0) -> Stream:
    """Return a stream as in deployment, but the same in every run of the tests."""
    return Stream(bytes([number]) * 32, simulated=False)
