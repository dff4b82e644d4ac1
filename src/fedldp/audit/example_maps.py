"""Checks that an example's features do not depend on other examples.

Every statement assumes this. Features that are fitted on the given rows, or that keep something
from one call to the next, reveal one example in the features of others, and nothing is charged for
it. The check compares data sets that differ in one example.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.audit.bounds import epsilon_lower
from fedldp.audit.game import Planned
from fedldp.audit.inputs import FAR
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import GameResult, Line
from fedldp.data.image_features import ExampleMap

_EXAMPLES, _TRIALS = 8, 20
_SCALES = (0.0, 1.0, FAR, -FAR, 1e30, np.inf, np.nan)
"""Factors by which the replaced example is multiplied after it is drawn again."""


@dataclass(frozen=True, kw_only=True)
class MapCheck(Planned):
    """The features of a configuration, computed for neighbouring data sets.

    The statement proves an epsilon of 0: the features of an example reveal nothing about another.

    Attributes:
        mapping: the features.
        input_shape: the shape of one example.
    """

    certain = True
    mapping: ExampleMap
    input_shape: tuple[int, ...]

    @classmethod
    def of(cls, config: RunConfig, problem: Problem) -> MapCheck | None:
        """Return the check of a configuration; None if it has no features."""
        mapping = config.composition.features.mapping(problem)
        if mapping is None:
            return None
        line = Line(
            subject=config.name(),
            of_system=True,
            setting="features",
            size=mapping.size,
            unit="record",
            neighbours="one example is replaced; the adversary sees the features of the others",
            proven=0.0,
        )
        return cls(lines=(line,), mapping=mapping, input_shape=problem.input_shape, key="exact")

    @property
    def title(self) -> str:
        """A description of the check, for a progress line."""
        (line,) = self.lines
        return f"{line.subject}, features: whether replacing one example changes another's"

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Map pairs of data sets, and return one row."""
        generator, count = keys.generator("features"), trials or _TRIALS
        told, again, lower = 0, 0, 0.0
        for scale in _SCALES:
            differ, differ_again = self._counts(scale, count, generator)
            told, again = told + differ, again + differ_again
            each = 1 - (1 - confidence) / len(_SCALES)
            found = epsilon_lower(differ, count, differ_again, count, delta=0.0, confidence=each)
            lower = max(lower, found)
        count *= len(_SCALES)
        wrong = bool(told or again)
        (line,) = self.lines
        return [
            line.result(
                attack=_attack(told, again, count),
                lower=lower,
                trials=count,
                verdict="bug" if wrong else "ok",
                note="above the proven epsilon" if wrong else "exact: bit for bit the same",
            )
        ]

    def _counts(self, scale: float, count: int, generator: np.random.Generator) -> tuple[int, int]:
        """Return how often the others' features differed for a neighbour, and for the same data."""
        told = again = 0
        for trial in range(count):
            one = generator.random((_EXAMPLES, *self.input_shape)).astype(np.float32)
            other, place = one.copy(), trial % _EXAMPLES
            with np.errstate(all="ignore"):
                other[place] = generator.random(one.shape[1:]) * scale
                seen = [_of_others(self.mapping, data, place) for data in (one, other, one)]
            told += seen[0] != seen[1]
            again += seen[0] != seen[2]
        return told, again


def _of_others(mapping: ExampleMap, examples: NDArray[np.float32], place: int) -> bytes:
    """Return the features of all examples but one, with the function's digest."""
    digest, features = mapping.digest, mapping(examples.copy())
    return b"".join(
        [digest.encode(), mapping.digest.encode(), np.delete(features, place, axis=0).tobytes()]
    )


def _attack(told: int, again: int, count: int) -> str:
    if again:
        return f"the same data set mapped twice: features differed in {again} of {count} trials"
    return f"features of the other examples compared: different in {told} of {count} trials"
