"""Features that make one mistake each, and correct ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from planted_systems import RightConfig

from fedldp.algorithms.composition import Composition
from fedldp.algorithms.features import Features
from fedldp.data.image_features import digest_of


@dataclass(frozen=True)
class Public:
    """Examples as vectors, minus a public number."""

    size: int

    digest = digest_of("planted")

    def __call__(self, examples: Any) -> Any:
        flat = np.nan_to_num(examples.reshape(len(examples), -1), posinf=0, neginf=0)
        return np.asarray(flat - self.centre(flat), np.float32)

    def centre(self, flat: Any) -> Any:
        return 0.5


class BatchMean(Public):
    """Fitted on the given rows: subtracts their mean."""

    def centre(self, flat: Any) -> Any:
        return flat.mean(axis=0)


@dataclass(frozen=True)
class Running(Public):
    """Subtracts the mean of all rows that it has ever been given."""

    seen: list[Any] = field(default_factory=list)

    def centre(self, flat: Any) -> Any:
        self.seen.append(flat.mean(axis=0))
        return np.mean(self.seen, axis=0)


@dataclass(frozen=True, kw_only=True)
class PlantedFeatures(Features):
    """The features of a class above."""

    kind: Any

    def mapping(self, problem: Any) -> Any:
        return self.kind(int(np.prod(problem.input_shape)))

    def shape(self, problem: Any) -> tuple[int, ...]:
        return (self.mapping(problem).size,)


class FeaturesConfig(RightConfig):
    """A system with the features of a class above."""

    kind: ClassVar[Any] = Public

    @property
    def composition(self) -> Composition:
        return replace(super().composition, features=PlantedFeatures(kind=self.kind))
