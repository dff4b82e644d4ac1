"""Parts that protect people: a site's sum of their clipped gradients, with the noise it needs.

    local_update  for each person one gradient, clipped, as integers; all added up (``SUMS``)
    encoder       the sum on a coarser grid, plus discrete Gaussian noise
    server_step   noisy sums -> mean gradient -> W minus ``learning_rate`` times it

What is protected is one person of a client, whoever the others are: neighbours replace a person, or
one row where nothing says which rows are one person's. A client as a whole is not protected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import (
    Event,
    InClear,
    PerPerson,
    PerRecord,
    SampledShare,
    SelfComposed,
)
from fedldp.accounting.guarantees import LEAST_FOR_MU, Adversary
from fedldp.accounting.numerics.subsampled import poisson_noise
from fedldp.algorithms.bounds import Bound, Send
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.channel import Central, Channel, Named, Sum
from fedldp.algorithms.composition import (
    Algorithm,
    Composition,
    EstimateBy,
    FirstArrays,
    Local,
    WeightedMean,
)
from fedldp.algorithms.participation import Participation, most_rounds, participation_of
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import Estimated, Needs
from fedldp.algorithms.settings import Count, Offer, PrivacyTarget
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import LEFT_OUT
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.mechanisms.integer_gaussian import (
    IntegerGaussian,
    Integers,
    coarser,
    integer_gaussian,
)
from fedldp.mechanisms.none import Plain
from fedldp.models import layers_of
from fedldp.protocol.roles import Draw, LocalUpdate, State
from fedldp.protocol.updates import whole
from fedldp.protocol.wire import Broadcast, Incoming
from fedldp.training.person_gradients import (
    CLASS_WEIGHTS,
    LARGEST_CLIP,
    MOST_PEOPLE,
    NORM,
    SMALLEST_CLIP,
    SUMS,
    DenseGradients,
    ModelGradients,
    NoisySteps,
    PersonGradients,
    Summed,
    dense_layers,
)

if TYPE_CHECKING:
    import torch

PersonClip = Annotated[float, Field(ge=SMALLEST_CLIP, le=LARGEST_CLIP, allow_inf_nan=False)]


STEPS = Offer(
    "steps_per_round",
    Annotated[Count, LEFT_OUT],
    "noisy steps that a site takes by itself before it sends its weights, with channel = named; "
    "each is a release, and the noise is for all of them",
    1,
)


SAMPLED = Offer(
    "sample_rate",
    Annotated[float, Field(ge=1e-6, le=1), LEFT_OUT],
    "probability with which a step takes a person, each on its own and in secret; below 1 in a "
    "simulation only",
    1.0,
)


SCORED = Offer(
    "held_out_people",
    Annotated[float, Field(ge=0, le=0.5), LEFT_OUT],
    "share of people that are held out at their sites, drawn once: each votes in every round "
    "whether the model is right, in the same noisy sum, so that a run can be watched without a "
    "test set",
    0.0,
)

COUNTED = Offer(
    "class_count_rounds",
    Annotated[Annotated[int, Field(ge=0)], LEFT_OUT],
    "first rounds in which each person is counted by the class of its rows, in place of a "
    "gradient, at the price of a round: class weights follow from the noisy counts, the rarest "
    "class has 1",
    0,
)

LEAST_SHARE = 0.01
"""A noisy share of a class is taken to be that at least, so that no weight is below it either."""

_COUNTS = "class_counts"

_FEW_CLASSES = 10
"""Of so many, shares are among a round's figures."""

SCORE = "held-out accuracy"
"""What the server calls the noisy share of votes in favour."""


