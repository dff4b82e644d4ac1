"""What one client releases in one report, as data that accountants interpret.

An event says what a mechanism did, never how private the result is; for the latter, see the table
in ``accountants``. An event that is missing from the table is an error, never a free release.
Neighbours differ in one client's whole input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar, cast

from fedldp.accounting.numerics.blanket import Subset
from fedldp.accounting.numerics.gaussian import SMALLEST_SHARE
from fedldp.core import numbers
from fedldp.core.errors import ConfigError
from fedldp.core.facts import KINDS, Fact, Unprotected
from fedldp.core.kinds import OTHER_SENT

Share = int
"""A field of this type is the variance of a client's share of noise, in squared steps."""

Weight = int
"""A field of this type may be as large as 2^64; a field of type int only as large as 2^53."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events.

    Attributes:
        wire: the name under which ledgers and run folders store the event: the class's name, unless
            the class says otherwise. The name never changes, even if the class is renamed.
        level: 0 for a plain release. An event may only hold events of lower levels.

    Raises:
        ConfigError: a field is not exactly of its declared type, or out of range; or it holds an
            event that cannot be nested in this one. A number may be a plain int or float, but not a
            string, a bool or a numpy scalar.
    """

    wire: ClassVar[str] = "Event"
    level: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        if "wire" not in vars(cls):
            cls.wire = cls.__name__

    def __post_init__(self) -> None:
        for each in fields(self):
            kind = getattr(each.type, "__name__", str(each.type))  # a string or a type
            value = _CHECKS[kind](each.name, getattr(self, each.name))
            if isinstance(value, Event) and value.level >= self.level:
                raise ConfigError(
                    f"{each.name} = {type(value).__name__}: this event cannot be nested there"
                )
            object.__setattr__(self, each.name, value)  # ints become floats, lists become tuples


@dataclass(frozen=True, kw_only=True)
class BinaryRandomizedResponse(Event):
    """Independent bits, one for each coordinate; each coordinate can be at either extreme.

    Attributes:
        epsilon: the pure epsilon of one coordinate.
        coordinates: the number of coordinates, d.
        whole: a pure epsilon of the whole report that is smaller than ``coordinates * epsilon``, if
            a bound on the vector implies one; None if every coordinate may be at any extreme.
        group: the public label that a report carries if clients have different budgets; a shuffler
            keeps groups apart.
    """

    wire: ClassVar[str] = "TwoValuedBits"
    epsilon: float
    coordinates: int
    whole: float | None = None
    group: float | None = None


@dataclass(frozen=True, kw_only=True)
class PureCoordinates(Event):
    """Independent coordinates, each with its own pure guarantee; all of them may change at once.

    Attributes:
        groups: pairs (epsilon, count): the number of coordinates with this pure epsilon. Each
            epsilon appears once; for each such coordinate, a pair of inputs attains it.
        telling: the revealing probability: an upper bound, for any two inputs of a coordinate, on
            the probability of the outcomes that are not equally likely under both. If it is below
            1, the two inputs that attain epsilon also attain this bound, up to rounding, and all
            such outcomes are equally revealing.

    Raises:
        ConfigError: ``groups`` is empty or malformed, or ``telling`` is not in (0, 1].
    """

    groups: tuple[tuple[float, int], ...]
    telling: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.telling <= 1:
            raise ConfigError(f"telling = {self.telling}: give a probability above 0 and up to 1")

    @classmethod
    def together(cls, times: int, *events: PureCoordinates) -> PureCoordinates:
        """Return one event for the coordinates of all ``events``, each drawn ``times`` times."""
        groups: Counter[float] = Counter()
        for event in events:
            for epsilon, count in event.groups:
                groups[epsilon] += times * count
        return cls(groups=tuple(groups.items()))


@dataclass(frozen=True, kw_only=True)
class PureReport(Event):
    """A report that is pure epsilon-DP as a whole.

    Attributes:
        epsilon: the pure epsilon of the whole report.
        idealised: whether the guarantee holds only in real arithmetic, not for the floats that are
            sent.
    """

    epsilon: float
    idealised: bool = False


