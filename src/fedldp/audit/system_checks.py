"""The exact checks of a system: its sums over people, and its features.

In sums over people, each part must follow from the weights and one person's rows. Noise is
calibrated to one person's vector. If other people's vectors change when a person is added, leaves
or has more rows, even in the last bit of a float, the sum moves by more than that vector. No number
of trials shows so small a change. So the check runs the local update on people together, on each
alone, in another order, without one of them, and with one of them replaced, and compares the sums
as integers.

If a step samples people, a person with several rows must be in the sample with all of them, or with
none. Everything else is compared without sampling.

The noise is drawn in each stage's first and last round, as a client or a trusted server draws it.
Its variance must be the one that the stage's event states.

An example's features must not depend on other examples: every statement assumes this. Features that
are fitted on the given rows, or that keep something from one call to the next, reveal one example
in the features of others, and nothing is charged for it. The check compares data sets that differ
in one example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import (
    Event,
    GaussianShare,
    PerPerson,
    PerRecord,
    SampledShare,
)
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.evaluation import MOST_BANDS
from fedldp.algorithms.features import OnFeatures
from fedldp.algorithms.people import MeanOfPeople, PerPersonRun
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import whose_word
from fedldp.audit.bounds import epsilon_lower
from fedldp.audit.game import Planned
from fedldp.audit.harness import CPU, AttackedClient, update_of
from fedldp.audit.inputs import FAR
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import GameResult, Line
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.data.examples import Examples
from fedldp.data.image_features import ExampleMap
from fedldp.mechanisms.integer_gaussian import IntegerGaussian
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.roles import LocalUpdate, Sender, Update
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.training.column_sums import LONGEST, SCALE, SHIFT
from fedldp.training.exact_sums import NORM
from fedldp.training.person_gradients import SUMS, PersonGradients
from fedldp.training.questions import EDGES
from fedldp.training.tensors import one_thread

Sums = NDArray[np.float64]

_PEOPLE, _MOST_ROWS, _TRIALS = 9, 5, 16
_SCALES = (0.01, 1.0, FAR, 1e30)
"""The factors by which features are multiplied."""
_WEIGHTS = (0.0, 0.3, 30.0, 1e30)
"""The standard deviation of the weights that a server broadcasts."""
_DRAWN, _LEAST = 1 << 14, 0.9
"""How much noise is drawn in a round, and the least share of the stated variance that it may have.

