"""Parts that protect people: a site's noisy sum of their clipped gradients.

    local_update  for each person one gradient, clipped, as integers; all added up (``SUMS``)
    encoder       the sum on a coarser grid, plus discrete Gaussian noise
    server_step   noisy sums -> mean gradient -> W minus ``learning_rate`` times it

These parts protect one person at a client, whoever the other people are: neighbouring data differ
in one replaced person, or in one row if the data do not say which rows belong to the same person.
They do not protect a client as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import Event, InClear, PerPerson, PerRecord, SampledShare
from fedldp.accounting.guarantees import LEAST_FOR_MU, Adversary, EpsilonMeaning
from fedldp.accounting.numerics.subsampled import poisson_noise
from fedldp.algorithms.asking import EVALUATION, SHARES_OF_CLASSES, asked_tables, groups_of
from fedldp.algorithms.bounds import Bound, Send
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import SUBSET, Algorithm, Composition, Local
from fedldp.algorithms.evaluation import LOOK_SHARE, OfClasses, OfNumbers, split
from fedldp.algorithms.participation import Participation, most_rounds, participation_of
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Needs, Release
from fedldp.algorithms.server_update import (
    Estimate,
    Estimated,
    FirstArrays,
    Values,
    stream_of_noise,
)
from fedldp.algorithms.stages import (
    SHARES,
    Stage,
    StageSettings,
    intercept_step,
    measured,
    shares_of,
    stage_at,
    stages_of,
    start_at,
)
from fedldp.core import kinds
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Caveat
from fedldp.data.public_features import CONSTANT
from fedldp.mechanisms import Mechanism, stated_event
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.mechanisms.integer_gaussian import IntegerGaussian, Integers, coarser, integer_gaussian
from fedldp.models import layers_of
from fedldp.protocol.roles import Arrays, Draw, LocalUpdate, Metrics, State
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Incoming, Report
from fedldp.training import questions
from fedldp.training.answers import SEEN, TWO_SIDED, Answer, as_metrics, is_seen, mean_of
from fedldp.training.column_sums import BLOCK, SCALE, SHIFT, ColumnMap
from fedldp.training.exact_sums import MOST_PEOPLE, NORM
from fedldp.training.person_gradients import (
    INTERCEPT_CLIP,
    LARGEST_CLIP,
    SMALLEST_CLIP,
    SUMS,
    DenseGradients,
    ModelGradients,
    PersonGradients,
    Summed,
    dense_layers,
)
from fedldp.training.questions import ASKED, EDGES, VOTES, Question

if TYPE_CHECKING:
    import torch

Parts = Mapping[int, tuple[NDArray[np.float64], float]]
"""The noisy numbers of people in each cell at each client, and the deviation of their noise."""

PersonClip = Annotated[float, Field(ge=SMALLEST_CLIP, le=LARGEST_CLIP, allow_inf_nan=False)]


class PeopleSettings(StageSettings):
    """The settings of sums over people."""

    sample_rate: Annotated[float, Field(ge=1e-6, le=1)] = 1.0
    """probability that each person takes part in a step, drawn independently and in secret; below 1
    only in simulations"""
    held_out_people: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """share of people who are held out at their sites, drawn once: in every round, the held-out
    people are asked, in the same noisy sum, whether the model is right, so that a run can be
    monitored without a test set"""


_STARTS = ("class_shares", "label_typical")
"""The settings at which the intercept starts."""

_OF_TRAINING = ("measure_share", "intercept_share")
"""The shares of stages that change how a model is trained."""

_LOOK, _LOOK_NOISE = "look", "noise of the look"

SCORE = "held-out accuracy"
"""The name of the server's metric for the noisy share of held-out rows that the model has right."""


