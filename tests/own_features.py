"""A user's own features for tests: some are accepted, some are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

calls: list[tuple[int, ...]] = []
means: list[float] = []
late_means: list[float] = []


def rows(example: Any) -> Any:
    """Return the mean of each row of an image."""
    calls.append(example.shape)
    example = example.mean(axis=(0, 2))
    example *= 2  # its own copy
    return example


def counted(example: Any) -> Any:
    """Return a different result for each call."""
    calls.append(example.shape)
    return np.array([len(calls), example.sum()])


def broken(example: Any) -> Any:
    """Fail on every example."""
    raise ValueError("no features today")


def running(example: Any) -> Any:
    """Return the rows' means minus the mean over all examples so far."""
    means.append(float(example.mean()))
    return example.mean(axis=(0, 2)) - np.mean(means)


def late(example: Any) -> Any:
    """Do as ``running`` does, but only from the hundredth call on, when nothing is checked any
    more."""
    late_means.append(float(example.mean()))
    return example.mean(axis=(0, 2)) - (np.mean(late_means) if len(late_means) > 100 else 0)


class Rows:
    """Returns the mean of each row of an image, times a factor."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def __call__(self, example: Any) -> Any:
        return self.factor * example.mean(axis=(0, 2))


class Needy:
    """Features that cannot be created without an argument."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


def matrix(example: Any) -> Any:
    """Return something that is not a vector."""
    return example[0]


def brittle(example: Any) -> Any:
    """Fail on bright examples, and return NaN for dark ones."""
    if example.max() > 2:
        raise ValueError("too bright")
    return np.array([1.0, np.nan if example.min() < -2 else example.mean()])


nothing = 3