The variance of so much of the right noise is smaller with probability below 1e-18.
"""
_ODD = (np.inf, np.nan, 0.0)
"""Unusual features, which one person has."""


def line_of_system(config: RunConfig, problem: Problem, **told: Any) -> Line:
    """Return a line about a system; keyword arguments are the other fields of the line."""
    usual: dict[str, Any] = {"size": config.layout(problem).size, "stated_by": whose_word(config)}
    return Line(subject=config.name(), of_system=True, **usual | told)


@dataclass(frozen=True, kw_only=True)
class PeopleCheck(Planned):
    """The local update of a configuration that sums over people, applied to made-up people.

    The proven epsilon is 0: what others add to a sum reveals nothing about a person.

    Attributes:
        config: the configuration of the run.
        problem: public facts about its data.
    """

    certain = True
    config: RunConfig
    problem: Problem

    @classmethod
    def of(cls, config: RunConfig, problem: Problem) -> PeopleCheck | None:
        """Return the check of a configuration; None if its local update sums over no people."""
        line = line_of_system(
            config,
            problem,
            setting="sums over people",
            unit="record" if problem.people is None else "person",
            neighbours="one person of a client is replaced; the adversary sees what the others add",
            proven=0.0,
        )
        found = cls(lines=(line,), config=config, problem=problem, key="exact")
        return found if isinstance(found._sampling, PersonGradients) else None

    @one_thread()
    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Sum, and return one row."""
        generator, count = keys.generator("people"), trials or _TRIALS
        with np.errstate(all="ignore"):
            wrong = [self._too_little_noise(generator)] * count  # takes no trials
            if not any(wrong):
                wrong = [found for at in range(count) if (found := self._wrong(at, generator))]
        told = wrong[0] if wrong else "each person's part depends only on that person's rows"
        lower = epsilon_lower(len(wrong), count, 0, count, delta=0.0, confidence=confidence)
        (line,) = self.lines
        attack = f"sums over people compared; {told}"
        return [line.compared(lower, attack, trials=count, wrong=bool(wrong))]

    @cached_property
    def _sampling(self) -> LocalUpdate:
        found = self.config.algorithm(self.problem).local_update(CPU)
        return found.update if isinstance(found, OnFeatures) else found

    @cached_property
    def _update(self) -> PersonGradients:
        assert isinstance(self._sampling, PersonGradients)
        return replace(self._sampling, sampled=1.0)

    @cached_property
    def _distance(self) -> int:
        """How far replacing one person may move a sum; the noise is calibrated to this distance."""
        calibration = self.config.composition.calibration
        assert isinstance(calibration, PerPersonRun)
        return calibration.noise(self.config.layout(self.problem).size).distance

    def _wrong(self, trial: int, generator: np.random.Generator) -> str:
        """Describe what is wrong; return an empty string if nothing is."""
        told = self._told(trial, self._weights(trial, generator))
        examples = self._people(trial, generator)
        whole = self._sum(told, examples)
        if not _is_whole(whole):
            return "a sum contains numbers that are not whole"
        place = int(generator.integers(_PEOPLE))
        other = self._with_another(examples, place, generator)
        moved = np.array(_integers(self._sum(told, other)), object) - _integers(whole)
        if (apart := int((moved**2).sum())) > self._distance**2:
            times = math.sqrt(apart) / self._distance
            return f"one person moves the sum by {times:.9g} times the calibrated distance"
        if self._parted(told, examples, place, generator.bytes(32)):
            return "a sample contains only some of a person's rows"
        order = generator.permutation(_PEOPLE)
        in_turn = np.argsort(order[examples.people], kind="stable")
        if not _same(self._sum(told, examples.taken(in_turn)), _integers(whole)):
            return "the same rows in another order give a different sum"
        if self._votes:
            return ""  # voters are drawn by position, and positions shift when a person leaves
        return self._not_of_each(told, examples, place)

    def _too_little_noise(self, generator: np.random.Generator) -> str:
        """Describe a round whose noise varies less than is stated; return "" if there is none."""
        attacked, composition = (
            AttackedClient(self.config, self.problem, 0),
            self.config.composition,
        )
        estimate = composition.estimate
        stages = composition.stages_of(self.config.rounds)
        for round in sorted({at for stage in stages for at in (stage[0], stage[-1])}):
            size, event = attacked.release.coordinates, attacked.role.encoder.event(0, round)
            nothing = np.zeros(size, np.int64)
            draw: Callable[[Stream], NDArray[np.int64]] = partial(_reported, attacked, round)
            if isinstance(estimate, MeanOfPeople) and estimate.noise is not None:
                assert composition.downlink is not None
                event = composition.downlink(attacked.release.size, self.problem, round)
                draw = partial(estimate.noise(size, round).noisy, nothing)
            drawn = [
                draw(Stream(generator.bytes(KEY_BYTES), simulated=False))
                for _ in range(-(-_DRAWN // size))
            ]
            share = float(np.square(np.array(drawn, np.float64)).mean()) / _variance(event)
            if share < _LEAST:
                return f"the noise of round {round} has {share:.3g} times the stated variance"
        return ""

    def _parted(self, told: Broadcast, examples: Examples, person: int, key: bytes) -> bool:
        """Return whether a sample has some but not all of one person's rows."""
        update, own = self._sampling, _of(examples, person)
        assert isinstance(update, PersonGradients)
        if update.sampled == 1:
            return False
        sums = np.asarray(update_of(update, told, own, key).aux[SUMS][0], np.float64)
        return not _same(sums, _integers(self._sum(told, own))) and bool(sums.any())

    def _not_of_each(self, told: Broadcast, examples: Examples, place: int) -> str:
        """Describe how a sum differs from the sum of what each person gives alone."""
        own = [self._sum(told, _of(examples, who)) for who in range(_PEOPLE)]
        longest = max(sum(step**2 for step in _integers(each)) for each in own)
        if longest > self._longest(told):
            times = math.sqrt(longest / self._longest(told))
            return f"a person's vector is {times:.9g} times as long as the noise allows for"
        if not _same(self._sum(told, examples), _sum_of(own)):
            return "the sum over all people is not the sum of what each person gives alone"
        others = _sum_of(own[:place] + own[place + 1 :])
        assert examples.people is not None
        if not _same(self._sum(told, examples.taken(examples.people != place)), others):
            return "the other people give a different sum after one person has left"
        return ""

    def _told(self, trial: int, weights: NDArray[np.float32]) -> Broadcast:
        """Return the broadcast of a round of each kind in turn, with hostile public arrays."""
        firsts = {stage[0] for stage in self.config.composition.stages_of(self.config.rounds)}
        round = sorted(firsts)[(trial + trial // len(_WEIGHTS)) % len(firsts)]
        odd = np.roll([0.0, 3.0, -1e30, np.nan, np.inf, 1e-30], trial)
        columns = weights.size // self.problem.num_classes - 1
        told = {
            SHIFT: np.resize(odd, columns),
            SCALE: np.resize(odd, columns),
            EDGES: np.resize(odd, (max(4, self.problem.num_classes), 1 + trial % MOST_BANDS)),
        }
        public = {name: values.astype(np.float32) for name, values in told.items()}
        return Broadcast(round=round, weights=weights, public=public)

    def _longest(self, told: Broadcast) -> float:
        """Return the squared norm that one person's vector may have in the round of a broadcast.

        Only the distance of two vectors decides how much noise is needed; the norm decides whether
        sums fit into the modulus.
        """
        if told.round in self._update.measured:
            return LONGEST**2
        for rounds, _ in self._update.questions:
            if told.round in rounds:
                return 2 * NORM**2
        return self._distance**2 / 4

    def _sum(self, told: Broadcast, examples: Examples) -> Sums:
        """Return the sum to which noise is added, for a broadcast."""
        found = update_of(self._update, told, examples)
        return np.asarray(found.aux[SUMS][0], np.float64)

    @property
    def _votes(self) -> bool:
        return self._update.held_out > 0

    def _with_another(
        self, examples: Examples, place: int, generator: np.random.Generator
    ) -> Examples:
        """Return the people, with one of them replaced by many outlying rows of one class."""
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
        """Return people with 1 to ``_MOST_ROWS`` rows, in mixed order; every label occurs."""
        shape, classes = self._shape, self.problem.num_classes
        whose = np.repeat(np.arange(_PEOPLE), generator.integers(1, _MOST_ROWS + 1, _PEOPLE))
        generator.shuffle(whose)
        scale = _SCALES[trial // len(_WEIGHTS) % len(_SCALES)]
        features = generator.uniform(-scale, scale, (len(whose), *shape)).astype(np.float32)
        # One person's rows cancel each other; in every other trial, one person's features are all
        # infinite, NaN or 0.
        features[whose == 0] = features[whose == 0][:1]
        if trial % 2:
            features[whose == 1] = _ODD[trial // 2 % len(_ODD)]
        return Examples(features, generator.integers(0, classes, len(whose)), whose)

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of one example as the local update gets it."""
        return self.config.algorithm(self.problem).input_shape


def _reported(attacked: AttackedClient, round: int, stream: Stream) -> NDArray[np.int64]:
    """Return the noise in a client's report of a sum of zeros, in coarse steps."""
    broadcast, size = attacked.broadcast(round), attacked.release.coordinates
    sender = Sender(
        index=0, num_examples=Sensitive(1), fresh=lambda purpose: stream,
        kept=lambda purpose: stream, store=MemoryStore(),
    )  # fmt: skip
    nothing = Update(rows=broadcast.weights[None], aux={SUMS: np.zeros((1, size))})
    report = alone(attacked.role.encoder, Sensitive(nothing), broadcast, sender)
    mechanism = attacked.release.at(round).mechanism
    assert isinstance(mechanism, IntegerGaussian)
    total = mechanism.aggregate(size)
    total.add(report.payload, 1)
    return total.total()


def _variance(event: Event) -> int:
    """Return the variance of the noise that an event about people states, in coarse steps."""
    assert isinstance(event, PerPerson | PerRecord)
    of_one = event.person if isinstance(event, PerPerson) else event.record
    assert isinstance(of_one, GaussianShare | SampledShare)
    return of_one.variance


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


_EXAMPLES, _MAP_TRIALS = 8, 20
_MAP_SCALES = (0.0, 1.0, FAR, -FAR, 1e30, np.inf, np.nan)
"""Factors by which the replaced example is multiplied after it is drawn again."""


@dataclass(frozen=True, kw_only=True)
class MapCheck(Planned):
    """The features of a configuration, computed for neighbouring data sets.

    The statement proves an epsilon of 0: the features of an example reveal nothing about another.

    Attributes:
        mapping: the features.
        input_shape: the shape of one example.
    """

    mapping: ExampleMap
    input_shape: tuple[int, ...]

    @classmethod
    def of(cls, config: RunConfig, problem: Problem) -> MapCheck | None:
        """Return the check of a configuration; None if it has no features."""
        mapping = config.composition.features.mapping(problem)
        if mapping is None:
            return None
        line = line_of_system(
            config,
            problem,
            setting="features",
            size=mapping.size,
            unit="record",
            neighbours="one example is replaced; the adversary sees the features of the others",
            proven=0.0,
        )
        return cls(lines=(line,), mapping=mapping, input_shape=problem.input_shape, key="exact")

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Map pairs of data sets, and return one row."""
        generator, each = keys.generator("features"), trials or _MAP_TRIALS
        told, again, count = 0, 0, each * len(_MAP_SCALES)
        for trial in range(count):
            one = generator.random((_EXAMPLES, *self.input_shape)).astype(np.float32)
            other, place = one.copy(), trial % each % _EXAMPLES
            with np.errstate(all="ignore"):
                other[place] = generator.random(one.shape[1:]) * _MAP_SCALES[trial // each]
                seen = [_of_others(self.mapping, data, place) for data in (one, other, one)]
            told += seen[0] != seen[1]
            again += seen[0] != seen[2]
        lower = epsilon_lower(told, count, again, count, delta=0.0, confidence=confidence)
        attack = f"features of the other examples compared: different in {told} of {count} trials"
        if again:
            attack = (
                f"the same data set mapped twice: features differed in {again} of {count} trials"
            )
        (line,) = self.lines
        row = line.compared(lower, attack, trials=count, wrong=bool(told or again))
        return [replace(row, confidence=confidence)]  # features may be drawn at random


def _of_others(mapping: ExampleMap, examples: NDArray[np.float32], place: int) -> bytes:
    """Return the features of all examples but one, with the function's digest."""
    digest, features = mapping.digest, mapping(examples.copy())
    return b"".join(
        [digest.encode(), mapping.digest.encode(), np.delete(features, place, axis=0).tobytes()]
    )
