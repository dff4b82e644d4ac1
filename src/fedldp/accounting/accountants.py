"""The table of what is known about events: it maps each event's class to its accountant.

Budgets, ledgers, statements, clients, deployments and the audit look events up here and nowhere
else. A new event needs a class (in ``events``) and an entry here. The table knows exact classes,
not their subclasses; an event that is missing from the table is an error, never a free release. The
code that computes an epsilon sees losses (``Pure``, ``Normal``, ``Renyi``, ``Profile``,
``Sampled``, ``Clear``, and ``CountedBits`` or ``Subset`` for shuffled or summed reports), never an
event.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar, get_args

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    Memoized,
    NoRelease,
    PerPerson,
    PerRecord,
    Points,
    ProfileReport,
    PureCoordinates,
    PureReport,
    RenyiReport,
    SampledClientsGaussian,
    SampledGaussian,
    SampledShare,
    SelfComposed,
    SubsetResponse,
    within,
)
from fedldp.accounting.numerics.blanket import Subset
from fedldp.accounting.numerics.compose import pure_epsilon
from fedldp.accounting.numerics.gaussian import pure_rho, pure_squared_mu, shares_mu
from fedldp.accounting.numerics.subsampled import SampledRelease, fixed_size_sample, poisson_sample
from fedldp.core.errors import ConfigError, OverBudget
from fedldp.core.facts import Unprotected

E = TypeVar("E", bound=Event)

BudgetKind = Literal["pure", "zcdp", "gdp"]
UNITS: dict[BudgetKind, str] = {"pure": "epsilon", "zcdp": "rho", "gdp": "mu^2"}
"""The unit of each kind of budget."""

Part = Literal["record", "person"]
Side = Literal[Part, "client"]
PARTS: tuple[Part, ...] = get_args(Part)
SIDES: tuple[Side, ...] = get_args(Side)
"""What neighbours may differ in: one training example, all data of one person, or a client's whole
input. Each is part of the next, so a guarantee for a larger one also holds for the smaller ones."""


class UnknownEvent(ConfigError, OverBudget):
    """No accountant knows the event: nothing can be stated about it, and no budget covers it."""


# Losses


@dataclass(frozen=True, kw_only=True)
class Pure:
    """A report with a pure guarantee, possibly one per coordinate.

    Attributes:
        whole: the pure epsilon of the whole report.
        singles: the number of coordinates (or of whole reports) for each pair (epsilon, revealing
            probability); see ``compose.RevealingCounts``.
        free: whether every coordinate may be at any extreme, whatever the other coordinates are; if
            so, a pair of inputs attains ``whole``.
        known: whether the revealing probability is known, rather than only bounded by 1.
        two_valued: whether coordinates have two outcomes, as in randomised response.
    """

    whole: float
    singles: tuple[tuple[tuple[float, float], int], ...]
    free: bool = False
    known: bool = False
    two_valued: bool = False


@dataclass(frozen=True, kw_only=True)
class Normal:
    """A vector with discrete Gaussian noise.

    Attributes:
        mu: a function of the number of such reports in a sum. It returns the sensitivity over
            standard deviation of a continuous Gaussian that is no more private than the sum, up to
            1e-100.
    """

    mu: Callable[[int], float]


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Sums over secret random samples, with continuous Gaussian noise or equally private noise.

    Attributes:
        release: a function of the number of such reports in a sum. It returns one release.
        times: the number of releases.
        sides: what may be sampled: parts of a client (records or people), or whole clients.
        adversaries: the adversaries against whom the guarantee holds; against others nothing is
            known.
    """

    release: Callable[[int], SampledRelease]
    times: int
    sides: tuple[Side, ...]
    adversaries: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Clear:
    """No protection at all.

    Attributes:
        what: what is sent.
    """

    what: tuple[Unprotected, ...]