@dataclass(frozen=True, kw_only=True)
class RenyiReport(Event):
    """A report whose author proves a curve of Renyi differential privacy.

    No mechanism of fedldp states it. It has no price: no kind of budget covers it, so ledgers with
    a budget refuse it.

    Attributes:
        curve: pairs (order, divergence): for each order above 1, an upper bound on the Renyi
            divergence of that order between the reports of any two inputs of a client, in both
            directions, for every broadcast. Orders ascend, and divergences do not decrease, as
            those of any mechanism.
        idealised: see ``PureReport``.

    Raises:
        ConfigError: the curve is empty or malformed, or says that a report costs nothing.
    """

    curve: tuple[tuple[float, float], ...]
    idealised: bool = False


Points = tuple[tuple[float, float], ...]
"""Pairs (epsilon, delta) of a privacy profile."""


@dataclass(frozen=True, kw_only=True)
class ProfileReport(Event):
    """A report whose author proves its privacy profile: an upper bound on delta for each epsilon.

    As with ``RenyiReport``, no mechanism of fedldp states it, and no kind of budget covers it.

    Attributes:
        points: pairs (epsilon, delta): for each epsilon of at least 0, the report is
            (epsilon, delta)-private for any two inputs of a client, in both directions, for every
            broadcast. Epsilons ascend, and deltas do not increase.
        error: a bound on the errors of the deltas, such as those of their computation. It is added
            to each of them.
        idealised: see ``PureReport``.

    Raises:
        ConfigError: the profile is empty or malformed, or says that a report costs nothing.
    """

    points: Points
    error: float = 0.0
    idealised: bool = False


@dataclass(frozen=True, kw_only=True)
class SubsetResponse(Event):
    """A report that is one of M categories: k of them have weight H, the others weight L.

    Which k categories these are depends on the input, and on a seed that is sent with the report
    and drawn independently of the input. The report holds nothing else; its seed and category have
    the same size for all clients. k-ary randomised response is the case k = 1.

    Attributes:
        high: H, one of the two integer weights by which the category is actually drawn.
        low: L, below H.
        closest: k, at most M/2.
        categories: M.

    Raises:
        ConfigError: the numbers do not describe such a report; see ``numerics.blanket.Subset``.
    """

    high: Weight
    low: Weight
    closest: int
    categories: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.subset  # noqa: B018 (computing it checks the numbers)

    @property
    def subset(self) -> Subset:
        """The law of the category."""
        return Subset(
            high=self.high, low=self.low, closest=self.closest, categories=self.categories
        )


@dataclass(frozen=True, kw_only=True)
class GaussianReport(Event):
    """A vector of bounded L2 norm plus Gaussian noise, with the same deviation in all coordinates.

    Attributes:
        mu: sensitivity over standard deviation of a continuous Gaussian that is no more private (up
            to 1e-100) than the discrete Gaussian used in deployment: see ``mechanisms.gaussian``.
        rho: the zCDP parameter of the discrete Gaussian.
    """

    mu: float
    rho: float