@dataclass(frozen=True, kw_only=True)
class PersonSteps(Local):
    """One gradient for each person in a step, clipped and summed.

    Attributes:
        settings: of the preset.
        calibration: sizes the noise of a site's own steps, where it takes several in a round.
    """

    weighs_classes: ClassVar[bool] = True
    trains_part: ClassVar[bool] = True

    settings: Settings
    calibration: PerPersonRun

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update; it computes on the processor, whatever ``device``."""
        settings, problem = self.settings, algorithm.problem
        summed = self.summed(algorithm)
        taken = rate_of(settings)
        if settings.steps_per_round == 1:
            return PersonGradients(
                summed=summed,
                held_out=settings.held_out_people,
                sampled=taken,
                count_rounds=settings.class_count_rounds,
                num_classes=problem.num_classes,
            )
        return NoisySteps(
            summed=summed,
            noise=self.calibration.noise(algorithm.layout.size),
            rate=settings.learning_rate * per_step(settings, problem),
            steps=settings.steps_per_round,
            sampled=taken,
        )

    def check(self, algorithm: Algorithm) -> None:
        """Refuse counts of more classes than a sum has coordinates; see ``Local.check``."""
        classes, size = algorithm.problem.num_classes, algorithm.layout.size
        if self.settings.class_count_rounds and classes > size:
            raise ConfigError(
                f"class_count_rounds = {self.settings.class_count_rounds}: {classes} classes do "
                f"not fit a sum of {size} weights; leave it out"
            )

    def summed(self, algorithm: Algorithm) -> Summed:
        """Return what sums the vectors of people: in closed form where the model allows it."""
        config, layout = algorithm.config, algorithm.layout
        # A common factor of the classes acts on the clip alone.
        most = max(self.settings.class_weights or [1.0])
        weights = tuple(each / most for each in self.settings.class_weights or ())
        clip = self.settings.clip / most
        layers = layers_of(config.model, algorithm.input_shape, algorithm.problem.num_classes)
        whole = config.trainable == "all"
        dense = dense_layers(layers) if whole and layers is not None else None
        if dense is not None:
            return DenseGradients(layers=dense, layout=layout, clip=clip, class_weights=weights)
        model = algorithm.untrained()
        return ModelGradients(model=model, layout=layout, clip=clip, class_weights=weights)

    def event(self, algorithm: Algorithm, size: int) -> Event | None:
        """Return what several steps release of one person, or one row; see ``Local.event``."""
        if self.settings.steps_per_round == 1:
            return None  # the encoder's own
        noise, taken = self.calibration.noise(size), rate_of(self.settings)
        steps: Event = SelfComposed(each=noise.event(size), count=self.settings.steps_per_round)
        if taken < 1:
            steps = of_samples(noise, size, taken, self.settings.steps_per_round)
        return of_people(steps, algorithm.problem.people is None)


def rate_of(settings: Settings) -> float:
    """Return the probability with which a random float is below ``sample_rate``, rounded up."""
    rate: float = settings.sample_rate
    return math.ceil(rate * _RESOLUTION) / _RESOLUTION


_RESOLUTION = 1 << 53
"""Numpy's random floats are multiples of 1/this."""


def of_samples(noise: IntegerGaussian, size: int, rate: float, steps: int = 1) -> SampledShare:
    """Return what noisy sums over samples of people release of one of them.

    Args:
        noise: on each sum.
        size: coordinates of the sum.
        rate: the probability with which a step takes a person.
        steps: sums.
    """
    return SampledShare(
        squared_distance=coarser(NORM, noise.step, size) ** 2,
        variance=noise.event(size).variance,
        sampling_rate=rate,
        steps=steps,
    )


def per_step(settings: Settings, problem: Problem) -> float:
    """Return what a client's sum, in grid steps, is multiplied by for its mean gradient."""
    trained = people_of(settings, problem) * (1 - settings.held_out_people) * settings.sample_rate
    found: float = settings.clip / NORM * settings.num_clients / trained
    return found


