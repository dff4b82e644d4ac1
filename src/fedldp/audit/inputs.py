"""Neighbouring inputs: pairs on which a mechanism, or a client, most likely reveals too much.

A canary is the input of a client: its examples and, if training draws no noise, perhaps an update
that replaces the trained one. Such an update is worse than any that training on examples could
give, and an encoder's guarantee holds for every update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.data.examples import Examples

LARGEST_SINGLE = float(np.finfo(np.float32).max)
LARGEST_DOUBLE = float(np.finfo(np.float64).max)
FAR = 1e3
"""Far outside the normalised range of a coordinate, and the range of a feature, which no client
checks; but not so far that floats lose all digits."""
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


Swap = Literal["client", "person", "record", "label", "weight"]
"""What differs between two canaries: everything that a client has; all rows of one person, and
their number; the features of one example; the label of one example; one coordinate of the
update."""

LARGE = 1e6
"""A change of weights that every bound clips."""
FEW, MANY = 3, 40
"""Few and many rows, for the swapped person in games that swap one person."""

Floats = NDArray[np.float64]
Features = NDArray[np.float32]
Change = Callable[[int, int], Floats]
"""A change of the weights, shape (d,), as a function of the size d and the round."""


@dataclass(frozen=True, eq=False)
class Canary:
    """One of two inputs.

    Attributes:
        examples: the examples of the client.
        change: what is sent in place of the trained change of the weights; None: the client
            trains.
    """

    examples: Examples
    change: Change | None = None


@dataclass(frozen=True, eq=False)
class CanaryPair:
    """Two neighbouring canaries; ``name`` describes what was swapped."""

    name: str
    first: Canary
    second: Canary


@dataclass(frozen=True, kw_only=True)
class ExampleShape:
    """What is public about a client's examples.

    Attributes:
        input_shape: the shape of one example.
        num_classes: labels are 0 to num_classes - 1.
        count: the number of the client's examples or, where a person is swapped, of people in its
            data.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    count: int

    def examples(self, features: Features, label: int) -> Examples:
        """Return ``count`` examples with the same features and label."""
        return Examples(
            np.repeat(features[None], self.count, 0), np.full(self.count, label, np.int64)
        )

    def lit(self, value: float = 1.0) -> Features:
        """Return features that all have the same value."""
        return np.full(self.input_shape, value, np.float32)

    def half(self, *, upper: bool) -> Features:
        """Return features with one half lit: the first half if ``upper``, else the second."""
        found = np.zeros(int(np.prod(self.input_shape)), np.float32)
        middle = -(-found.size // 2)
        found[:middle] = 1 if upper else 0
        found[middle:] = 0 if upper else 1
        return found.reshape(self.input_shape)


def pairs(swap: Swap, shape: ExampleShape, *, updates: bool, lengths: bool) -> list[CanaryPair]:
    """Return the pairs of a game.

    Args:
        swap: what differs.
        shape: the shape of the client's examples.
        updates: whether updates may replace the trained ones.
        lengths: whether clients may have different numbers of examples.
    """
    if swap == "weight":
        return list(_weights(shape))
    if swap == "person":
        return list(_persons(shape))
    if swap == "client":
        found = list(_clients(shape))
        if lengths and shape.count > 1:
            found.append(
                CanaryPair(
                    f"client swapped: {shape.count} examples against one of the same",
                    Canary(shape.examples(shape.lit(), 0)),
                    Canary(replace(shape, count=1).examples(shape.lit(), 0)),
                )
            )
        return found + (list(_updates(shape)) if updates else [])
    return list(_records(shape, swap))


def _clients(shape: ExampleShape) -> Iterator[CanaryPair]:
    last = shape.num_classes - 1
    upper, lower = shape.half(upper=True), shape.half(upper=False)
    told = (
        ("all features 1, labels 0 against labels {last}", shape.lit(), 0, shape.lit(), last),
        ("one half of the features lit against the other, labels 0", upper, 0, lower, 0),
        ("one half lit and labels 0, against the other and {last}", upper, 0, lower, last),
        ("features of {far:g}, labels 0 against {last}", shape.lit(FAR), 0, shape.lit(FAR), last),
        ("one half of {far:g} against the other, labels 0", FAR * upper, 0, FAR * lower, 0),
    )
    for text, x, a, y, b in told:
        yield CanaryPair(
            "client swapped: " + text.format(last=last, far=FAR),
            Canary(shape.examples(x, a)),
            Canary(shape.examples(y, b)),
        )


def _records(shape: ExampleShape, swap: Swap) -> Iterator[CanaryPair]:
    """Yield pairs that differ only in the first example; all other features are 0.5."""
    last = shape.num_classes - 1
    lit, upper, lower = shape.lit(), shape.half(upper=True), shape.half(upper=False)
    told: tuple[tuple[str, Features, int, Features, int], ...]
    if swap == "label":
        told = (
            ("features 1", lit, 0, lit, last),
            ("features of 1000", FAR * lit, 0, FAR * lit, last),
        )
        head = f"label swapped, 0 against {last}: "
    else:
        told = (
            ("all 1 against all 0", lit, 0, shape.lit(0.0), 0),
            ("one half lit against the other", upper, 0, lower, 0),
            ("all 1000 against all -1000", FAR * lit, 0, -FAR * lit, 0),
            ("one half of 1000 against the other", FAR * upper, 0, FAR * lower, 0),
        )
        head = "features of a record swapped: "
    for text, x, a, y, b in told:
        yield CanaryPair(head + text, _with_first(shape, x, a), _with_first(shape, y, b))


def _with_first(shape: ExampleShape, features: Features, label: int) -> Canary:
    found = shape.examples(shape.lit(0.5), shape.num_classes - 1)
    found.features[0], found.labels[0] = features, label
    return Canary(found)


def _persons(shape: ExampleShape) -> Iterator[CanaryPair]:
    """Yield pairs that differ only in one person's rows; the others have one or two rows each."""
    last = shape.num_classes - 1
    lit, upper, lower = shape.lit(), shape.half(upper=True), shape.half(upper=False)

    def rows(count: int, features: Features, *labels: int) -> Examples:
        found = replace(shape, count=count).examples(features, 0)
        return replace(found, labels=np.resize(np.array(labels, np.int64), count))

    told = (
        ("{few} rows of ones, labels 0 against {last}", rows(FEW, lit, 0), rows(FEW, lit, last)),
        ("{many} rows of ones, labels 0 against {last}", rows(MANY, lit, 0), rows(MANY, lit, last)),
        ("one row of ones against {many} of the same", rows(1, lit, 0), rows(MANY, lit, 0)),
        ("{few} rows with one half lit against the other", rows(FEW, upper, 0),
         rows(FEW, lower, 0)),
        ("{many} rows of 1000, labels 0 against {last}", rows(MANY, FAR * lit, 0),
         rows(MANY, FAR * lit, last)),
        ("{many} rows that cancel each other against {few} that do not",
         rows(MANY, lit, 0, last), rows(FEW, lit, 0)),
    )  # fmt: skip
    for text, one, other in told:
        name = "person swapped: " + text.format(few=FEW, many=MANY, last=last)
        yield CanaryPair(name, _with_person(shape, one), _with_person(shape, other))


def _with_person(shape: ExampleShape, own: Examples) -> Canary:
    """Return a client whose first person has the given rows, half of them after all other rows."""
    count = shape.count - 1
    others = replace(shape, count=count + count // 2).examples(
        shape.lit(0.5), shape.num_classes - 1
    )
    middle = len(own) // 2
    return Canary(
        Examples(
            np.concatenate([own.features[:middle], others.features, own.features[middle:]]),
            np.concatenate([own.labels[:middle], others.labels, own.labels[middle:]]),
            np.concatenate(
                [
                    np.zeros(middle, np.int64),
                    1 + np.arange(len(others)) % max(1, count),
                    np.zeros(len(own) - middle, np.int64),
                ]
            ),
        )
    )


def _filled(others: float, own: float, *, turns: bool = False) -> Change:
    """Return a change of one value for the first weight and another for all others."""

    def change(size: int, round: int) -> Floats:
        found = np.full(size, float(others))
        found[0] = own
        return found * (-1.0) ** round if turns else found

    return change


def _updates(shape: ExampleShape) -> Iterator[CanaryPair]:
    examples, corner = shape.examples(shape.lit(), 0), _filled(LARGE, LARGE)
    for text, one, other in (
        ("opposite corners", corner, _filled(-LARGE, -LARGE)),
        ("opposite ends of one coordinate", _filled(0, LARGE), _filled(0, -LARGE)),
        ("a corner in every round, against corners in turn", corner,
         _filled(LARGE, LARGE, turns=True)),
        ("training gives NaN, against a corner", _filled(np.nan, np.nan), corner),
    ):  # fmt: skip
        name = f"client swapped, by its update: {text}"
        yield CanaryPair(name, Canary(examples, one), Canary(examples, other))


def _weights(shape: ExampleShape) -> Iterator[CanaryPair]:
    examples = shape.examples(shape.lit(), 0)
    for text, others in (("at 0", 0.0), ("at an end", LARGE)):
        yield CanaryPair(
            f"one weight of the update swapped, from end to end, the others {text}",
            Canary(examples, _filled(others, LARGE)),
            Canary(examples, _filled(others, -LARGE)),
        )