@dataclass(frozen=True, kw_only=True)
class Renyi:
    """A report with a curve of Renyi differential privacy.

    Attributes:
        curve: see ``RenyiReport``.
    """

    curve: tuple[tuple[float, float], ...]

    def at(self, order: float) -> float | None:
        """Return a bound on the divergence of an order: that of the next known order.

        Renyi divergences do not decrease with the order. None above the largest known order.

        Source: van Erven, Harremoes, "Renyi Divergence and Kullback-Leibler Divergence", 2014,
        Theorem 3.
        """
        return next((divergence for known, divergence in self.curve if known >= order), None)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A report with a privacy profile.

    Attributes:
        points: see ``ProfileReport``.
        error: see ``ProfileReport``.
    """

    points: Points
    error: float


Loss = Pure | Normal | Renyi | Profile | Sampled | Clear


@dataclass(frozen=True, kw_only=True)
class CountedBits:
    """Independent two-valued bits; the adversary sees only the number of ones across all clients.

    Attributes:
        epsilon: the pure epsilon of one bit.
        coordinates: the number of bits.
        whole: a pure epsilon of the whole report that is smaller than the sum over its bits; None
            if no such epsilon is known.
    """

    epsilon: float
    coordinates: int
    whole: float | None


@dataclass(frozen=True, kw_only=True)
class Content:
    """The release that a composite event contains: it is made several times, or only once in a run.

    Attributes:
        event: the release.
        count: how many times it is made.
        identity: what is drawn, if the draw happens once in a run and is kept; else None.
    """

    event: Event
    count: int = 1
    identity: str | None = None


# The table


def _none(event: Event) -> None:
    """Return None: what an event does not have."""


@dataclass(frozen=True, kw_only=True)
class Accountant(Generic[E]):
    """What is known about one class of events: a row of the table.

    Exactly one of the fields ``loss``, ``content``, ``sides`` and ``nothing`` is set. It says what
    kind of event this is. The other attributes describe an event that has a loss.

    Attributes:
        loss: the event's loss, for the numerics.
        content: the release that the event contains, if the event stands for several such releases
            or for one that is made only once in a run.
        sides: the event that is stated for each side, if the sides have different events; the side
            "client" is always included.
        nothing: what is sent, if the event is computed from no data. Such an event costs nothing,
            and no history contains it.
        price: an exact upper bound on what the event adds to a budget of the given kind; None if no
            such budget ever covers the event.
        coordinate: the event of the report's costliest coordinate, if coordinates are independent.
        summed: what a sum of such reports reveals, if a sum protects them.
        shuffled: what a shuffler reveals about such reports, if it protects them (bits that are
            shuffled coordinate by coordinate, or reports of one category each).
        real_arithmetic_only: whether the proof holds only for real numbers, not for floats.
        by_mechanism: whether a mechanism may state the event for its own report. Such an event says
            only how the report was randomised. Other events can be stated only by the code that
            decides what a mechanism is given, and how often. These are the events for values that
            are drawn once, for messages that reveal nothing, and for releases that cost less for a
            record or a person.
        size: the size of the report, as the number of coordinates that the event counts; None if
            the event counts no coordinates.
    """

    loss: Callable[[E], Loss | None] = _none
    content: Callable[[E], Content | None] = _none
    sides: Callable[[E], Mapping[Side, Event] | None] = _none
    nothing: Callable[[E], str | None] = _none
    price: Callable[[E, BudgetKind], Fraction | None] = lambda event, kind: None
    coordinate: Callable[[E], Event | None] = _none
    summed: Callable[[E], CountedBits | Normal | Sampled | None] = _none
    shuffled: Callable[[E], CountedBits | Subset | None] = _none
    real_arithmetic_only: Callable[[E], bool] = lambda event: False
    by_mechanism: bool = False
    size: Callable[[E], int] | None = None

    def __post_init__(self) -> None:
        kinds = (self.loss, self.content, self.sides, self.nothing)
        if sum(kind is not _none for kind in kinds) != 1:
            raise TypeError("set exactly one of the fields loss, content, sides, nothing")


def price_of_pure(epsilon: float, kind: BudgetKind) -> Fraction:
    """Return an exact upper bound on what any pure ``epsilon`` mechanism adds to a budget.

    Source: ``pure_rho`` and ``pure_squared_mu``.
    """
    exact = Fraction(epsilon)
    if kind == "pure":
        return exact
    return pure_rho(exact) if kind == "zcdp" else pure_squared_mu(epsilon)


def _price_of_bits(event: BinaryRandomizedResponse, kind: BudgetKind) -> Fraction:
    """Return the price of the bits, charged one by one or as a whole report, whichever is less."""
    each = event.coordinates * price_of_pure(event.epsilon, kind)
    return each if event.whole is None else min(each, price_of_pure(event.whole, kind))


def _loss_of_bits(event: BinaryRandomizedResponse) -> Pure:
    each = pure_epsilon({event.epsilon: event.coordinates})
    return Pure(
        whole=each if event.whole is None else min(each, event.whole),
        singles=(((event.epsilon, 1.0), event.coordinates),),
        free=event.whole is None,
        known=True,
        two_valued=True,
    )


def _bits(event: BinaryRandomizedResponse) -> CountedBits:
    return CountedBits(epsilon=event.epsilon, coordinates=event.coordinates, whole=event.whole)


def _price_of_coordinates(event: PureCoordinates, kind: BudgetKind) -> Fraction:
    return sum((n * price_of_pure(each, kind) for each, n in event.groups), Fraction(0))


def _loss_of_coordinates(event: PureCoordinates) -> Pure:
    return Pure(
        whole=pure_epsilon(dict(event.groups)),
        singles=tuple(((epsilon, event.telling), count) for epsilon, count in event.groups),
        free=True,
        known=event.telling < 1,
    )


def _costliest(event: PureCoordinates) -> PureCoordinates:
    return replace(event, groups=((max(epsilon for epsilon, _ in event.groups), 1),))


def _loss_of_category(event: SubsetResponse) -> Pure:
    epsilon = event.subset.epsilon
    return Pure(whole=epsilon, singles=(((epsilon, 1.0), 1),))


def _loss_of_share(event: GaussianShare) -> Normal:
    return Normal(mu=lambda shares: shares_mu(event.squared_distance, event.variance, shares))


def _loss_of_sampled(event: SampledGaussian) -> Sampled:
    release = poisson_sample(event.noise_multiplier, event.sampling_rate)
    return Sampled(
        release=lambda shares: release,
        times=event.steps,
        sides=PARTS,
        adversaries=("server", "downlink"),  # the guarantee against both is the same
    )


def _loss_of_sampled_share(event: SampledShare) -> Sampled:
    def release(shares: int) -> SampledRelease:
        mu = shares_mu(event.squared_distance, event.variance, shares)
        return poisson_sample(math.nextafter(1 / mu, 0), event.sampling_rate)

    return Sampled(
        release=release,
        times=event.steps,
        sides=PARTS,
        adversaries=("server", "summing-server", "downlink"),
    )


def _loss_of_sampled_clients(event: SampledClientsGaussian) -> Sampled:
    release = fixed_size_sample(event.noise_multiplier, event.sample_size, event.population)
    return Sampled(
        release=lambda shares: release,
        times=1,
        sides=("client",),
        adversaries=("downlink",),
    )


ACCOUNTANTS: dict[type[Event], Accountant[Any]] = {
    BinaryRandomizedResponse: Accountant(
        price=_price_of_bits,
        loss=_loss_of_bits,
        coordinate=lambda event: replace(event, coordinates=1, whole=None),
        summed=_bits,  # a sum of bits reveals exactly what a shuffler of single bits reveals
        shuffled=_bits,
        by_mechanism=True,
        size=lambda event: event.coordinates,
    ),
    PureCoordinates: Accountant(
        price=_price_of_coordinates,
        loss=_loss_of_coordinates,
        coordinate=_costliest,
        by_mechanism=True,
        size=lambda event: sum(count for _, count in event.groups),
    ),
    PureReport: Accountant(
        price=lambda event, kind: price_of_pure(event.epsilon, kind),
        loss=lambda event: Pure(whole=event.epsilon, singles=(((event.epsilon, 1.0), 1),)),
        real_arithmetic_only=lambda event: event.idealised,
        by_mechanism=True,
    ),
    # A curve at some orders bounds neither a pure epsilon nor a rho, so no budget covers it.
    RenyiReport: Accountant(
        loss=lambda event: Renyi(curve=event.curve),
        real_arithmetic_only=lambda event: event.idealised,
        by_mechanism=True,
    ),
    ProfileReport: Accountant(
        loss=lambda event: Profile(points=event.points, error=event.error),
        real_arithmetic_only=lambda event: event.idealised,
        by_mechanism=True,
    ),
    SubsetResponse: Accountant(
        price=lambda event, kind: price_of_pure(event.subset.epsilon, kind),
        loss=_loss_of_category,
        shuffled=lambda event: event.subset,
        by_mechanism=True,
    ),
    # Gaussian noise has no pure guarantee. A deployment draws the discrete Gaussian, for which
    # mu-GDP is not proven.
    GaussianReport: Accountant(
        price=lambda event, kind: Fraction(event.rho) if kind == "zcdp" else None,
        loss=lambda event: Normal(mu=lambda shares: event.mu),
        by_mechanism=True,
    ),
    GaussianShare: Accountant(  # priced as a single share: a ledger cannot know the other shares
        price=lambda event, kind: (
            Fraction(event.squared_distance, 2 * event.variance) if kind == "zcdp" else None
        ),
        loss=_loss_of_share,
        summed=_loss_of_share,
        by_mechanism=True,
    ),
    SampledGaussian: Accountant(loss=_loss_of_sampled, real_arithmetic_only=lambda event: True),
    SampledShare: Accountant(
        loss=_loss_of_sampled_share,
        summed=_loss_of_sampled_share,
        real_arithmetic_only=lambda event: True,
    ),
    SampledClientsGaussian: Accountant(
        loss=_loss_of_sampled_clients, real_arithmetic_only=lambda event: True
    ),
    InClear: Accountant(loss=lambda event: Clear(what=event.sent), by_mechanism=True),
    NoRelease: Accountant(nothing=lambda event: event.what),
    PerRecord: Accountant(
        sides=lambda event: {"record": event.record, "client": event.client},
    ),
    PerPerson: Accountant(
        sides=lambda event: {"person": event.person, "client": event.client},
    ),
    Memoized: Accountant(
        content=lambda event: Content(event=event.drawn, identity=event.identity),
    ),
    SelfComposed: Accountant(content=lambda event: Content(event=event.each, count=event.count)),
}
"""A row for each class of events. Rows that a user's own code adds are treated like the others."""


