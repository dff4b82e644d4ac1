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
from fedldp.algorithms.server_update import Estimated, Needs, stream_of_noise
from fedldp.algorithms.settings import Count, Offer, PrivacyTarget
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import CLASS_COUNT_ROUNDS, PRIVATE_SUMS
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
    Count,
    "with channel = named, number of noisy steps that a site takes by itself before it sends its "
    "weights; each step is a release, and epsilon covers all steps",
    1,
)


SAMPLED = Offer(
    "sample_rate",
    Annotated[float, Field(ge=1e-6, le=1)],
    "probability that each person takes part in a step, drawn independently and in secret; below "
    "1 only in simulations",
    1.0,
)


SCORED = Offer(
    "held_out_people",
    Annotated[float, Field(ge=0, le=0.5)],
    "share of people who are held out at their sites, drawn once: in every round, each held-out "
    "person votes, in the same noisy sum, on whether the model is right, so that a run can be "
    "monitored without a test set",
    0.0,
)

COUNTED = Offer(
    "class_count_rounds",
    Annotated[int, Field(ge=0)],
    "number of rounds, at the start, in which people are counted by the class of their rows "
    "instead of giving gradients; each such round costs as much as any other; class weights "
    "follow from the noisy counts, and the rarest class has weight 1",
    0,
)

LEAST_SHARE = 0.01
"""The lower limit of a class's noisy share, which also bounds the weight of the class."""

_COUNTS = "class_counts"

_FEW_CLASSES = 10
"""With at most this many classes, a round's metrics include the classes' shares."""

SCORE = "held-out accuracy"
"""The name of the server's metric for the noisy share of votes that the model is right."""


@dataclass(frozen=True, kw_only=True)
class PersonSteps(Local):
    """One clipped gradient for each person in a step, summed over people.

    Attributes:
        settings: the preset's settings.
        calibration: gives the noise for a site's own steps, if the site takes several steps in a
            round.
    """

    weighs_classes: ClassVar[bool] = True
    trains_part: ClassVar[bool] = True
    alone: ClassVar[Literal["person"]] = "person"

    settings: Settings
    calibration: PerPersonRun

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
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
        """Refuse to count more classes than a sum has coordinates; see ``Local.check``."""
        classes, size = algorithm.problem.num_classes, algorithm.layout.size
        if self.settings.class_count_rounds and classes > size:
            raise ConfigError(
                f"class_count_rounds = {self.settings.class_count_rounds}: {classes} classes do "
                f"not fit into a sum of {size} weights; leave it out"
            )

    def summed(self, algorithm: Algorithm) -> Summed:
        """Return the sum of people's vectors, in closed form if the model allows it."""
        config, layout = algorithm.config, algorithm.layout
        # A factor that all classes share affects only the clip.
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
        """Return what several steps release about one person, or one row; see ``Local.event``."""
        if self.settings.steps_per_round == 1:
            return None  # the encoder states the event instead
        noise, taken = self.calibration.noise(size), rate_of(self.settings)
        steps: Event = SelfComposed(each=noise.event(size), count=self.settings.steps_per_round)
        if taken < 1:
            steps = of_samples(noise, size, taken, self.settings.steps_per_round)
        return of_people(steps, algorithm.problem.people is None)


def rate_of(settings: Settings) -> float:
    """Return the probability that a random float is below ``sample_rate``, rounded up."""
    rate: float = settings.sample_rate
    return math.ceil(rate * _RESOLUTION) / _RESOLUTION


_RESOLUTION = 1 << 53
"""Numpy's random floats are multiples of the inverse of this number."""


def of_samples(noise: IntegerGaussian, size: int, rate: float, steps: int = 1) -> SampledShare:
    """Return what noisy sums over samples of people release about one person.

    Args:
        noise: the noise on each sum.
        size: the number of coordinates in the sum.
        rate: the probability that a step samples a given person.
        steps: the number of sums.
    """
    return SampledShare(
        squared_distance=coarser(NORM, noise.step, size) ** 2,
        variance=noise.event(size).variance,
        sampling_rate=rate,
        steps=steps,
    )


def per_step(settings: Settings, problem: Problem) -> float:
    """Return the factor that turns a client's sum, in grid steps, into its mean gradient."""
    trained = people_of(settings, problem) * (1 - settings.held_out_people) * settings.sample_rate
    found: float = settings.clip / NORM * settings.num_clients / trained
    return found


