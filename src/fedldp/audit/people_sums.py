"""The exact check of sums over people: what one adds follows from the weights and its rows alone.

Noise is sized for one person's vector. Where the vectors of others change when a person comes, goes
or has more rows, if only in the last bit of a float, the sum moves by more than that. No number of
trials shows so little; so the local update itself is given people together, alone, in another
order, and without one another, and sums are compared as integers.

Where a step takes a sample of people, one who has several rows is to be in it with all of them, or
with none. All else is compared without sampling.

Of a client that takes several noisy steps by itself, the noisy sums are noted, and the same steps
taken again from these alone, with other people: the same weights must come out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.people import PerPersonRun
from fedldp.algorithms.problem import Problem
from fedldp.audit.bounds import epsilon_lower
from fedldp.audit.harness import CPU, AttackedClient, update_of
from fedldp.audit.inputs import FAR
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import Estimate, Result
from fedldp.core.randomness import Stream
from fedldp.data.examples import Examples
from fedldp.protocol.roles import LocalUpdate
from fedldp.protocol.wire import Broadcast
from fedldp.training.mapped_examples import OnFeatures
from fedldp.training.person_gradients import CLASS_WEIGHTS, SUMS, NoisySteps, PersonGradients
from fedldp.training.tensors import one_thread

Sums = NDArray[np.float64]

_PEOPLE, _MOST_ROWS, _TRIALS = 9, 5, 16
_SCALES = (0.01, 1.0, FAR, 1e30)
"""What features are multiplied by."""
_WEIGHTS = (0.0, 0.3, 30.0, 1e30)
"""The deviation of the weights that a server tells."""
_ODD = (np.inf, np.nan, 0.0)
"""Features of one person."""


@dataclass(frozen=True)
class PlannedPeopleCheck:
    """The local update of a configuration that sums over people, on people of its own.

    Its statement proves an epsilon of 0: a person tells nothing by what others add to a sum.

    Attributes:
        config: of the run.
        problem: public facts on its data.
    """

    config: RunConfig
    problem: Problem

    @property
    def bounds(self) -> int:
        """None by chance: what it finds is exact."""
        return 0

    @property
    def title(self) -> str:
        """What is checked."""
        return f"{self.config.name()}, sums over people: what others add, where one is replaced"

    @property
    def applies(self) -> bool:
        """Whether the local update sums over people."""
        return isinstance(self._update, PersonGradients | NoisySteps)

    @cached_property
    def _sampling(self) -> LocalUpdate:
        found = self.config.algorithm(self.problem).local_update(CPU)
        return found.update if isinstance(found, OnFeatures) else found

    @cached_property
    def _update(self) -> LocalUpdate:
        found = self._sampling
        if isinstance(found, PersonGradients | NoisySteps):
            return replace(found, sampled=1.0)
        return found

    def rows(self, keys: AuditKeys, confidence: float, trials: int | None) -> Iterator[Result]:
        """Sum, and yield one row; it has no confidence, for it is certain."""
        generator, count = keys.generator("people"), trials or _TRIALS
        with one_thread(), np.errstate(all="ignore"):
            wrong = [found for at in range(count) if (found := self._wrong(at, generator))]
        yield Result(
            subject=self.config.name(),
            game="system",
            attack=f"sums over people compared; {wrong[0] if wrong else 'each is of its own rows'}",
            measure="epsilon",
            measured=Estimate.at_least(
                epsilon_lower(len(wrong), count, 0, count, delta=0.0, confidence=confidence)
            ),
            setting="sums over people",
            size=self.config.layout(self.problem).size,
            unit="record" if self.problem.people is None else "person",
            neighbours="one person of a client is replaced; what the others add to its sum is seen",
            proven=0.0,
            trials=count,
            verdict="bug" if wrong else "ok",
            note="beyond the proven figure" if wrong else "exact: bit for bit the same",
        )

    @cached_property
    def _distance(self) -> int:
        """How far a sum may move where one person is replaced, by the noise."""
        calibration = self.config.composition.calibration
        assert isinstance(calibration, PerPersonRun)
        return calibration.noise(self.config.layout(self.problem).size).distance

    def _wrong(self, trial: int, generator: np.random.Generator) -> str:
        """Return what is not as it should be, in words; nothing if all is."""
        told = self._told(trial, self._weights(trial, generator))
        examples = self._people(trial, generator)
        whole = self._sum(told, examples)
        if not _is_whole(whole):
            return "a sum is not of whole numbers"
        place = int(generator.integers(_PEOPLE))
        other = self._with_another(examples, place, generator)
        moved = np.array(_integers(self._sum(told, other)), object) - _integers(whole)
        if (apart := int((moved**2).sum())) > self._distance**2:
            times = math.sqrt(apart) / self._distance
            return f"one person moves the sum by {times:.9g} times what the noise is for"
        if self._parted(told, examples, place, generator.bytes(32)):
            return "a sample takes some of a person's rows"
        order = generator.permutation(_PEOPLE)
        in_turn = np.argsort(order[examples.people], kind="stable")
        if not _same(self._sum(told, examples.taken(in_turn)), _integers(whole)):
            return "the same people in another order of rows give another sum"
        if self._votes:
            return ""  # who votes is drawn by place, and places move where a person goes
        return self._not_of_each(told, examples, place) or self._not_of_sums(told, examples)

    def _parted(self, told: Broadcast, examples: Examples, person: int, key: bytes) -> bool:
        """Return whether a sample of one person is neither all that she has nor nothing."""
        update, own = self._sampling, _of(examples, person)
        assert isinstance(update, PersonGradients | NoisySteps)
        if update.sampled == 1 or self._votes:  # where one votes the sum is another
            return False
        seen: list[Any] = []
        if isinstance(update, NoisySteps):
            noting: Any = _Noise(_NoNoise(), seen, again=False)
            update = replace(update, noise=noting)
        found = update_of(update, told, own, key)
        sums = np.asarray(seen[0] if seen else found.aux[SUMS][0], np.float64)
        return not _same(sums, _integers(self._sum(told, own))) and bool(sums.any())

    def _not_of_each(self, told: Broadcast, examples: Examples, place: int) -> str:
        """Return where a sum is not that of what each person gives alone, in words."""
        own = [self._sum(told, _of(examples, who)) for who in range(_PEOPLE)]
        longest = max(sum(step**2 for step in _integers(each)) for each in own)
        if 4 * longest > self._distance**2:
            times = 2 * math.sqrt(longest) / self._distance
            return f"a person's vector is {times:.9g} times as long as the noise is for"
        if not _same(self._sum(told, examples), _sum_of(own)):
            return "people together do not give the sum of what each gives alone"
        others = _sum_of(own[:place] + own[place + 1 :])
        assert examples.people is not None
        if not _same(self._sum(told, examples.taken(examples.people != place)), others):
            return "others give another sum where one person has gone"
        return ""

    def _not_of_sums(self, told: Broadcast, examples: Examples) -> str:
        """Return where weights after several steps are not of the noisy sums, in words."""
        update = self._update
        if not isinstance(update, NoisySteps):
            return ""
        seen: list[Any] = []
        noting: Any = _Noise(update.noise, seen, again=False)
        found = self._rows(replace(update, noise=noting), told, examples)
        if len(seen) != update.steps:
            return f"{len(seen)} noisy sums are made, and {update.steps} are charged"
        again: Any = _Noise(update.noise, list(seen), again=True)
        for others in (examples.taken(slice(0, 1)), examples.taken(slice(1, None))):
            again.seen[:] = seen
            nothing = replace(update, noise=again, summed=_Nothing())
            if self._rows(nothing, told, others) != found:
                return "weights depend on more than the noisy sums"
        return ""

    def _told(self, trial: int, weights: NDArray[np.float32]) -> Broadcast:
        """Return a broadcast of a round that counts classes, where there is one, or of another."""
        update = self._update
        if not isinstance(update, PersonGradients) or not update.count_rounds:
            return Broadcast(round=1, weights=weights)
        if trial % 3 == 0:
            return Broadcast(round=update.count_rounds, weights=weights)
        told = {CLASS_WEIGHTS: np.geomspace(0.01, 1, update.num_classes, dtype=np.float32)}
        return Broadcast(round=update.count_rounds + 1, weights=weights, public=told)

    def _sum(self, told: Broadcast, examples: Examples) -> Sums:
        """Return the sum that noise is added to, for a broadcast."""
        if isinstance(self._update, NoisySteps):
            return self._update.summed(told.weights, examples)
        found = update_of(self._update, told, examples)
        return np.asarray(found.aux[SUMS][0], np.float64)

    def _rows(self, update: LocalUpdate, told: Broadcast, examples: Examples) -> bytes:
        """Return the weights that leave a client after its steps."""
        found = update_of(update, told, examples)
        return np.asarray(found.rows).tobytes()

    @property
    def _votes(self) -> bool:
        return isinstance(self._update, PersonGradients) and self._update.held_out > 0

    def _with_another(
        self, examples: Examples, place: int, generator: np.random.Generator
    ) -> Examples:
        """Return the people with one replaced: by many rows of one class, which are far out."""
        assert examples.people is not None
        rest = examples.taken(examples.people != place)
        shape = (4 * _MOST_ROWS, *self._shape)
        features = (FAR * generator.uniform(-1, 1, shape)).astype(np.float32)
        labels = np.full(len(features), generator.integers(self.problem.num_classes))
        return Examples(
            np.concatenate([rest.features, features]),
            np.concatenate([rest.labels, labels]),
            np.concatenate([rest.people, np.full(len(features), place)]),
        )

    def _weights(self, trial: int, generator: np.random.Generator) -> NDArray[np.float32]:
        first = AttackedClient(self.config, self.problem, 0).first.weights
        change = generator.normal(size=first.size) * _WEIGHTS[trial % len(_WEIGHTS)]
        return (first + change).astype(np.float32)

    def _people(self, trial: int, generator: np.random.Generator) -> Examples:
        """Return people of one row to ``_MOST_ROWS``, in a mixed order; each label is somewhere."""
        shape, classes = self._shape, self.problem.num_classes
        whose = np.repeat(np.arange(_PEOPLE), generator.integers(1, _MOST_ROWS + 1, _PEOPLE))
        generator.shuffle(whose)
        scale = _SCALES[trial // len(_WEIGHTS) % len(_SCALES)]
        features = generator.uniform(-scale, scale, (len(whose), *shape)).astype(np.float32)
        # One has rows that cancel each other, and one is no number in one trial of two.
        features[whose == 0] = features[whose == 0][:1]
        if trial % 2:
            features[whose == 1] = _ODD[trial // 2 % len(_ODD)]
        return Examples(features, generator.integers(0, classes, len(whose)), whose)

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of what the local update is given of one example."""
        return self.config.algorithm(self.problem).input_shape