# Queries


def accountant(event: Event) -> Accountant[Any]:
    """Return what is known about the class of ``event``.

    Raises:
        UnknownEvent: the table has no row for it.
    """
    found = ACCOUNTANTS.get(type(event))
    if found is None:
        raise UnknownEvent(f"event {type(event).__name__}: no accountant knows it")
    return found


@lru_cache(maxsize=1024)
def loss_of(event: Event) -> Loss | None:
    """Return the loss of ``event``; None if it is defined by sides or content, or uses no data.

    Raises:
        UnknownEvent: the event is unknown.
        ConfigError: the event is out of the range for which its loss is known.
    """
    return accountant(event).loss(event)


def content_of(event: Event) -> Content | None:
    """Return the release that ``event`` contains; None if it is not a composite event."""
    return accountant(event).content(event)


def sides_of(event: Event) -> Mapping[Side, Event]:
    """Return the event that ``event`` states for each side; empty if it states none."""
    return accountant(event).sides(event) or {}


def on_side(event: Event, side: Side) -> Event:
    """Return the event that stands for ``event`` if neighbours differ in ``side``.

    If ``event`` states nothing for ``side``, its event for the next larger stated side is returned.
    An event that states nothing for any side is returned unchanged.
    """
    stated = sides_of(event)
    if not stated:
        return event
    return next(stated[each] for each in SIDES[SIDES.index(side) :] if each in stated)