@dataclass(frozen=True, kw_only=True)
class GaussianShare(Event):
    """An integer vector of bounded L2 norm plus one share of the noise meant for a sum.

    The share is discrete Gaussian and independent in every coordinate. One share by itself is
    little noise; a sum of k shares is protected by all k.

    Attributes:
        squared_distance: the largest squared L2 distance between two such vectors, in squared
            steps.
        variance: the variance of the share's noise in every coordinate, in squared steps.

    Raises:
        ConfigError: the variance is too small for the proof about sums.
    """

    squared_distance: int
    variance: Share


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(Event):
    """Sums of clipped gradients over secret Poisson samples of a client's data, plus noise.

    Its cost is known for neighbours that differ in one example. It is also known for neighbours
    that differ in one person, if whole people are sampled and one gradient per person is clipped.
    So the event belongs in a ``PerRecord`` or ``PerPerson``.

    Attributes:
        noise_multiplier: standard deviation of the Gaussian noise, divided by the clip of one
            gradient.
        sampling_rate: the probability that a step samples a given example, or person.
        steps: the number of sums.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class SampledShare(Event):
    """Sums of integer vectors over secret Poisson samples, each with a share of a sum's noise.

    Its cost is known for neighbours that differ in the member (record or person) behind one vector.
    So the event belongs in a ``PerRecord`` or ``PerPerson``. As with ``GaussianShare``, a sum of k
    shares is protected by all k.

    Attributes:
        squared_distance: the largest squared L2 distance between the sum with a member's vector and
            the sum without it, in squared steps. Two vectors of a member are up to twice as far
            apart as these sums.
        variance: the variance of the share's noise in every coordinate, in squared steps.
        sampling_rate: the probability that a step samples a given member. Members are sampled
            independently of each other.
        steps: the number of sums.

    Raises:
        ConfigError: the variance is too small for the proof about sums, or the distance is 0.
    """

    squared_distance: int
    variance: Share
    sampling_rate: float
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.squared_distance < 1:
            raise ConfigError("squared_distance = 0: give an integer of at least 1")


@dataclass(frozen=True, kw_only=True)
class SampledClientsGaussian(Event):
    """The sum of the clipped reports of a secret random set of clients, plus the server's noise.

    The server releases the sum to adversaries who see only broadcasts. The event says nothing about
    what the server sees.

    Attributes:
        noise_multiplier: standard deviation of the Gaussian noise, divided by the clip of one
            client's report.
        sample_size: the number of clients in the set.
        population: the number of clients that the set is drawn from; all sets of that size are
            equally likely. An observer of the broadcasts may be a client that knows it was not
            drawn; in that case, count only the other clients.
    """

    noise_multiplier: float
    sample_size: int
    population: int


@dataclass(frozen=True, kw_only=True)
class InClear(Event):
    """A value computed from private data and sent unprotected: no guarantee, epsilon infinite.

    Attributes:
        what: what is sent. A string stands for the kind of that name, such as "weights"; any other
            string is shown to the reader of a statement as it is.
    """

    what: tuple[Unprotected, ...] | str

    @property
    def sent(self) -> tuple[Unprotected, ...]:
        """What is sent, as facts."""
        return cast(tuple[Unprotected, ...], self.what)


@dataclass(frozen=True, kw_only=True)
class NoRelease(Event):
    """A message that is not computed from any examples: it costs nothing and reveals nothing.

    Attributes:
        what: what is sent, as a name in kebab case, such as "public-keys".
    """

    wire: ClassVar[str] = "NoData"
    level: ClassVar[int] = 2
    what: str


@dataclass(frozen=True, kw_only=True)
class PerRecord(Event):
    """A release that costs less for one record than for a client's whole input.

    Attributes:
        record: the event for neighbours that differ in one training example.
        client: the event for neighbours that differ in the client's whole input.

    Raises:
        ConfigError: one of them is itself a ``PerRecord`` or a ``PerPerson``.
    """

    level: ClassVar[int] = 3
    record: Event
    client: Event


@dataclass(frozen=True, kw_only=True)
class PerPerson(Event):
    """A release that costs less for one person than for a client's whole input.

    A person means all rows about that person at one site. A guarantee for a person also holds for
    each of the person's rows.

    Attributes:
        person: the event for neighbours that differ in all data of one person.
        client: the event for neighbours that differ in the client's whole input.

    Raises:
        ConfigError: one of them is itself a ``PerPerson`` or a ``PerRecord``.
    """

    level: ClassVar[int] = 3
    person: Event
    client: Event


@dataclass(frozen=True, kw_only=True)
class Memoized(Event):
    """A release that is randomised once and kept: every later report is computed only from it.

    In each run of a client, the first release costs as much as ``drawn``; later releases cost
    nothing.

    Attributes:
        drawn: what was released. It covers everything drawn under its identity, including values
            that are drawn several times, or piece by piece in several rounds.
        identity: what is drawn, such as "features-and-labels". Within one run of a client, an
            identity stands for one event: another event under the same identity is refused.

    Raises:
        ConfigError: ``drawn`` is a ``Memoized``, a ``NoRelease``, or a ``PerRecord`` or
            ``PerPerson`` (these hold a ``Memoized``, not the other way round).
    """

    wire: ClassVar[str] = "DrawnOnce"
    level: ClassVar[int] = 2
    drawn: Event
    identity: str


@dataclass(frozen=True, kw_only=True)
class SelfComposed(Event):
    """Several releases of one kind, each with fresh randomness, whatever the other releases were.

    Attributes:
        each: the event of one release. The inputs of all releases may change together.
        count: the number of releases, at least 1.
    """

    wire: ClassVar[str] = "Several"
    level: ClassVar[int] = 1
    each: Event
    count: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.count < 1:
            raise ConfigError(f"count = {self.count}: give at least 1")


def within(event: Event) -> Iterator[Event]:
    """Yield ``event`` and all events nested in it."""
    yield event
    for each in fields(event):
        value = getattr(event, each.name)
        if isinstance(value, Event):
            yield from within(value)


def to_record(event: Event) -> dict[str, Any]:
    """Return ``event`` as a JSON-ready record, which ``accountants.from_record`` reads back."""
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    return {"event": event.wire, **{name: _plain(value) for name, value in values.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return to_record(value)
    if isinstance(value, tuple) and any(isinstance(each, Fact) for each in value):
        return [each.to_json() for each in value]
    return value


def _share(name: str, value: object) -> int:
    variance = numbers.strict_count(name, value)
    if variance < SMALLEST_SHARE:
        raise ConfigError(
            f"{name} = {variance}: give a share of at least {SMALLEST_SHARE} squared steps, "
            "below which nothing is proven about a sum of shares"
        )
    return variance


_MOST_PAIRS = 1000


def _pairs(
    said: str,
    fits: Callable[[Sequence[Any], Sequence[Any]], bool],
    second: Callable[[str, object], Any] = numbers.strict_number,
) -> Callable[[str, object], tuple[tuple[float, Any], ...]]:
    """Return a check of pairs of numbers, whose first and whose second numbers ``fits`` takes."""

    def check(name: str, value: object) -> tuple[tuple[float, Any], ...]:
        wrong = ConfigError(f"{name}: give {said}")
        if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_PAIRS:
            raise wrong
        if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in value):
            raise wrong
        found = [(numbers.strict_number(name, one), second(name, two)) for one, two in value]
        if not fits(*zip(*found, strict=True)):
            raise wrong
        return tuple(found)

    return check


def _ascend(values: Sequence[float], least: float) -> bool:
    return values[0] >= least and all(one < two for one, two in pairwise(values))


_groups = _pairs(
    "pairs (epsilon, count) above 0, each epsilon once",
    lambda epsilons, counts: len({*epsilons}) == len(epsilons) and 0 not in (*epsilons, *counts),
    numbers.strict_count,
)
_curve = _pairs(
    f"1 to {_MOST_PAIRS} pairs (order, divergence), with ascending orders above 1, and divergences "
    "above 0 that do not decrease",
    lambda orders, divergences: (
        _ascend(orders, math.nextafter(1, 2)) and divergences[0] > 0
        and sorted(divergences) == [*divergences]
    ),
)  # fmt: skip
_points = _pairs(
    f"1 to {_MOST_PAIRS} pairs (epsilon, delta), with ascending epsilons from 0 to 700, and deltas "
    "below 1 that do not increase; the delta of an epsilon of 0 is above 0",
    lambda epsilons, deltas: (
        _ascend(epsilons, 0) and epsilons[-1] <= 700 and (epsilons[0], deltas[0]) != (0, 0)
        and 0 <= deltas[-1] < 1 and sorted(deltas, reverse=True) == [*deltas]
    ),
)  # fmt: skip


def _event(name: str, value: object) -> Event:
    if not isinstance(value, Event):
        raise ConfigError(f"{name}: give an event, not a value of type {type(value).__name__}")
    return value


def _sent(name: str, value: object) -> tuple[Unprotected, ...]:
    if isinstance(value, str):
        text = numbers.strict_text(name, value)
        known = KINDS.get(text)
        plain = known is not None and known.family is Unprotected and not known.fields
        return (Unprotected(text) if plain else OTHER_SENT(text=text),)
    if not isinstance(value, list | tuple) or not value:
        raise ConfigError(f"{name}: give what is sent, as a string or as facts")
    return tuple(
        each if isinstance(each, Unprotected) else Unprotected.from_json(each) for each in value
    )


_CHECKS: dict[str, Callable[[str, object], object]] = {
    "float": numbers.strict_number,
    "float | None": numbers.strict_optional,
    "int": numbers.strict_count,
    "Share": _share,
    "Weight": numbers.strict_weight,
    "bool": numbers.strict_flag,
    "str": numbers.strict_text,
    "Event": _event,
    "tuple[tuple[float, int], ...]": _groups,
    "tuple[tuple[float, float], ...]": _curve,
    "Points": _points,
    "tuple[Unprotected, ...] | str": _sent,
}
"""The check for each type of field, keyed by the type's name as it is written above."""
