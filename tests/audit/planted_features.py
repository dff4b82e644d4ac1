"""Presets whose features make one mistake each, and a correct preset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from planted_systems import right

from fedldp.algorithms.composition import Composition
from fedldp.algorithms.features import Features
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import Count, LearningRate, Offer, Positive
from fedldp.data.image_features import digest_of

OFFERS = (
    Offer("num_clients", Count, "of the run", 10),
    Offer("rounds", Count, "of the run", 1),
    Offer("dataset", str, "of the run", "digits"),
    Offer("model", str, "of the run", "logistic"),
    Offer("learning_rate", LearningRate, "of the clients' SGD", 0.1),
    Offer("epsilon", Positive, "of a report", 1.0),
)


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


class BatchScale(Public):
    """Fitted on one of the given rows, the one with the largest number."""

    def __call__(self, examples: Any) -> Any:
        found = super().__call__(examples)
        return found / np.float32(max(1e3, np.abs(found).max()))


@dataclass(frozen=True)
class Running(Public):
    """Subtracts the mean of all rows that it has ever been given."""

    seen: list[Any] = field(default_factory=list)

    def centre(self, flat: Any) -> Any:
        self.seen.append(flat.mean(axis=0))
        return np.mean(self.seen, axis=0)


@dataclass(frozen=True)
class DigestOfRows(Public):
    """Features whose digest depends on the rows."""

    kept: list[str] = field(default_factory=lambda: ["0" * 64])

    @property
    def digest(self) -> str:  # type: ignore[override]
        return self.kept[-1]

    def __call__(self, examples: Any) -> Any:
        self.kept.append(digest_of(examples.tobytes()))
        return super().__call__(examples)


@dataclass(frozen=True, kw_only=True)
class PlantedFeatures(Features):
    """The features of a class above."""

    kind: Any

    def mapping(self, problem: Any) -> Any:
        return self.kind(int(np.prod(problem.input_shape)))

    def shape(self, problem: Any) -> tuple[int, ...]:
        return (self.mapping(problem).size,)


def _with(kind: Any, settings: Settings) -> Composition:
    return replace(right.compose(right()), features=PlantedFeatures(kind=kind))


@preset(*OFFERS)
def public(settings: Settings) -> Composition:
    """Subtracts a public number: as private as stated."""
    return _with(Public, settings)


@preset(*OFFERS)
def batch_mean(settings: Settings) -> Composition:
    """See ``BatchMean``."""
    return _with(BatchMean, settings)


@preset(*OFFERS)
def batch_scale(settings: Settings) -> Composition:
    """See ``BatchScale``."""
    return _with(BatchScale, settings)


@preset(*OFFERS)
def running(settings: Settings) -> Composition:
    """See ``Running``."""
    return _with(Running, settings)


@preset(*OFFERS)
def digest_of_rows(settings: Settings) -> Composition:
    """See ``DigestOfRows``."""
    return _with(DigestOfRows, settings)
