"""Sums over people with one mistake each, and the correct sums of ``person_dp_sgd``."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

import fedldp
from fedldp.algorithms.composition import Algorithm, Composition
from fedldp.algorithms.features import OnFeatures
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.systems import systems
from fedldp.core.randomness import Stream
from fedldp.data.examples import Examples
from fedldp.mechanisms.integer_gaussian import IntegerGaussian
from fedldp.protocol.roles import Update
from fedldp.protocol.wire import Sensitive
from fedldp.training.exact_sums import NORM
from fedldp.training.person_gradients import (
    SUMS,
    DenseGradients,
    PersonGradients,
)

Floats = Any
person_dp_sgd: Any = systems()["person_dp_sgd"]


@dataclass(frozen=True)
class Planted(Algorithm):
    """The parts of ``person_dp_sgd``, with the sums and the noise that the configuration names."""

    def local_update(self, device: Any) -> Any:
        update: Any = super().local_update(device)
        if isinstance(update, OnFeatures):
            return replace(update, update=self._planted(update.update))
        return self._planted(update)

    def _planted(self, update: Any) -> Any:
        assert isinstance(update, PersonGradients)
        assert isinstance(update.summed, DenseGradients)
        made = {each.name: getattr(update, each.name) for each in fields(update)}
        return self.config.gradients(**made | {"summed": self.config.sums(update.summed)})

    def release(self, client: int) -> Release:
        found = super().release(client)
        right = found.mechanism
        if not isinstance(right, IntegerGaussian):
            return found
        planted: Any = self.config.noise
        stages = tuple((stage, planted(*astuple(each))) for stage, each in found.mechanisms)
        return replace(found, mechanism=planted(*astuple(right)), mechanisms=stages)


@dataclass(frozen=True)
class Sums:
    """Sums people without a mistake."""

    inner: DenseGradients

    def __call__(self, weights: Floats, examples: Examples) -> Floats:
        return self.inner(weights, examples)

    def logits(self, weights: Floats, examples: Examples) -> Any:
        return self.inner.logits(weights, examples)


class RightConfig(person_dp_sgd):
    """The correct system; see ``planted.changed`` for those with a mistake.

    Attributes:
        sums: sums people.
        noise: adds noise to the sum, at a client or, with channel = central, at the server.
        gradients: gives each person's vector.
    """

    system: Literal["planted_people:RightConfig"] = "planted_people:RightConfig"
    sums: ClassVar[Any] = Sums
    noise: ClassVar[Any] = IntegerGaussian
    gradients: ClassVar[Any] = PersonGradients

    @property
    def composition(self) -> Composition:
        right = super().composition
        if self.channel != "central":
            return right

        found: Any = right.estimate
        by_server = replace(
            found, noise=lambda size, round: self.noise(*astuple(found.noise(size, round)))
        )
        return replace(right, estimate=by_server)

    def algorithm(self, problem: Problem) -> Algorithm:
        return Planted(self, self.composition, problem)


class RowsClipped(Sums):
    """Clips every row instead of every person, who may have several rows."""

    def __call__(self, weights: Floats, examples: Examples) -> Floats:
        return self.inner(weights, replace(examples, people=None))


class PrivateDivisor(Sums):
    """Divides the sum by the client's number of rows, which only the client knows."""

    def __call__(self, weights: Floats, examples: Examples) -> Floats:
        return np.rint(self.inner(weights, examples) * (64 / max(1, len(examples))))


class NoNoise(IntegerGaussian):
    """States a share of the noise but leaves it out, as if the other clients' shares were
    enough."""

    def noisy(self, values: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        return (values + self.step // 2) // self.step


class HalfNoise(IntegerGaussian):
    """States twice the deviation of the noise that it adds."""

    def noisy(self, values: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        return replace(right_of(self), scale_bits=self.scale_bits - 1).noisy(values, stream)


def right_of(mechanism: IntegerGaussian) -> IntegerGaussian:
    """Return the right mechanism that has the same settings."""
    return IntegerGaussian(*astuple(mechanism))


class FloatSums(Sums):
    """Adds people's vectors as floats with 24 bits, then rounds."""

    def __call__(self, weights: Floats, examples: Examples) -> Floats:
        assert examples.people is not None
        total = np.zeros(len(weights), np.float32)
        for who in np.unique(examples.people):
            total += self.inner(weights, examples.taken(examples.people == who)).astype(np.float32)
        return np.rint(total.astype(np.float64))


class FloatClip(Sums):
    """Scales vectors to the norm in floats, and rounds to the nearest integers."""

    def __call__(self, weights: Floats, examples: Examples) -> Floats:
        assert examples.people is not None
        total = np.zeros(len(weights))
        for who in np.unique(examples.people):
            vector = self.inner(weights, examples.taken(examples.people == who))
            total += np.rint(vector * (NORM / max(float(np.linalg.norm(vector)), 1.0)))
        return total


class RowsSampled(PersonGradients):
    """Samples rows one by one instead of persons."""

    def __call__(self, broadcast: Any, batch: Any, group: int = 1) -> Any:
        alone = [replace(each, examples=replace(each.examples, people=None)) for each in batch]
        (client,) = alone
        taken = self._taken(client)
        (client,) = batch
        sums = self.summed(broadcast.weights, client.examples.taken(taken))
        return Sensitive(Update(rows=broadcast.weights[None], aux={SUMS: sums[None]}))


def settings(channel: str = "named", rounds: int = 2, **more: Any) -> dict[str, Any]:
    """Return settings of three sites on digits."""
    recipe = fedldp.recipe(
        "person-dp-sgd-digits", channel=channel, num_clients=3, rounds=rounds, **more
    )
    return recipe.model_dump(exclude={"system"}, exclude_defaults=True)