@dataclass(frozen=True, kw_only=True)
class OfPeople(Bound):
    """Sums of people's gradients in grid steps; the local update bounds each gradient.

    Attributes:
        rate: the factor that multiplies the mean of clients' sums.
        votes: whether the last coordinate holds the votes of held-out people.
    """

    send: Send = "update"
    rate: float
    votes: bool = False

    def size(self, size: int) -> int:
        """Return the number of coordinates in a sum for a model of ``size`` weights."""
        return size + self.votes

    def apply(self, rows: NDArray[np.floating], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return sums unchanged; see ``Bound.apply``."""
        return rows

    def restore(
        self, mean: NDArray[np.float64], state: State, factor: float = 1.0
    ) -> NDArray[np.floating]:
        """Return the step against the mean gradient; see ``Bound.restore``."""
        return (-factor * self.rate) * mean[: state.weights.size]

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return infinity: ``NORM`` bounds one person's part, and nothing bounds the sum."""
        return math.inf


@dataclass(frozen=True, kw_only=True)
class PersonRelease(Release):
    """A noisy sum over people, whose event is stated for one person.

    Attributes:
        of_rows: whether single rows are protected, because the data do not say which rows belong to
            the same person.
        people: the total number of people across all clients; public.
        sampled: the probability that a step samples a given person.
    """

    bound: OfPeople
    of_rows: bool
    people: int
    sampled: float

    def event(self) -> Event:
        """Return what the report releases about one person or row; a whole client is not hidden.

        The mechanism states this for sums that one person changes by at most 2 ``NORM``.
        """
        of_one = super().event()
        if isinstance(of_one, InClear):  # the server adds the noise
            return of_one
        if self.sampled < 1:
            assert isinstance(self.mechanism, IntegerGaussian)
            of_one = of_samples(self.mechanism, self.coordinates, self.sampled)
        return of_people(of_one, self.of_rows)


def of_people(of_one: Event, of_rows: bool) -> Event:
    """Return an event that is ``of_one`` for one person, or one row, and hides no whole client."""
    client = InClear(what=(PRIVATE_SUMS(of="rows" if of_rows else "people"),))
    if of_rows:
        return PerRecord(record=of_one, client=client)
    return PerPerson(person=of_one, client=client)


def sums_of_people(release: Release, settings: Settings, problem: Problem) -> PersonRelease:
    """Return a release of sums over the public number of people, instead of weights."""
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
    """Return the public number of people across all clients, by which sums are divided.

    In an agreement the number is stated. A simulation of the user's own data counts the people and
    rounds the number down to two significant digits, or to tens if it is below 100.

    Raises:
        ConfigError: there are too many people for exact sums.
    """
    found = problem.num_examples if problem.people is None else problem.people
    if problem.counted_in_private:
        digits = 10 ** max(1, len(str(found)) - 2)
        found = found // digits * digits
    if found > MOST_PEOPLE * settings.num_clients:
        raise ConfigError(
            f"num_clients = {settings.num_clients}: sums are exact for at most {MOST_PEOPLE:,} "
            f"people per client, but there are {found:,}; divide the people among more clients"
        )
    return max(1, found)


@dataclass(frozen=True, kw_only=True)
class MeanOfPeople:
    """The mean of people's gradients, from exact sums, and the votes of held-out people.

    Attributes:
        mechanism: the mechanism for the reports.
        bound: the bound on the sums.
        clients: the agreed number of clients in a round. A trusted server divides by this number
            wherever dividing by the number of clients that answered would reveal the latter.
        voters: the expected number of voters at a client; public.
        count_rounds: the number of rounds, at the beginning of the run, whose sums are counts of
            classes.
        noise: returns a trusted server's noise for a sum with a given number of coordinates.
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
        """Return the estimate, and the noisy share of votes for the model; see ``Estimate``."""
        size = self.bound.size(state.weights.size)
        total = self.mechanism.aggregate(size)
        for report in whole(reports):
            total.add(report.payload, 1 if report.weight is None else int(report.weight))
        mean = total.mean()
        if self.noise is not None:
            noise = self.noise(size)
            summed = total.total()
            steps = noise.noisy(summed, stream_of_noise(summed, draw))
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
    """Return the classes' shares, shape (classes,), from noisy counts.

    Each share is at least ``LEAST_SHARE``. The shares are equal if no count is above 0, because
    such counts give no information.
    """
    positive = np.maximum(counts, 0)
    if not positive.any():
        return np.full(counts.size, 1 / counts.size)
    found: NDArray[np.float64] = np.maximum(positive / positive.sum(), LEAST_SHARE)
    return found


def _no_counts(release: Release, problem: Problem) -> FirstArrays:
    """Return the arrays before the first round, when no class has been counted yet."""
    return lambda draw: {_COUNTS: np.zeros(problem.num_classes)}


def _tell_weights(count_rounds: int, state: State) -> Broadcast:
    """Return a round's broadcast, with the class weights once the classes have been counted."""
    told: dict[str, NDArray[Any]] = {}
    if state.round > count_rounds:
        shares = class_shares(state.arrays[_COUNTS])
        told[CLASS_WEIGHTS] = (shares.min() / shares).astype(np.float32)
    return Broadcast(round=state.round, weights=state.weights, public=told)


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
        ConfigError: delta is too small; a site takes several steps in a round, although other
            sites' reports should hide its sums; or people are sampled although one person may be in
            a sum several times, or although a budget is set.
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
                f"steps_per_round = {steps} and channel = {self.channel}: a site adds all of a "
                "step's noise itself only with channel = named; set channel = named, or "
                "steps_per_round = 1"
            )
        if steps > 1 and self.settings.held_out_people:
            raise ConfigError(
                f"steps_per_round = {steps} and held_out_people = "
                f"{self.settings.held_out_people:g}: a site then sends weights, which cannot "
                "carry votes; set steps_per_round = 1, or held_out_people = 0"
            )
        sites, rate = self.settings.persons_at_sites, self.settings.sample_rate
        for name in ("client_budget", "person_budget"):
            if rate < 1 and getattr(self.settings, name) is not None:
                raise ConfigError(
                    f"sample_rate = {rate:g} and {name}: a ledger cannot charge for sums over "
                    f"sampled people; set sample_rate = 1, or leave {name} out"
                )
        if rate < 1 and sites > 1 and self.channel != "named":
            raise ConfigError(
                f"sample_rate = {rate:g}, persons_at_sites = {sites} and channel = {self.channel}: "
                "a person may be sampled at several sites for one sum, and no gain from sampling "
                "is proven for that; set sample_rate = 1, or channel = named"
            )
        counted = self.settings.class_count_rounds
        if counted and steps > 1:
            raise ConfigError(
                f"class_count_rounds = {counted} and steps_per_round = {steps}: a site that takes "
                "several steps by itself sends no counts; set steps_per_round = 1, or "
                "class_count_rounds = 0"
            )
        if counted and self.settings.class_weights is not None:
            raise ConfigError(
                f"class_count_rounds = {counted} and class_weights: class weights are either given "
                "or follow from counts; leave one of the two out"
            )
        if counted and counted >= self.settings.rounds:
            raise ConfigError(
                f"class_count_rounds = {counted}: none of rounds = {self.settings.rounds} would "
                f"be left for training; give at most {self.settings.rounds - 1}"
            )

    @property
    def kind(self) -> type[Mechanism]:  # type: ignore[override]
        """The class of the clients' mechanisms."""
        if self.channel == "central":
            return Integers
        return IntegerGaussian if self.settings.steps_per_round == 1 else Plain

    @property
    def meaning(self) -> EpsilonMeaning:  # type: ignore[override]
        """What ``epsilon`` covers."""
        return EpsilonMeaning(
            "record" if self.settings.person_column is None else "person",
            "proven",
            _AGAINST[self.channel],
        )

    def budget_for(self, target: PrivacyTarget) -> float | None:
        """Return the target's epsilon for samples, whose noise needs a separate search."""
        settings = self.settings
        of_one = target.unit in ("record", "person")
        same = (target.adversary, target.delta) == (_AGAINST[self.channel], settings.delta)
        return target.epsilon if settings.sample_rate < 1 and of_one and same else None

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the mechanism that adds the noise, or a share of it, or nothing.

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
        if self.settings.steps_per_round > 1:  # the steps have already added their noise
            return Plain()
        size = self.settings.layout(problem).size + (self.settings.held_out_people > 0)
        return self.noise(size, client, people_of(self.settings, problem))

    def noise(self, size: int, client: int = 0, people: int = 1) -> IntegerGaussian:
        """Return the noise for one release.

        Args:
            size: the number of coordinates in the sum.
            client: the client that adds the noise.
            people: the number of people whose vectors must fit into the modulus of a sum.

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
            # With sampling, neighbouring sums differ in whether they include one person.
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
        settings: the preset's settings.
        unused: settings that have no effect, with reasons, in addition to those of local SGD.
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
    """Return the parts that decide what clients send and what the server computes from it."""
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
        everybody = settings.round_size == settings.num_clients
        counting = {
            "arrays": _no_counts,
            "publish": partial(_tell_weights, counted),
            "notes": (
                CLASS_COUNT_ROUNDS(counted=counted, of=settings.rounds, everybody=everybody),
            ),
        }
    return {
        **counting,
        "bound": OfPeople(rate=settings.learning_rate),
        "shaped": lambda release, problem: sums_of_people(release, settings, problem),
        "estimate": EstimateBy(make=estimate, needs="sum", setting="the sum over people"),
        "downlink": downlink if calibration.channel == "central" else None,
    }
