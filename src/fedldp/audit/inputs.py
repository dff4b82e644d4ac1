"""Neighbouring inputs: pairs on which a mechanism most likely reveals too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError

LARGEST_SINGLE = float(np.finfo(np.float32).max)
LARGEST_DOUBLE = float(np.finfo(np.float64).max)
FAR = 1e3
"""Far outside the normalised range, but not so far that floats lose all digits."""
_STEP = 0.01
"""The width of the intervals of a coordinate; the middle of each interval is tried."""
_GROWTH = 1.25
"""The ratio of successive sizes that are tried beyond the bound."""


@dataclass(frozen=True, eq=False)
class InputPair:
    """Two neighbouring inputs, each of shape (d,), float32 or float64."""

    name: str
    first: NDArray[Any]
    second: NDArray[Any]


def check_one_sum(config: RunConfig) -> None:
    """Refuse committees: the attacks play a single sum, not the sums of several committees.

    Raises:
        ConfigError: the configuration has committees.
    """
    if config.committee is not None:
        raise ConfigError(
            f"committee = {config.committee}: this command plays one sum of all clients; leave "
            f"committee out, and set num_clients = {config.committees.fewest} to play one committee"
        )


def whole_pairs(size: int, generator: np.random.Generator) -> list[InputPair]:
    """Return pairs that differ in a client's whole input, of ``size`` coordinates."""
    ones, one, zeros = np.ones(size), np.eye(1, size)[0], np.zeros(size)
    turns = (-1.0) ** np.arange(size)
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
            InputPair("a corner against an alternating one", ones, turns),
            InputPair("opposite alternating corners", turns, -turns),
            InputPair("two coordinates of opposite signs, turned", *_two(turns)),
        ]
    return pairs


def scanned_pairs(size: int, *, one_coordinate: bool) -> list[InputPair]:
    """Return many pairs, from which a few trials choose: some mistakes show only at few values.

    For one coordinate, the first inputs are values in steps of 0.01, each against the farther end.
    In addition, there are sizes beyond the bound, each a quarter larger than the previous one. The
    pairs share a few second inputs.

    Args:
        size: d.
        one_coordinate: whether only one coordinate may differ.
    """
    ones = np.ones(size)
    largest = round(np.log(FAR) / np.log(_GROWTH))
    sizes = _GROWTH ** np.arange(1, largest + 1)
    if one_coordinate:
        return [
            _against(f"one coordinate at {m:.4g} against its end, the others ones", ones, m)
            for m in sizes
        ]
    if size > 1:
        end = -ones
        return [InputPair(f"{m:.4g} times a corner, against its opposite", m * ones, end)
                for m in sizes]  # fmt: skip
    values = np.arange(-1 + _STEP / 2, 1, _STEP)
    low = -ones
    return [
        InputPair(f"{v:.4g} against the farther end", np.array([v]), low if v > 0 else ones)
        for v in [*values, *sizes, *-sizes]
    ]


def coordinate_pairs(size: int, generator: np.random.Generator) -> list[InputPair]:
    """Return pairs of ``size`` coordinates that differ in one."""
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


def constant_pairs() -> list[InputPair]:
    """Return pairs of values for a coordinate: each an array of shape (1,)."""
    ends, far = (np.array([1.0]), np.array([-1.0])), np.array([FAR])
    return [
        InputPair("end to end", *ends),
        InputPair("end to end, float32", *_single(*ends)),
        InputPair("zero against an end", np.array([0.0]), ends[0]),
        InputPair("far outside, opposite", far, -far),
        InputPair("far outside, opposite, float32", *_single(far, -far)),
        InputPair(
            "zero against the largest float32", *_single(np.zeros(1), np.array([LARGEST_SINGLE]))
        ),
    ]


def _single(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    return first.astype(np.float32), second.astype(np.float32)


def _two(turns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    first = np.where(np.arange(len(turns)) < 2, turns, 0.0)
    return first, -first


def _against(name: str, base: NDArray[Any], value: float) -> InputPair:
    changed = base.copy()
    changed[0] = value
    return InputPair(name, changed, base)


def _changed(name: str, base: NDArray[Any], first: float, second: float) -> InputPair:
    pair = InputPair(name, base.copy(), base.copy())
    pair.first[0], pair.second[0] = first, second
    return pair