def releases_nothing(event: Event) -> bool:
    """Return whether ``event`` is computed from no data."""
    return sent_of_nothing(event) is not None


def sent_of_nothing(event: Event) -> str | None:
    """Return what ``event`` sends, if it is computed from no data; else None."""
    return accountant(event).nothing(event)


def coordinate_of(event: Event) -> Event | None:
    """Return the event of the costliest coordinate of ``event``; None if there is no such event."""
    return accountant(event).coordinate(event)


def shuffled_loss(event: Event) -> CountedBits | Subset | None:
    """Return what shuffled reports of ``event`` reveal; None if shuffling does not protect them."""
    return accountant(event).shuffled(event)


def summed_loss(event: Event) -> CountedBits | Normal | Sampled | None:
    """Return what a sum of reports of ``event`` reveals; None if summing does not protect them."""
    return accountant(event).summed(event)


def unfolded(history: Counter[Event]) -> Counter[Event]:
    """Return ``history`` with each composite event replaced by the releases that it contains.

    A value that was drawn once counts once, however often it was sent. Composition covers releases
    made at the same time as well as releases made one after another.
    """
    counts: Counter[Event] = Counter()
    for event, times in history.items():
        content = content_of(event)
        if content is None:
            counts[event] += times
            continue
        often = content.count * (times if content.identity is None else 1)
        counts.update(unfolded(Counter({content.event: often})))
    return counts