@dataclass(frozen=True, kw_only=True)
class PersonSteps(Local):
    """One clipped gradient for each person in a step, summed over people.

    Attributes:
        settings: the preset's settings.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", "label_range", *SUBSET})
    alone: ClassVar[Literal["person"]] = "person"
    sends: ClassVar[str] = SUMS

    settings: Settings

    @property
    def version(self) -> int:
        """One more where noisy counts or an evaluation's tables changed, or where sums got room."""
        of = self.settings
        counts = bool(of.held_out_people or of.evaluation_share or EVALUATION in of.ask)
        return 1 + counts + bool(of.ask)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        settings, people = self.settings, People(self.settings, algorithm.problem)
        summed = self.summed(algorithm)
        return PersonGradients(
            summed=summed,
            held_out=settings.held_out_people,
            sampled=rate_of(settings),
            num_classes=algorithm.problem.num_classes,
            questions=people.questions,
            size=people.size(algorithm.layout.size),
            measured=rounds_of(settings, "measure"),
            intercepts=rounds_of(settings, "intercept"),
            intercept=summed.of_intercept() if isinstance(summed, DenseGradients) else None,
        )

    def check(self, algorithm: Algorithm) -> None:
        """Refuse questions and stages of another model; see ``Local.check``."""
        settings, classes = self.settings, algorithm.problem.num_classes
        if settings.by_columns and not rounds_of(settings, "look"):
            raise ConfigError(
                f"by_columns = {settings.by_columns}: nothing is evaluated; set evaluation_share, "
                f'or ask = ["{EVALUATION}"], or leave it out'
            )
        shares = settings.class_shares
        if shares is not None and (len(shares) != classes or abs(sum(shares) - 1) > 0.01):
            raise ConfigError(
                f"class_shares = {shares}: give one share for each of the {classes} classes, with "
                "a sum of 1"
            )
        given = _given(settings, *_OF_TRAINING, *_STARTS)
        if not given:
            return
        summed = self.summed(algorithm)
        linear = isinstance(summed, DenseGradients) and [
            (layer.bias, layer.relu) for layer in summed.layers
        ] == [(False, False)]
        if not linear or settings.features != "unit-norm":
            raise ConfigError(
                f"{given[0]}, model = {settings.model} and features = {settings.features}: they "
                "need one layer without a bias, on columns of norm 1 and the constant; set model = "
                "linear and features = unit-norm"
            )

    def summed(self, algorithm: Algorithm) -> Summed:
        """Return the sum of people's vectors, in closed form if the model allows it."""
        config, layout = algorithm.config, algorithm.layout
        # A factor that all classes share affects only the clip.
        most = max(self.settings.class_weights or [1.0])
        weights = tuple(each / most for each in self.settings.class_weights or ())
        common: dict[str, Any] = {
            "layout": layout, "clip": self.settings.clip / most, "class_weights": weights,
        }  # fmt: skip
        layers = layers_of(config.model, algorithm.input_shape, algorithm.problem.num_classes)
        whole = config.trainable == "all"
        dense = dense_layers(layers) if whole and layers is not None else None
        if dense is not None:
            return DenseGradients(layers=dense, **common)
        classes = algorithm.problem.num_classes
        return ModelGradients(model=algorithm.untrained(), num_classes=classes, **common)


def _given(settings: Settings, *names: str) -> list[str]:
    """Return those of some settings that say something else than their defaults, with values."""
    return [f"{n} = {value}" for n, value in settings.given(*names).items() if value != "all"]