@dataclass(frozen=True, kw_only=True)
class OfPeople(Bound):
    """Sums of people's gradients in grid steps: how long each is, their local update sees to.

    Attributes:
        rate: what the mean of clients' sums is multiplied by.
        votes: whether a last coordinate has votes of people who are held out.
    """

    send: Send = "update"
    rate: float
    votes: bool = False

    def size(self, size: int) -> int:
        """Return the coordinates of a sum, of a model of ``size`` weights."""
        return size + self.votes

    def apply(self, rows: NDArray[np.floating], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return sums as they are; see ``Bound.apply``."""
        return rows

    def restore(
        self, mean: NDArray[np.float64], state: State, factor: float = 1.0
    ) -> NDArray[np.floating]:
        """Return the step against the mean gradient; see ``Bound.restore``."""
        return (-factor * self.rate) * mean[: state.weights.size]

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return infinity: of one person it is ``NORM``, whatever the sum is."""
        return math.inf


@dataclass(frozen=True, kw_only=True)
class PersonRelease(Release):
    """A noisy sum over people, that is stated of one of them.

    Attributes:
        of_rows: whether nothing says which rows are one person's, so that one row is protected.
        people: of all clients; public.
        sampled: the probability with which a step takes one of them.
    """

    bound: OfPeople
    of_rows: bool
    people: int
    sampled: float

    def event(self) -> Event:
        """Return what the report releases: of one person, or one row; and that a client's is not.

        The mechanism states the first, for sums that one person moves by 2 ``NORM`` at most.
        """
        of_one = super().event()
        if isinstance(of_one, InClear):  # the server adds the noise
            return of_one
        if self.sampled < 1:
            assert isinstance(self.mechanism, IntegerGaussian)
            of_one = of_samples(self.mechanism, self.coordinates, self.sampled)
        return of_people(of_one, self.of_rows)


def of_people(of_one: Event, of_rows: bool) -> Event:
    """Return what costs one person, or one row, ``of_one``, and hides no client."""
    client = InClear(
        what=f"sums whose noise hides single {'rows' if of_rows else 'people'} only, otherwise"
    )
    if of_rows:
        return PerRecord(record=of_one, client=client)
    return PerPerson(person=of_one, client=client)


def sums_of_people(release: Release, settings: Settings, problem: Problem) -> PersonRelease:
    """Return a release of sums in place of weights, for the public number of people."""
    return PersonRelease(
        bound=OfPeople(
            rate=settings.learning_rate * per_step(settings, problem),
            votes=settings.held_out_people > 0,
        ),
        mechanism=release.mechanism,
        size=release.size,
        sends=SUMS,
        of_rows=problem.people is None,
        people=people_of(settings, problem),
        sampled=rate_of(settings),
    )


def people_of(settings: Settings, problem: Problem) -> int:
    """Return the public number of people of all clients, by which sums are divided.

    In an agreement it is stated. Of data of the user's own a simulation takes as many as there are,
    rounded down to two digits, and to tens at least.

    Raises:
        ConfigError: they are too many for exact sums.
    """
    found = problem.num_examples if problem.people is None else problem.people
    if problem.counted_in_private:
        digits = 10 ** max(1, len(str(found)) - 2)
        found = found // digits * digits
    if found > MOST_PEOPLE * settings.num_clients:
        raise ConfigError(
            f"num_clients = {settings.num_clients}: sums are exact for up to {MOST_PEOPLE:,} "
            f"people of a client, and there are {found:,}; divide them among more clients"
        )
    return max(1, found)


@dataclass(frozen=True, kw_only=True)
class MeanOfPeople:
    """The mean of people's gradients, from exact sums, and their votes where some are held out.

    Attributes:
        mechanism: of the reports.
        bound: of the sums.
        clients: of a round, as agreed. A trusted server divides by it, where the number of those
            who really answered would show.
        voters: people of a client who are expected to vote; public.
        count_rounds: in how many rounds, from the first, sums are counts of classes.
        noise: gives what draws a trusted server's noise, for a sum of so many coordinates.
    """

    needs: ClassVar[Needs] = "sum"
    gives: ClassVar[Send] = "update"

    mechanism: IntegerGaussian | Integers
    bound: OfPeople
    clients: int
    voters: float
    count_rounds: int
    noise: Callable[[int], IntegerGaussian] | None

    def __call__(
        self, state: State, reports: Incoming, draw: Draw, factor: float = 1.0
    ) -> Estimated:
        """Return the estimate, and the noisy share of votes in favour; see ``Estimate``."""
        size = self.bound.size(state.weights.size)
        total = self.mechanism.aggregate(size)
        for report in whole(reports):
            total.add(report.payload, 1 if report.weight is None else int(report.weight))
        mean = total.mean()
        if self.noise is not None:
            noise = self.noise(size)
            steps = noise.noisy(total.total(), draw("mechanism"))
            mean = steps.astype(np.float64) * (noise.step / self.clients)
        if state.round <= self.count_rounds:
            counts = state.arrays[_COUNTS]
            counts = counts + mean[: counts.size] / NORM
            shares = {}
            if state.round == self.count_rounds and counts.size <= _FEW_CLASSES:
                shares = {
                    f"noisy share of class {label}": float(share)
                    for label, share in enumerate(class_shares(counts))
                }
            return Estimated(values=None, metrics=shares, arrays={_COUNTS: counts})
        votes = {}
        if self.bound.votes:
            votes[SCORE] = 0.5 + 0.5 * float(mean[-1]) / NORM / self.voters
        return Estimated(values=self.bound.restore(mean, state, factor), metrics=votes)


def class_shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares of classes by noisy counts, ``LEAST_SHARE`` at least, shape (classes,).

    They are alike where no count is above 0, and so tells nothing.
    """
    positive = np.maximum(counts, 0)
    if not positive.any():
        return np.full(counts.size, 1 / counts.size)
    found: NDArray[np.float64] = np.maximum(positive / positive.sum(), LEAST_SHARE)
    return found


def _no_counts(release: Release, problem: Problem) -> FirstArrays:
    """Return that no class is counted before the first round."""
    return lambda draw: {_COUNTS: np.zeros(problem.num_classes)}


def _tell_weights(count_rounds: int, state: State) -> Broadcast:
    """Return a round's broadcast: with the classes' weights, once they were counted."""
    told: dict[str, NDArray[Any]] = {}
    if state.round > count_rounds:
        shares = class_shares(state.arrays[_COUNTS])
        told[CLASS_WEIGHTS] = (shares.min() / shares).astype(np.float32)
    return Broadcast(round=state.round, weights=state.weights, public=told)


@dataclass(frozen=True, kw_only=True)
class PerPersonRun(Calibration):
    """The least noise with which all that is sent in a run costs a person its budget.

    With all people in every one of T releases, each gets mu/sqrt(T). A person at k sites is in k
    reports: named ones are k releases; in one sum the change is k times as large. Noise on samples
    of people is that of ``poisson_noise``, on a grid on which one vector is no longer than 1.

    Attributes:
        settings: of the preset.
        participation: who answers when.
        channel: its kind. Of a sum each report needs a share of the noise only, and for a server
            that clients trust none: it draws the noise itself.

    Raises:
        ConfigError: delta is too small, a site takes several steps whose sums others are to hide,
            or samples people of whom one may be several times in a sum, or under a budget.
    """

    uses_rounds: ClassVar[bool] = True
    settings: Settings
    participation: Participation
    channel: str

    def __post_init__(self) -> None:
        if self.settings.delta < LEAST_FOR_MU:
            raise ConfigError(f"delta = {self.settings.delta:g}: give at least {LEAST_FOR_MU:g}")
        steps = self.settings.steps_per_round
        if steps > 1 and self.channel != "named":
            raise ConfigError(
                f"steps_per_round = {steps} and channel = {self.channel}: a site has all the noise "
                "of a step of its own with channel = named only; set channel = named, or "
                "steps_per_round = 1"
            )
        if steps > 1 and self.settings.held_out_people:
            raise ConfigError(
                f"steps_per_round = {steps} and held_out_people = "
                f"{self.settings.held_out_people:g}: weights have no place for votes; set "
                "steps_per_round = 1, or held_out_people = 0"
            )
        sites, rate = self.settings.persons_at_sites, self.settings.sample_rate
        for name in ("client_budget", "person_budget"):
            if rate < 1 and getattr(self.settings, name) is not None:
                raise ConfigError(
                    f"sample_rate = {rate:g} and {name}: no budget has a price for sums of "
                    f"samples; set sample_rate = 1, or leave {name} out"
                )
        if rate < 1 and sites > 1 and self.channel != "named":
            raise ConfigError(
                f"sample_rate = {rate:g}, persons_at_sites = {sites} and channel = {self.channel}: "
                "a person may be sampled at several sites for one sum, and nothing is proven that "
                "sampling would gain; set sample_rate = 1, or channel = named"
            )
        counted = self.settings.class_count_rounds
        if counted and steps > 1:
            raise ConfigError(
                f"class_count_rounds = {counted} and steps_per_round = {steps}: a site that steps "
                "by itself sends no counts; set steps_per_round = 1, or class_count_rounds = 0"
            )
        if counted and self.settings.class_weights is not None:
            raise ConfigError(
                f"class_count_rounds = {counted} and class_weights: weights are given, or follow "
                "from counts; leave one of them out"
            )
        if counted and counted >= self.settings.rounds:
            raise ConfigError(
                f"class_count_rounds = {counted}: of rounds = {self.settings.rounds} none is left "
                f"to train in; give at most {self.settings.rounds - 1}"
            )

    @property
    def kind(self) -> type[Mechanism]:  # type: ignore[override]
        """The class of the clients' mechanisms."""
        if self.channel == "central":
            return Integers
        return IntegerGaussian if self.settings.steps_per_round == 1 else Plain

    @property
    def meaning(self) -> EpsilonMeaning:  # type: ignore[override]
        """What ``epsilon`` is about."""
        return EpsilonMeaning(
            "record" if self.settings.person_column is None else "person",
            "proven",
            _AGAINST[self.channel],
        )

    def budget_for(self, target: PrivacyTarget) -> float | None:
        """Return the target's epsilon for samples, whose noise takes a search by itself."""
        settings = self.settings
        of_one = target.unit in ("record", "person")
        same = (target.adversary, target.delta) == (_AGAINST[self.channel], settings.delta)
        return target.epsilon if settings.sample_rate < 1 and of_one and same else None

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return what adds the noise, or a share of it, or nothing.

        Raises:
            ConfigError: no grid is fine enough for ``epsilon``; or persons may be at several
                sites, and the data do not say whose rows are.
        """
        if self.settings.persons_at_sites > 1 and problem.people is None:
            raise ConfigError(
                f"persons_at_sites = {self.settings.persons_at_sites}: nothing says which rows are "
                "one person's; give person_column (of a table) or groups, or leave it out"
            )
        if self.channel == "central":
            return Integers("sums of people's gradients")
        if self.settings.steps_per_round > 1:  # the steps have had theirs
            return Plain()
        size = self.settings.layout(problem).size + (self.settings.held_out_people > 0)
        return self.noise(size, client, people_of(self.settings, problem))

    def noise(self, size: int, client: int = 0, people: int = 1) -> IntegerGaussian:
        """Return the noise of one release.

        Args:
            size: coordinates of the sum.
            client: whose it is.
            people: whose vectors the modulus of a sum is to hold.

        Raises:
            ConfigError: no grid is fine enough for ``epsilon``.
        """
        settings = self.settings
        rounds = most_rounds(self.participation, client, settings.rounds)
        sites = settings.persons_at_sites
        alone = self.channel == "named"
        steps = max(1, rounds) * settings.steps_per_round
        shares = settings.fewest_in_sum - settings.untrusted_clients
        shares = shares if self.channel == "sum" else 1
        taken = rate_of(settings)
        if taken < 1:
            # The distance is now of a sum with a person from that without it.
            noise = poisson_noise(settings.epsilon, taken, steps * sites, settings.delta)
            found = integer_gaussian(
                size, 1 / noise, distance=NORM, shares=shares, vectors=2 * people
            )
            return replace(found, distance=2 * NORM)
        return integer_gaussian(
            size,
            largest_mu(settings.epsilon, settings.delta)
            / math.sqrt(steps)
            / (math.sqrt(sites) if alone else sites),
            distance=2 * NORM,
            shares=shares,
            vectors=people,
        )


_AGAINST: dict[str, Adversary] = {
    "named": "server", "sum": "summing-server", "central": "downlink",
}  # fmt: skip


def sums_over_people(settings: Settings, unused: Mapping[str, str] | None = None) -> Composition:
    """Return an algorithm whose clients send sums over their people.

    Args:
        settings: of the preset.
        unused: those that change nothing in it, and why, beside those of local SGD.
    """
    channel: Channel = {"sum": Sum(), "central": Central()}.get(settings.channel, Named())
    turns = participation_of(settings, default="balanced")
    calibration = PerPersonRun(settings=settings, participation=turns, channel=channel.kind)
    of_sgd = dict.fromkeys(
        ("local_epochs", "batch_size"), "each person gives one gradient in a step"
    )
    return Composition(
        local=PersonSteps(settings=settings, calibration=calibration),
        calibration=calibration,
        participation=turns,
        channel=channel,
        averaged=0.5,
        unused={**of_sgd, **(unused or {})},
        uses=frozenset({"untrusted_clients"} if channel.kind == "sum" else ()),
        **parts_of_people(settings, calibration),
    )


def parts_of_people(settings: Settings, calibration: PerPersonRun) -> dict[str, Any]:
    """Return what leaves a client and what the server takes of it, as parts of a composition."""
    if settings.steps_per_round > 1:
        return {"estimate": WeightedMean()}

    def estimate(release: Release) -> MeanOfPeople:
        assert isinstance(release.mechanism, IntegerGaussian | Integers)
        assert isinstance(release, PersonRelease)
        return MeanOfPeople(
            mechanism=release.mechanism,
            bound=release.bound,
            clients=settings.round_size,
            voters=release.people
            * (settings.held_out_people * settings.sample_rate / settings.num_clients),
            count_rounds=settings.class_count_rounds,
            noise=calibration.noise if calibration.channel == "central" else None,
        )

    def downlink(size: int, problem: Problem) -> Event:
        whole_size, taken = size + (settings.held_out_people > 0), rate_of(settings)
        noise = calibration.noise(whole_size)
        of_one: Event = noise.event(whole_size)
        if taken < 1:
            of_one = of_samples(noise, whole_size, taken)
        return of_people(of_one, problem.people is None)

    counted = settings.class_count_rounds
    counting: dict[str, Any] = {}
    if counted:
        cost = "each is charged, to those who take part in it, as any other round"
        if settings.round_size == settings.num_clients:  # and so everybody in all of them
            share = f"{100 * counted / settings.rounds:.2g} %"
            cost = f"that is {share} of a person's budget, for all rounds cost the same"
        counting = {
            "arrays": _no_counts,
            "publish": partial(_tell_weights, counted),
            "notes": (
                f"class_count_rounds = {counted}: in the first {counted} of {settings.rounds} "
                f"rounds people's classes are counted in place of gradients; {cost}; the "
                "lines cover it",
            ),
        }
    return {
        **counting,
        "bound": OfPeople(rate=settings.learning_rate),
        "shaped": lambda release, problem: sums_of_people(release, settings, problem),
        "estimate": EstimateBy(make=estimate, needs="sum", setting="the sum over people"),
        "downlink": downlink if calibration.channel == "central" else None,
    }
