"""What one client releases in one report, as data that accountants interpret.

An event says what a mechanism did, never how safe that is: that is in the table of
``accountants``. An event that it lacks is an error; it never counts as nothing. Neighbours differ
in one client's whole input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from fedldp.accounting.numerics.blanket import Subset
from fedldp.accounting.numerics.gaussian import SMALLEST_SHARE
from fedldp.core.errors import ConfigError
from fedldp.core.numbers import (
    strict_count,
    strict_flag,
    strict_number,
    strict_text,
    strict_weight,
)

Weight = int
"""A field of this type goes up to 2^64, where a plain int goes up to 2^53."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events.

    Attributes:
        wire: the name under which ledgers and run folders keep the event: that of its class, unless
            the class says otherwise. It never changes, also where the class is renamed.
        level: 0 for a plain release. An event may only hold events of lower levels.

    Raises:
        ConfigError: a field is not of the very type that it has here, or out of range. A number may
            be a plain int or float; text, bools and numpy's scalars are none. An event cannot stand
            where the field's event is.
    """

    wire: ClassVar[str] = "Event"
    level: ClassVar[int] = 0

    def __init_subclass__(cls) -> None:
        if "wire" not in vars(cls):
            cls.wire = cls.__name__

    def __post_init__(self) -> None:
        for each in fields(self):
            kind = getattr(each.type, "__name__", str(each.type))  # text, or the type itself
            value = _CHECKS[kind](each.name, getattr(self, each.name))
            if isinstance(value, Event) and value.level >= self.level:
                raise ConfigError(
                    f"{each.name} = {type(value).__name__}: such an event cannot stand there"
                )
            object.__setattr__(self, each.name, value)  # an int as a float, lists as tuples


@dataclass(frozen=True, kw_only=True)
class BinaryRandomizedResponse(Event):
    """Independent bits, one for each coordinate; each can be at either of its two extremes.

    Attributes:
        epsilon: pure, of one coordinate.
        coordinates: how many, d.
        whole: a pure bound for the whole report where its bound on the vector gives one, smaller
            than ``coordinates * epsilon``; None where every coordinate may be at any extreme.
        group: the public label that a report travels under, where clients have budgets of their
            own: a shuffler keeps groups apart.
    """

    wire: ClassVar[str] = "TwoValuedBits"
    epsilon: float
    coordinates: int
    whole: float | None = None
    group: float | None = None


@dataclass(frozen=True, kw_only=True)
class PureCoordinates(Event):
    """Independent coordinates, each pure private by itself; all of them may change together.

    Attributes:
        groups: (epsilon, count): how many coordinates have which pure epsilon, each epsilon once.
            Two inputs of the coordinate attain it.
        telling: an upper bound, for every two inputs of a coordinate, on the probability of the
            outcomes that are not as likely under one as under the other. Below 1, the two inputs
            that attain epsilon attain it too, up to rounding, and all such outcomes tell as much.

    Raises:
        ConfigError: ``groups`` is empty or malformed, or ``telling`` no such probability.
    """

    wire: ClassVar[str] = "PureCoordinates"
    groups: tuple[tuple[float, int], ...]
    telling: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.telling <= 1:
            raise ConfigError(f"telling = {self.telling}: give a probability above 0, at most 1")

    @classmethod
    def together(cls, times: int, *events: PureCoordinates) -> PureCoordinates:
        """Return one event for the coordinates of all ``events``, each drawn so many times."""
        groups: Counter[float] = Counter()
        for event in events:
            for epsilon, count in event.groups:
                groups[epsilon] += times * count
        return cls(groups=tuple(groups.items()))


@dataclass(frozen=True, kw_only=True)
class PureReport(Event):
    """A report whose whole content is pure epsilon-private.

    Attributes:
        epsilon: of the whole report.
        idealised: whether that holds for real numbers only, not for the floats that are sent.
    """

    wire: ClassVar[str] = "PureReport"
    epsilon: float
    idealised: bool = False


@dataclass(frozen=True, kw_only=True)
class SubsetResponse(Event):
    """A report that is one category: each of k among M has weight H, each other one weight L.

    Which k, depends on the input and on a seed that is sent along, drawn without a look at the
    input. The report holds nothing else, and its seed and category have one size for all clients.
    k-ary randomised response has k = 1.

    Attributes:
        high: H, of the integers by which the category is really drawn.
        low: L, below H.
        closest: k, at most M/2.
        categories: M.

    Raises:
        ConfigError: the numbers are of no such report; see ``numerics.blanket.Subset``.
    """

    wire: ClassVar[str] = "SubsetResponse"
    high: Weight
    low: Weight
    closest: int
    categories: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.subset  # noqa: B018 (it checks)

    @property
    def subset(self) -> Subset:
        """The law of the category."""
        return Subset(
            high=self.high, low=self.low, closest=self.closest, categories=self.categories
        )


@dataclass(frozen=True, kw_only=True)
class GaussianReport(Event):
    """A vector of bounded L2 norm plus Gaussian noise of equal deviation in every coordinate.

    Attributes:
        mu: sensitivity over deviation of a continuous Gaussian that is no more private than the
            discrete one of deployment, but for 1e-100: see ``mechanisms.gaussian``.
        rho: zCDP of the discrete Gaussian.
    """

    wire: ClassVar[str] = "GaussianReport"
    mu: float
    rho: float


@dataclass(frozen=True, kw_only=True)
class GaussianShare(Event):
    """An integer vector of bounded L2 norm plus one share of the noise that a sum is to have.

    The share is discrete Gaussian, independent in every coordinate. By itself it is little noise;
    a sum that holds k of them is protected by all k.

    Attributes:
        squared_distance: the largest squared L2 distance of two such vectors, in squared steps.
        variance: of the share's noise in every coordinate, in squared steps.

    Raises:
        ConfigError: the variance is too small for what is proven of sums.
    """

    wire: ClassVar[str] = "GaussianShare"
    squared_distance: int
    variance: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_share(self.variance)


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(Event):
    """Sums of clipped gradients over secret Poisson samples of what a client has, plus noise.

    Its cost is known for neighbours that differ in one example, or in one person where whole people
    are sampled and one gradient of each is clipped: it goes into a ``PerRecord`` or ``PerPerson``.

    Attributes:
        noise_multiplier: deviation of the Gaussian noise over the clip of one gradient.
        sampling_rate: the probability with which a step takes an example, or a person.
        steps: how many sums.
    """

    wire: ClassVar[str] = "SampledGaussian"
    noise_multiplier: float
    sampling_rate: float
    steps: int


@dataclass(frozen=True, kw_only=True)
class SampledShare(Event):
    """Sums of integer vectors over secret Poisson samples, each with a share of a sum's noise.

    Its cost is known for neighbours that differ in the member of one vector: it goes into a
    ``PerRecord`` or ``PerPerson``. As with ``GaussianShare``, a sum that holds k shares is
    protected by all k.

    Attributes:
        squared_distance: the largest squared L2 distance of the sum with a member's vector from
            that without it, in squared steps. Two vectors of a member are up to twice as far apart.
        variance: of the share's noise in every coordinate, in squared steps.
        sampling_rate: the probability with which a step takes a member, each on its own.
        steps: how many sums.

    Raises:
        ConfigError: the variance is too small for what is proven of sums, or the distance is 0.
    """

    wire: ClassVar[str] = "SampledShare"
    squared_distance: int
    variance: int
    sampling_rate: float
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_share(self.variance)
        if self.squared_distance < 1:
            raise ConfigError("squared_distance = 0: give the distance of what is sampled, from 1")


@dataclass(frozen=True, kw_only=True)
class SampledClientsGaussian(Event):
    """The sum of the clipped reports of a secret random set of clients, plus the server's noise.

    The server releases it, to who sees only broadcasts; it says nothing of what the server sees.

    Attributes:
        noise_multiplier: deviation of the Gaussian noise over the clip of one client's report.
        sample_size: clients in the set.
        population: clients that it is drawn from; all sets of that size are equally likely. Who
            sees the broadcasts may be one of them, and know that it was not drawn itself: then
            those that are left.
    """

    wire: ClassVar[str] = "SampledClientsGaussian"
    noise_multiplier: float
    sample_size: int
    population: int


@dataclass(frozen=True, kw_only=True)
class InClear(Event):
    """A value computed from private data that is sent as it is: no guarantee, epsilon infinite.

    Attributes:
        what: for the reader of a statement, such as "weights" or "number of examples".
    """

    wire: ClassVar[str] = "InClear"
    what: str


@dataclass(frozen=True, kw_only=True)
class NoRelease(Event):
    """A message that is computed without any example: it costs nothing, and tells nothing.

    Attributes:
        what: for the reader of a ledger, such as "public keys".
    """

    wire: ClassVar[str] = "NoData"
    level: ClassVar[int] = 2
    what: str


@dataclass(frozen=True, kw_only=True)
class PerRecord(Event):
    """A release that costs one record less than it costs the whole input of a client.

    Attributes:
        record: what it is where neighbours differ in one training example.
        client: what it is where they differ in the client's whole input.

    Raises:
        ConfigError: one of them is a ``PerRecord`` itself, or a ``PerPerson``.
    """

    wire: ClassVar[str] = "PerRecord"
    level: ClassVar[int] = 3
    record: Event
    client: Event


@dataclass(frozen=True, kw_only=True)
class PerPerson(Event):
    """A release that costs one person less than it costs the whole input of a client.

    A person is all that one site has of her. What holds for a person holds for one row of hers.

    Attributes:
        person: what it is where neighbours differ in all that one person has.
        client: what it is where they differ in the client's whole input.

    Raises:
        ConfigError: one of them is a ``PerPerson`` or a ``PerRecord``.
    """

    wire: ClassVar[str] = "PerPerson"
    level: ClassVar[int] = 3
    person: Event
    client: Event


@dataclass(frozen=True, kw_only=True)
class Memoized(Event):
    """A release that is randomised once and kept: every later report follows from it alone.

    In each run of a client its first release costs what is drawn, and every later one nothing.

    Attributes:
        drawn: what was released. It counts all that is drawn under its identity: also what is drawn
            several times, or piece by piece in several rounds.
        identity: what is drawn, as "features and labels". Within one run of a client, what is drawn
            under one identity is one event: another one under the same identity is refused.

    Raises:
        ConfigError: ``drawn`` is a ``Memoized``, a ``PerRecord`` or ``PerPerson`` (which hold this
            one instead) or ``NoRelease``.
    """

    wire: ClassVar[str] = "DrawnOnce"
    level: ClassVar[int] = 2
    drawn: Event
    identity: str


@dataclass(frozen=True, kw_only=True)
class SelfComposed(Event):
    """Several releases of one kind, each with fresh randomness, whatever the others released.

    Attributes:
        each: what one of them is. All of their inputs may change together.
        count: how many, from 1.
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
    """Yield ``event``, and all events that it is made of."""
    yield event
    for each in fields(event):
        value = getattr(event, each.name)
        if isinstance(value, Event):
            yield from within(value)


