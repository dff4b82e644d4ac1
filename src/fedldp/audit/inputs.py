"""Neighbouring inputs: the pairs on which a mechanism is likeliest to tell too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism

LARGEST_SINGLE = float(np.finfo(np.float32).max)
LARGEST_DOUBLE = float(np.finfo(np.float64).max)
FAR = 1e3
"""Far outside of what is normalised, and not so far that all digits are lost."""


@dataclass(frozen=True, eq=False)
class InputPair:
    """Two neighbouring inputs, each of shape (d,), float32 or float64."""

    name: str
    first: NDArray[Any]
    second: NDArray[Any]


def check_one_sum(config: RunConfig) -> None:
    """Refuse committees: what a single sum shows and bears is played, and not the sum of several.

    Raises:
        ConfigError: the configuration has some.
    """
    if config.committee is not None:
        raise ConfigError(
            f"committee = {config.committee}: what is played here is one sum of all clients; leave "
            f"committee out, and set num_clients = {config.committees.fewest} for one committee"
        )


def whole_pairs(mechanism: Mechanism, size: int, generator: np.random.Generator) -> list[InputPair]:
    """Return pairs that differ in a client's whole input, of ``size`` coordinates."""
    ones, one, zeros = np.ones(size), np.eye(1, size)[0], np.zeros(size)
    pairs = [
        InputPair("opposite corners", ones, -ones),
        InputPair("zero against a corner", zeros, ones),
        InputPair("far outside, opposite", FAR * ones, -FAR * ones),
        InputPair("zero against the largest float32", *_single(zeros, LARGEST_SINGLE * ones)),
        InputPair("zero against the largest float64", zeros, LARGEST_DOUBLE * ones),
        InputPair("random", *generator.uniform(-1.4, 1.4, (2, size))),
    ]
    if size > 1:
        pairs += [
            InputPair("opposite ends of one coordinate", one, -one),
            InputPair(
                "a corner against an alternating one", ones, ones * (-1.0) ** np.arange(size)
            ),
        ]
    return pairs + list(_not_numbers(mechanism, ones))


def coordinate_pairs(size: int, generator: np.random.Generator) -> list[InputPair]:
    """Return pairs that differ in one coordinate, of ``size``."""
    others = {
        "ones": np.ones(size),
        "zeros": np.zeros(size),
        "random ones": generator.uniform(-1, 1, size),
    }
    pairs = [
        _changed(f"one coordinate end to end, the others {name}", base, -1.0, 1.0)
        for name, base in others.items()
    ]
    pairs.append(_changed("one coordinate far outside, the others ones", others["ones"], 1.0, FAR))
    far = _changed("one coordinate of the largest float32", others["ones"], 1.0, LARGEST_SINGLE)
    pairs.append(InputPair(far.name, *_single(far.first, far.second)))
    return pairs


def constant_pairs() -> list[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Return pairs of values for a coordinate: each an array of shape (1,)."""
    ends, far = (np.array([1.0]), np.array([-1.0])), np.array([FAR])
    return [
        ("end to end", *ends),
        ("end to end, float32", *_single(*ends)),
        ("zero against an end", np.array([0.0]), ends[0]),
        ("far outside, opposite", far, -far),
        ("far outside, opposite, float32", *_single(far, -far)),
        ("zero against the largest float32", *_single(np.zeros(1), np.array([LARGEST_SINGLE]))),
    ]


def _single(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    return first.astype(np.float32), second.astype(np.float32)


def _changed(name: str, base: NDArray[Any], first: float, second: float) -> InputPair:
    pair = InputPair(name, base.copy(), base.copy())
    pair.first[0], pair.second[0] = first, second
    return pair


def _not_numbers(mechanism: Mechanism, ones: NDArray[Any]) -> Iterator[InputPair]:
    """Yield pairs with NaN or infinity for a mechanism that takes them: refusing is its duty."""
    for name, value in (("NaN", np.nan), ("infinity", np.inf)):
        wrong = ones * value
        try:
            mechanism.encode(wrong.copy(), Stream(bytes(32), simulated=True))
        except PrivacyError:
            continue  # an encoder never gives it one: it puts a public vector in its place
        except Exception:  # it is seen in the game
            pass
        yield InputPair(f"{name} against a corner", wrong, ones)