@lru_cache(maxsize=1024)
def drawn_once(event: Event) -> Mapping[tuple[Side, str], Event]:
    """Return the parts of ``event`` that are drawn once, keyed by side and identity."""
    seen = [(side, on_side(event, side)) for side in SIDES]
    contents = [(side, each, content_of(each)) for side, each in seen]
    return {
        (side, content.identity): each
        for side, each, content in contents
        if content is not None and content.identity is not None
    }


def real_arithmetic_only(event: Event) -> bool:
    """Return whether the proof for ``event`` holds only for real numbers, not for floats.

    True for an event that is marked as idealised, for sums whose noise is drawn as floats, and for
    an event that contains one of these.
    """
    return any(accountant(each).real_arithmetic_only(each) for each in within(event))


def sent_in_clear(event: Event) -> list[Unprotected]:
    """Return what ``event`` sends unprotected, on any side."""
    losses = (loss_of(each) for each in within(event))
    return [each for loss in losses if isinstance(loss, Clear) for each in loss.what]


def is_pure(event: Event) -> bool:
    """Return whether a report of ``event`` has a guarantee at delta 0 for its client."""
    return isinstance(loss_of(on_side(event, "client")), Pure)


def has_identical_coordinates(event: Event) -> bool:
    """Return whether all coordinates of ``event`` are independent and identically distributed."""
    loss = loss_of(on_side(event, "client"))
    return isinstance(loss, Pure) and loss.free and len(loss.singles) == 1


def protects_in_training(event: Event) -> bool:
    """Return whether the protection by ``event``, if any, may happen during a client's training.

    If not, the result of the client's training is randomised afterwards.
    """
    return any(
        sides_of(each) or drawn_once(each) or isinstance(loss_of(each), Clear | Sampled)
        for each in within(event)
    )


# Records

_DEEPEST = 4


def from_record(record: object) -> Event:
    """Return the event that ``record``, any JSON value, describes; see ``events.to_record``.

    Raises:
        ConfigError: the record names no event that this version knows, or is not a valid record of
            its event; or two classes of events have the same ``wire``, so that one would be read as
            the other.
    """
    return _read(record, _DEEPEST)


def _read(record: object, levels: int) -> Event:
    name = record.get("event") if isinstance(record, dict) else None
    known = {cls.wire: cls for cls in ACCOUNTANTS}
    if len(known) < len(ACCOUNTANTS):
        twice = ", ".join(name for name, n in Counter(c.wire for c in ACCOUNTANTS).items() if n > 1)
        raise ConfigError(
            f"{twice}: two event classes have this wire; give your class another wire"
        )
    if not isinstance(record, dict) or not isinstance(name, str) or name not in known:
        raise ConfigError(f"event = {name!a:.60}: this version knows {', '.join(known)} only")
    if levels == 0:
        raise ConfigError(f"event {name}: it is nested too deeply")
    values = {
        n: _read(v, levels - 1) if isinstance(v, dict) else v
        for n, v in record.items()
        if n != "event"
    }
    expected = [each.name for each in fields(known[name])]
    if not set(values) <= set(expected):
        raise ConfigError(f"event {name}: its record has other fields than {', '.join(expected)}")
    try:
        return known[name](**values)
    except TypeError as error:
        raise ConfigError(f"event {name}: its record does not fit this event: {error}") from error