def to_record(event: Event) -> dict[str, Any]:
    """Return ``event`` as a JSON-ready record, which ``accountants.from_record`` reads back."""
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    return {
        "event": event.wire,
        **{n: to_record(v) if isinstance(v, Event) else v for n, v in values.items()},
    }


def _check_share(variance: int) -> None:
    if variance < SMALLEST_SHARE:
        raise ConfigError(
            f"variance = {variance}: give a share of at least {SMALLEST_SHARE} squared steps, "
            "below which nothing is proven of a sum of shares"
        )


def _groups(name: str, value: object) -> tuple[tuple[float, int], ...]:
    wrong = ConfigError(f"{name}: give pairs of an epsilon above 0, each once, and a count above 0")
    if not isinstance(value, list | tuple):
        raise wrong
    groups = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise wrong
        groups.append((strict_number("epsilon", pair[0]), strict_count("count", pair[1])))
    if not groups or len(dict(groups)) < len(groups) or any(0 in pair for pair in groups):
        raise wrong
    return tuple(groups)


def _event(name: str, value: object) -> Event:
    if not isinstance(value, Event):
        raise ConfigError(f"{name}: give an event, not a value of type {type(value).__name__}")
    return value


def _number_or_none(name: str, value: object) -> float | None:
    return None if value is None else strict_number(name, value)


_CHECKS: dict[str, Callable[[str, object], object]] = {
    "float": strict_number,
    "float | None": _number_or_none,
    "int": strict_count,
    "Weight": strict_weight,
    "bool": strict_flag,
    "str": strict_text,
    "Event": _event,
    "tuple[tuple[float, int], ...]": _groups,
}
"""What a field of each type must be, by the type as it is written above."""