@dataclass(frozen=True)
class People:
    """What a run sums over people, from its settings and public facts.

    Attributes:
        settings: the preset's settings.
        problem: the public facts about the data.
    """

    settings: Settings
    problem: Problem

    @property
    def number(self) -> int:
        """The total number of people across all clients; see ``people_of``."""
        return people_of(self.settings, self.problem)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The declared class shares, or else equal ones; see ``shares_of``."""
        return shares_of(self.settings, self.problem.num_classes)

    @property
    def evaluation(self) -> OfClasses | OfNumbers:
        """How a model is evaluated, for classes or for numbers."""
        if self.problem.num_classes > 1:
            return OfClasses(self.problem.num_classes)
        within = self.settings.columns.label_range
        assert within is not None
        return OfNumbers(within)

    @cached_property
    def questions(self) -> tuple[tuple[range, Question], ...]:
        """What all people are asked instead of giving gradients, with the rounds."""
        settings, kind = self.settings, self.evaluation
        tables = [asked.table for asked in asked_tables(settings, self.problem)]
        by_group = [
            questions.crossed(group, table)
            for _, group in groups_of(settings, self.problem)
            for table in kind.of_group
        ]
        found = (
            (rounds_of(settings, "ask"), Question(tables)),
            (rounds_of(settings, "look"), Question(kind.look)),
            (rounds_of(settings, "question"), Question((*kind.tables, *by_group))),
        )
        return tuple((rounds, question) for rounds, question in found if rounds)

    def size(self, weights: int) -> int:
        """Return the number of coordinates of a sum, given the number of the model's weights."""
        asked = [question.cells for _, question in self.questions]
        if self.settings.ask:
            return max(asked)
        voted = VOTES.cells if self.settings.held_out_people else 0
        classes = self.problem.num_classes
        measured = classes + 2 * (weights // classes - 1) if self.settings.measure_share else 0
        return max(weights + voted, *asked, measured)

    def event(self, noise: Mechanism, size: int) -> Event:
        """Return what a noisy sum releases about one person, or row; it hides no whole client.

        Args:
            noise: the noise on the sum, which one person changes by at most 2 ``NORM``.
            size: the number of coordinates in the sum.
        """
        of_one, of_rows = stated_event(noise, size), self.problem.people is None
        if (taken := rate_of(self.settings)) < 1:
            assert isinstance(noise, IntegerGaussian)
            of_one = SampledShare(
                squared_distance=coarser(NORM, noise.step, size) ** 2,
                variance=noise.event(size).variance,
                sampling_rate=taken,
                steps=1,
            )
        client = InClear(what=(kinds.PRIVATE_SUMS(of="rows" if of_rows else "people"),))
        if of_rows:
            return PerRecord(record=of_one, client=client)
        return PerPerson(person=of_one, client=client)


def rounds_of(settings: Settings, kind: str) -> range:
    """Return the rounds of a kind of stage; empty if the run has no such stage."""
    return next((stage.rounds for stage in stages_of(settings) if stage.kind == kind), range(0))


def rate_of(settings: Settings) -> float:
    """Return the probability that a random float is below ``sample_rate``, rounded up."""
    rate: float = settings.sample_rate
    return math.ceil(rate * _RESOLUTION) / _RESOLUTION


_RESOLUTION = 1 << 53
"""Numpy's random floats are multiples of the inverse of this number."""


@dataclass(frozen=True, kw_only=True)
class OfPeople(Bound):
    """Sums of people's gradients in grid steps; the local update bounds each gradient.

    Attributes:
        people: the people who are summed over; None as long as no problem is known.
    """

    bounds_people: ClassVar[bool] = True

    send: Send = "update"
    people: People | None = None

    @property
    def known(self) -> People:
        """The people who are summed over."""
        assert self.people is not None
        return self.people

    @property
    def rate(self) -> float:
        """The factor that turns the mean of clients' sums, in grid steps, into a step."""
        settings = self.known.settings
        trained = self.known.number * (1 - settings.held_out_people) * settings.sample_rate
        per_step = settings.clip / NORM * settings.num_clients / trained
        found: float = settings.learning_rate * per_step
        return found

    def size(self, size: int) -> int:
        """Return the number of coordinates in a sum for a model of ``size`` weights."""
        return size if self.people is None else self.people.size(size)

    def event(self, mechanism: Mechanism, size: int) -> Event:
        """Return what a report releases about one person or row; see ``People.event``."""
        if isinstance(mechanism, Integers):  # the server adds the noise
            return super().event(mechanism, size)
        return self.known.event(mechanism, size)

    def unbounded(self, rows: NDArray[np.floating], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return sums unchanged; see ``Bound.apply``."""
        return rows

    def restore(self, mean: NDArray[np.float64], state: State) -> NDArray[np.floating]:
        """Return the step against the mean gradient; see ``Bound.restore``."""
        return -self.rate * mean[: state.weights.size]


def sums_of_people(release: Release, problem: Problem, *, calibration: PerPersonRun) -> Release:
    """Return a release of sums over the public number of people, instead of weights.

    The mechanisms of all stages have the same modulus, so that all rounds' reports are equally
    long.
    """
    people, stages = People(calibration.settings, problem), stages_of(calibration.settings)
    noisy = isinstance(release.mechanism, IntegerGaussian) and len(stages) > 1
    size = people.size(release.size)
    return replace(
        release,
        bound=OfPeople(people=people),
        mechanisms=tuple(
            (stage.rounds, calibration.noise(size, people=people.number, stage=stage))
            for stage in stages
            if noisy
        ),
    )


def people_of(settings: Settings, problem: Problem) -> int:
    """Return the public number of people across all clients, by which sums are divided.

    In an agreement the number is stated. A simulation of the user's own data counts the people and
    rounds the number down to two significant digits, or to tens if it is below 100.

    Raises:
        ConfigError: there are too many people for exact sums.
    """
    found = problem.num_examples if problem.people is None else problem.people
    if problem.counted_in_private:
        found -= found % _last_digit(found)
    most = MOST_PEOPLE * NORM // largest_number(settings)
    if settings.persons_at_sites * (found + _last_digit(found)) > most * settings.num_clients:
        raise ConfigError(
            f"num_clients = {settings.num_clients}: sums are exact for at most {most:,} "
            f"people per client, but there are {found:,}; divide the people among more clients"
        )
    return max(1, found)


def _last_digit(people: int) -> int:
    """Return one unit of the last digit to which a number of people is rounded down."""
    return int(10 ** max(1, len(str(people)) - 2))


_CERTAIN = 7
"""Noise is never this many standard deviations large."""

_ROOM = 128
"""A sum of answers holds at least this many times the people who are stated.

No site takes part with more than twice as many. So far too many people show in a total, which could
otherwise be any number, modulo the largest sum.
"""

_MOST_CLIENTS = 50
"""With any server and at most this many clients, figures are told of each.

With more clients they would hardly be read, and little would be seen.
"""


def largest_number(settings: Settings) -> int:
    """Return the largest number in any person's vector in a run, in magnitude, in grid steps."""
    return ASKED if _given(settings, "held_out_people", "evaluation_share", "ask") else NORM


@dataclass(frozen=True, kw_only=True)
class MeanOfPeople(Estimate):
    """The mean of people's gradients, from exact sums, and whatever else they are asked.

    Attributes:
        noise: returns a trusted server's noise for a sum with a given number of coordinates, in a
            given round.
        settings: the preset's settings.
        needs: "sender" if figures are also told of each client; see ``_MOST_CLIENTS``.
    """

    gives: ClassVar[Send] = "update"
    setting: ClassVar[str] = "the sum over people"

    needs: Needs
    noise: Callable[[int, int], IntegerGaussian] | None
    settings: Settings

    @property
    def people(self) -> People:
        """The people who are summed over."""
        bound = self.released.bound
        assert isinstance(bound, OfPeople)
        return bound.known

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return bands with an edge at 0, and columns as they are; see ``Estimate``.

        A server may tell these in any round, so an attack can ask for any round, too.
        """
        found: dict[str, NDArray[Any]] = {}
        if self.settings.measure_share:
            shares = self.people.shares
            columns = self.released.size // shares.size - 1
            found |= {SHIFT: np.zeros(columns), SCALE: np.ones(columns), SHARES: shares}
        if rounds_of(self.settings, "look"):
            rows = max(4, problem.num_classes)
            found |= {EDGES: np.zeros((rows, 1)), _LOOK: np.zeros(0), _LOOK_NOISE: np.zeros(1)}
        return lambda draw: found

    def told(self, state: State) -> Arrays:
        """Return the map of columns, and edges, if any; see ``Estimate``."""
        told = {n: state.arrays[n].astype(np.float32) for n in (EDGES,) if n in state.arrays}
        return told | (_columns(state.arrays).public() if SHIFT in state.arrays else {})

    def model(self, weights: Values, arrays: Arrays) -> Values:
        """Return the model for the table's own columns; see ``Estimate``."""
        if not self.settings.measure_share:
            return weights
        return _columns(arrays).to_table_weights(weights, CONSTANT)

    @property
    def clients(self) -> int:
        """The agreed number of clients in a round.

        A trusted server divides by this number wherever dividing by the number of clients that
        answered would reveal the latter.
        """
        return self.settings.round_size

    @property
    def asks(self) -> bool:
        """Whether some rounds sum anything but gradients, of which the estimate tells little."""
        given = _given(self.settings, "ask", "held_out_people")
        return len(stages_of(self.settings)) > 1 or bool(given)

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the estimate, and what people answered; see ``Estimate``."""
        stage = stage_at(stages_of(self.settings), state.round)
        own = dict[int, NDArray[np.float64]]()
        if self.needs == "sender" and stage.kind in ("ask", "question"):
            each = list(whole(reports))
            own, reports = self._by_client(each, state), each
        mean, deviation, answered = self.noisy_mean(state, reports, draw)
        # Intervals take a count's own variance to be at most the count, so nobody may count more
        # than once: neither at several sites, nor for the people of clients that did not answer.
        present = answered / self.settings.num_clients
        once = present / self.settings.persons_at_sites
        if stage.kind == "measure":
            return self._measured(mean, deviation, state, present)
        if stage.kind == "intercept":
            return self._intercept(mean, state)
        for rounds, question in self.people.questions:
            if state.round in rounds:
                unit = self.settings.num_clients / question.norm
                counts, noise = mean[: question.cells] * unit, deviation * unit
                if not self._is_plausible(split(counts, question.tables), noise):
                    noise = math.inf  # so that no figure is seen
                # A client adds all of the noise, of which the mean has 1/sqrt(their number).
                of_one = noise * math.sqrt(answered) / self.settings.num_clients
                parts = {
                    client: (found[: question.cells] / question.norm, of_one)
                    for client, found in sorted(own.items())
                }
                counts, noise = counts * once, noise * once
                if stage.kind == "ask":
                    return self._answered(counts, noise, parts)
                if stage.kind == "look":
                    return self._looked(counts, noise, state)
                return self._evaluated(counts, noise, state, parts)
        answers: Metrics = {}
        if self.settings.held_out_people:
            unit, first = self.settings.num_clients / VOTES.norm * once, state.weights.size
            counts = mean[first : first + VOTES.cells] * unit
            noise = deviation * unit
            accuracy = mean_of(np.array([0.0, 1.0]), counts, noise)
            answers = as_metrics([Answer.of(SCORE, *accuracy, seen=is_seen(counts, noise))])
        return Estimated(values=self.released.bound.restore(mean, state), metrics=answers)

    def _is_plausible(self, tables: Sequence[NDArray[np.float64]], noise: float) -> bool:
        """Return whether tables count about as many people as was stated, each the same people.

        If far more answered, a sum does not fit its modulus: some counts are then far too small,
        even below 0, and tables differ. A person at several sites answers at each.
        """
        stated = self.people.number
        most = 2 * stated * self.settings.persons_at_sites
        totals = np.array([counts.sum() for counts in tables])
        slack = _CERTAIN * noise * np.sqrt([counts.size for counts in tables])
        least, largest = (totals - slack).max(), (totals + slack).min()
        none = all(counts.min() >= -_CERTAIN * noise for counts in tables)
        return bool(none and stated / 2 <= largest and least <= min(largest, most))

    def _times_answered(self, shares: NDArray[np.float64]) -> float:
        """Return at how many sites a person answered on average, from noisy shares of all classes.

        They add up to 1, or to more if people at several sites answered at each.
        """
        return float(shares.sum().clip(1, self.settings.persons_at_sites))

    def _by_client(self, reports: Sequence[Report], state: State) -> dict[int, NDArray[np.float64]]:
        """Return each client's own noisy sum, in grid steps.

        Against any server, a client's report has all of the noise that its people need, and is
        charged as what the server sees. So what the server computes from it costs nothing more.
        """
        mechanism, found = self.released.at(state.round).mechanism, {}
        assert isinstance(mechanism, IntegerGaussian)
        for report in reports:
            if report.client is not None:
                alone = mechanism.aggregate(self.released.coordinates)
                alone.add(report.payload, 1)
                found[report.client] = alone.mean()
        return found

    def _answered(self, counts: NDArray[np.float64], noise: float, own: Parts) -> Estimated:
        """Return the answers to the tables that people were asked for.

        Of each client, only the classes' shares are told.
        """
        asked = asked_tables(self.settings, self.people.problem)
        tables = [each.table for each in asked]

        def figures(found: NDArray[np.float64], deviation: float, *, whole: bool) -> list[Answer]:
            return [
                answer
                for each, part in zip(asked, split(found, tables), strict=True)
                if whole or each.name == SHARES_OF_CLASSES
                for answer in each.answers(part, deviation)
            ]

        answers = figures(counts, noise, whole=True)
        answers += _of_each(own, partial(figures, whole=False))
        return Estimated(values=None, metrics=as_metrics(answers))

    def _looked(self, counts: NDArray[np.float64], noise: float, state: State) -> Estimated:
        """Return the edges of the question's bands."""
        shares = None
        if SHARES in state.arrays or self.settings.class_shares is not None:
            shares = state.arrays.get(SHARES, self.people.shares)
        every = self.people.questions
        looked, asked = (question for _, question in every[-2:])
        tables = len(asked.tables) / len(looked.tables)
        later = noise * math.sqrt(tables * LOOK_SHARE / (1 - LOOK_SHARE))
        kind = self.people.evaluation
        edges = kind.edges(counts, noise, self.people.number, later, shares)
        arrays = {_LOOK: counts, _LOOK_NOISE: np.array([noise]), EDGES: edges}
        return Estimated(values=None, arrays=arrays)

    def _evaluated(
        self, counts: NDArray[np.float64], noise: float, state: State, own: Parts
    ) -> Estimated:
        """Return the figures of the model, of all people, by group, and of each client."""
        edges = state.arrays[EDGES].astype(np.float64)
        of_look = float(state.arrays[_LOOK_NOISE][0])
        kind = self.people.evaluation
        cells = sum(table.cells for table in kind.tables)

        def figures(found: NDArray[np.float64], deviation: float) -> list[Answer]:
            both = of_look, deviation
            return kind.figures(state.arrays[_LOOK], found[:cells], edges, both)

        answers, by_group = figures(counts, noise), counts[cells:]
        for names, group in groups_of(self.settings, self.people.problem):
            parts = []
            for table in kind.of_group:
                part, by_group = np.split(by_group, [group.cells * table.cells])
                parts.append(part.reshape(group.cells, -1))
            # The last group is that of people without any of these categories.
            for name, found in zip(names, np.hstack(parts), strict=False):
                answers += kind.figures_of_group(name, found, edges, noise)
        answers += _of_each(own, figures, kind.of_client)
        return Estimated(values=None, metrics=as_metrics(answers))

    def noisy_mean(
        self, state: State, reports: Incoming, draw: Draw
    ) -> tuple[NDArray[np.float64], float, int]:
        """Return the mean of clients' sums in grid steps, its noise's deviation, and their number.

        A trusted server divides by the agreed number, and keeps to itself how many answered.
        """
        size = self.released.coordinates
        mechanism = self.released.at(state.round).mechanism
        assert isinstance(mechanism, IntegerGaussian | Integers)
        total = mechanism.aggregate(size)
        for report in whole(reports):
            total.add(report.payload, 1 if report.weight is None else int(report.weight))
        mean = total.mean()
        if self.noise is None:
            of_sum = math.sqrt(total.clients * float(mechanism.variance(mean[:1])[0]))
            return mean, of_sum / total.clients, total.clients
        noise, summed = self.noise(size, state.round), total.total()
        steps = noise.noisy(summed, stream_of_noise(summed, draw))
        deviation = math.sqrt(float(noise.variance(mean[:1])[0])) / self.clients
        return steps.astype(np.float64) * (noise.step / self.clients), deviation, self.clients

    def _measured(
        self, mean: NDArray[np.float64], deviation: float, state: State, present: float
    ) -> Estimated:
        """Return what was measured; the next weights predict the classes' shares, if known.

        The share ``present`` of the clients answered.
        """
        people = self.people.number
        unit = self.clients / (people * BLOCK)
        classes = self.people.problem.num_classes
        columns = state.weights.size // classes - 1
        unit /= self._times_answered(mean[:classes] * unit) if classes > 1 else 1
        told = mean[: classes + 2 * columns] * unit
        names, folds = self.people.problem.features or (), self.settings.columns.folds
        kept = [place for place, name in enumerate(names) if name in folds]
        columns_seen, shares = measured(told, deviation * unit, classes, kept)
        counts, noise = mean[:classes] * self.clients / BLOCK, deviation * self.clients / BLOCK
        if classes > 1 and not self._is_plausible([counts], noise):
            shares = replace(shares, noise=math.inf)  # so that none is seen
        arrays = {
            SHIFT: columns_seen.shift,
            SCALE: columns_seen.scale,
            SHARES: shares.usable(self.people.shares),
        }
        metrics = shares.metrics(people * present)
        if not shares.seen:
            return Estimated(values=None, metrics=metrics, arrays=arrays)
        start = start_at(arrays[SHARES], state.weights)
        change = (start - state.weights) / self.settings.server_rate  # with which it is multiplied
        return Estimated(values=change, metrics=metrics, arrays=arrays)

    def _intercept(self, mean: NDArray[np.float64], state: State) -> Estimated:
        """Return a step of the intercept."""
        unit = self.clients / self.people.number / NORM * INTERCEPT_CLIP
        rounds = rounds_of(self.settings, "intercept")
        step = intercept_step(
            mean[: state.weights.size] * unit,
            state.arrays.get(SHARES, self.people.shares),
            1 + rounds.index(state.round),
        )
        return Estimated(values=step)


def _columns(arrays: Arrays) -> ColumnMap:
    """Return the map of columns that the server keeps."""
    return ColumnMap.agreed(arrays[SHIFT], arrays[SCALE])


def _of_each(
    own: Parts, figures: Callable[..., list[Answer]], names: Sequence[str] | None = None
) -> list[Answer]:
    """Return the figures of each client, with its number, and of these names if any are given."""
    return [
        replace(answer, name=f"{answer.name}, client {client}")
        for client, told in own.items()
        for answer in figures(*told)
        if names is None or answer.name in names
    ]


def _noise_of_answers(
    settings: Settings, calibration: PerPersonRun, problem: Problem
) -> tuple[Caveat, ...]:
    """Return how far noise moves what people answer, and what it hides: public before the run."""
    asked_of, classes = People(settings, problem), problem.num_classes
    people, size = asked_of.number, asked_of.size(settings.layout(problem).size)
    reports = 1 if calibration.channel == "central" else settings.round_size

    def noise_at(round: int, norm: int) -> float:
        variance = calibration.noise_at(size, round).variance(np.zeros(1))[0]
        return math.sqrt(reports * float(variance)) / norm

    found = list[Caveat]()
    listed = settings.classes is not None or not problem.counted_in_private
    if SHARES_OF_CLASSES in settings.ask and not listed:
        found.append(kinds.CLASSES_FROM_ROWS(classes=classes))
    if settings.measure_share and classes > 1:
        noise = noise_at(1, BLOCK) / people
        found.append(kinds.CLASS_COUNT_NOISE(half_width=TWO_SIDED * noise, least=SEEN * noise))
    for rounds, question in asked_of.questions:
        half = TWO_SIDED * noise_at(rounds[0], question.norm)
        found.append(kinds.COUNT_NOISE(round=rounds[0], half_width=half, of=people))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class PerPersonRun(Calibration):
    """The least noise that keeps everything sent about a person in a run within the budget.

    If all people are in every one of T releases, each release gets mu/sqrt(T). A person at k sites
    is in k reports. Named reports count as k releases; in one sum, the change is k times that of a
    person at one site. The noise on samples of people comes from ``poisson_noise``, on a grid on
    which no vector is longer than 1.

    Attributes:
        settings: the preset's settings.
        participation: who answers in which round.
        channel: the kind of channel. In a sum each report needs only a share of the noise. With a
            server that clients trust, a report needs no noise, because the server draws it.

    Raises:
        ConfigError: delta is too small; people are sampled although one person may be in a sum
            several times, or although a budget is set; or the run has stages that do not go
            together with another setting.
    """

    uses_rounds: ClassVar[bool] = True
    settings: Settings
    participation: Participation
    channel: str

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.delta < LEAST_FOR_MU:
            raise ConfigError(f"delta = {settings.delta:g}: give at least {LEAST_FOR_MU:g}")
        stages_of(settings)  # refuses too few rounds, and shares that leave none for training
        for names, why in _apart():
            given = _given(settings, *names)
            if len(given) == len(names):
                raise ConfigError(f"{', '.join(given[:-1])} and {given[-1]}: {why}")

    @property
    def kind(self) -> type[Mechanism]:  # type: ignore[override]
        """The class of the clients' mechanisms."""
        return Integers if self.channel == "central" else IntegerGaussian

    @property
    def meaning(self) -> EpsilonMeaning:  # type: ignore[override]
        """What ``epsilon`` covers."""
        return EpsilonMeaning(
            "record" if self.settings.person_column is None else "person",
            "proven",
            _AGAINST[self.channel],
        )

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the mechanism that adds the noise, or a share of it, or none of it.

        Raises:
            ConfigError: no grid is fine enough for ``epsilon``; or a person may be at several
                sites, but the data do not name the person of each row.
        """
        if self.settings.persons_at_sites > 1 and problem.people is None:
            raise ConfigError(
                f"persons_at_sites = {self.settings.persons_at_sites}: nothing says which rows "
                "belong to one person; give person_column (of a table) or groups, or leave it out"
            )
        if self.channel == "central":
            return Integers("sums of people's gradients")
        people = People(self.settings, problem)
        size = people.size(self.settings.layout(problem).size)
        return self.noise(size, client, people.number)

    def noise(
        self, size: int, client: int = 0, people: int = 1, stage: Stage | None = None
    ) -> IntegerGaussian:
        """Return the noise for one release of a stage, with the widest modulus of all stages.

        Args:
            size: the number of coordinates in the sum.
            client: the client that adds the noise.
            people: the number of people, rounded down, whose vectors must fit into the modulus of
                a sum.
            stage: the stage; None for the first one.

        Raises:
            ConfigError: no grid is fine enough for ``epsilon``.
        """
        stages = stages_of(self.settings)
        every = [self._of_stage(size, client, people, each) for each in stages]
        found = every[0 if stage is None else stages.index(stage)]
        return replace(found, bits=max(each.bits for each in every))

    def noise_at(self, size: int, round: int) -> IntegerGaussian:
        """Return a trusted server's noise for a sum with ``size`` coordinates in a round."""
        return self.noise(size, stage=stage_at(stages_of(self.settings), round))

    def _of_stage(self, size: int, client: int, people: int, stage: Stage) -> IntegerGaussian:
        settings = self.settings
        rounds = min(most_rounds(self.participation, client, settings.rounds), len(stage.rounds))
        sites = settings.persons_at_sites
        alone = self.channel == "named"
        steps = max(1, rounds)
        shares = settings.fewest_in_sum - settings.untrusted_clients
        shares = shares if self.channel == "sum" else 1
        taken = rate_of(settings)
        room = max(_ROOM, 2 * settings.num_clients) if settings.ask else 1
        least = partial(
            integer_gaussian,
            size,
            shares=shares,
            vectors=room * sites * (people + _last_digit(people)),
            largest=largest_number(settings),
            reports=settings.round_size,
        )
        if taken < 1:
            # With sampling, neighbouring sums differ in whether they include one person.
            noise = poisson_noise(settings.epsilon, taken, steps, settings.delta)
            return replace(least(1 / noise, distance=NORM), distance=2 * NORM)
        mu = largest_mu(settings.epsilon, settings.delta) / math.sqrt(steps / stage.share)
        return least(mu / (math.sqrt(sites) if alone else sites), distance=2 * NORM)


def _apart() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield settings that are refused together, and why.

    A client that misses rounds may miss all rounds of a stage, so no stage's budget could be
    divided among fewer rounds. No count tells how often people answered, by which to divide a mean
    label.
    """
    uncharged = "a ledger cannot charge for sums over sampled people; set sample_rate = 1, or leave"
    for name in ("client_budget", "person_budget"):
        yield ("sample_rate", name), f"{uncharged} {name} out"
    unknown = "nothing tells at how many sites people answer, so a mean label cannot be measured"
    absent = "nobody's answer may be missing from a count; leave one of the two out"
    yield ("held_out_people", "sample_rate"), absent
    again = "somebody may be in several samples; set sample_rate = 1, or leave one of the two out"
    yield ("sample_rate", "persons_at_sites"), again
    names = "measure_share", "persons_at_sites", "label_range"
    yield names, f"{unknown}; set measure_share = 0"
    for name in _STARTS:
        yield (name, "initial"), "either sets the weights at the start; leave one of the two out"
    shares = (*_OF_TRAINING, "evaluation_share")
    of_some = ("held_out_people", "sample_rate", "clients_per_round", "participation")
    same = "a stage's rounds ask all people of all clients the same; leave one of the two out"
    for pair in (
        *product(("ask",), (*shares, "class_shares")),
        *product(_OF_TRAINING, ("class_weights",)),
        *product(("ask", *shares), of_some),
    ):
        yield pair, same
    memory = "stages start from each other's weights, without an optimiser's memory"
    for name in _OF_TRAINING:
        yield (name, "server_optimizer"), f"{memory}; set server_optimizer = none"


_AGAINST: dict[str, Adversary] = {
    "named": "server", "sum": "summing-server", "central": "downlink",
}  # fmt: skip


def sums_over_people(settings: Settings) -> Composition:
    """Return an algorithm whose clients send sums over their people."""
    channel = Channel.of(settings, settings.channel or "named")
    turns = participation_of(settings, default="balanced")
    calibration = PerPersonRun(settings=settings, participation=turns, channel=channel.kind)
    stages, few = stages_of(settings), settings.num_clients <= _MOST_CLIENTS
    several = len(stages) > 1 or bool(settings.ask)
    asks = bool(settings.ask or rounds_of(settings, "question"))
    needs: Needs = "sender" if asks and few and channel.kind == "named" else "sum"
    noise_at = calibration.noise_at if channel.kind == "central" else None
    starts = any(getattr(settings, name) is not None for name in _STARTS)

    def downlink(size: int, problem: Problem, round: int) -> Event:
        people = People(settings, problem)
        coordinates = people.size(size)
        return people.event(calibration.noise_at(coordinates, round), coordinates)

    notes = list[Caveat]()
    for stage in stages if several else ():
        first, last, share = stage.rounds[0], stage.rounds[-1], str(stage.share)
        notes.append(kinds.STAGE(sums=stage.kind, first=first, last=last, share=share))
    unused = dict.fromkeys(
        ("local_epochs", "batch_size"), "each person gives one gradient in a step"
    )
    return Composition(
        local=PersonSteps(settings=settings),
        bound=OfPeople(),
        calibration=calibration,
        shaped=partial(sums_of_people, calibration=calibration),
        channel=channel,
        estimate=MeanOfPeople(needs=needs, noise=noise_at, settings=settings),
        participation=turns,
        downlink=None if noise_at is None else downlink,
        unused=unused,
        averaged=0.5,
        notes=tuple(notes),
        notes_on=partial(_noise_of_answers, settings, calibration),
        stages=tuple(stage.rounds for stage in stages) if several else (),
        trained=rounds_of(settings, "train") if several else None,
        start=partial(start_at, shares_of(settings, len(settings.class_shares or [1])))
        if starts
        else None,
    )