@dataclass(frozen=True)
class _Noise:
    """What stands for a mechanism: it notes the noisy sums of a client, or gives them once more."""

    right: Any
    seen: list[Any]
    again: bool

    @property
    def step(self) -> int:
        return int(self.right.step)

    def noisy(self, values: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        if self.again:
            found: NDArray[np.int64] = self.seen.pop(0)
            return found
        self.seen.append(self.right.noisy(values, stream))
        return np.array(self.seen[-1])


class _NoNoise:
    """What stands for a mechanism, and adds nothing."""

    step = 1

    def noisy(self, values: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
        return values


class _Nothing:
    """What sums people who have no gradient."""

    def __call__(self, weights: NDArray[np.float32], examples: Examples) -> Sums:
        return np.zeros(weights.size)

    def right(self, weights: NDArray[np.float32], examples: Examples) -> NDArray[np.bool_]:
        return np.zeros(len(examples), np.bool_)

    def weighted(self, class_weights: tuple[float, ...]) -> _Nothing:
        return self


def _of(examples: Examples, person: int) -> Examples:
    assert examples.people is not None
    return examples.taken(examples.people == person)


def _integers(found: Sums) -> list[int]:
    return [int(each) for each in found]


def _is_whole(found: Sums) -> bool:
    return bool(np.isfinite(found).all() and (found == np.rint(found)).all())


def _sum_of(found: list[Sums]) -> list[int]:
    return [sum(column) for column in zip(*map(_integers, found), strict=True)]


def _same(found: Sums, expected: list[int]) -> bool:
    return _is_whole(found) and _integers(found) == expected
