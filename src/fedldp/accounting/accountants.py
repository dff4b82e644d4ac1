"""What is known of each event: one table, from an event's class to its accountant.

Budgets, ledgers, statements, clients, deployments and the audit look an event up here and nowhere
else; a new event is a class (``events``) and an entry. The table knows exact classes, not their
subclasses, and an event that it lacks is an error, never nothing. What computes an epsilon sees
losses (``Pure``, ``Normal``, ``Sampled``, ``Clear``, and ``Bits`` or a ``Subset`` where reports are
mixed), never an event.
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
    PureCoordinates,
    PureReport,
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

E = TypeVar("E", bound=Event)

Kind = Literal["pure", "zcdp", "gdp"]
UNITS: dict[Kind, str] = {"pure": "epsilon", "zcdp": "rho", "gdp": "mu^2"}
"""What a budget of each kind adds up."""

Part = Literal["record", "person"]
Side = Literal[Part, "client"]
PARTS: tuple[Part, ...] = get_args(Part)
SIDES: tuple[Side, ...] = get_args(Side)
"""What neighbours may differ in: one training example, all that one person has, or a client's whole
input. Each is a part of the next, so what holds for one holds for all before it."""


class UnknownEvent(ConfigError, OverBudget):
    """No accountant knows the event: nothing can be stated of it, and no budget covers it."""


# Losses


@dataclass(frozen=True, kw_only=True)
class Pure:
    """A report that is pure private, perhaps coordinate by coordinate.

    Attributes:
        whole: the pure epsilon of the whole report.
        singles: how many coordinates there are of each (epsilon, probability of telling), or else
            whole reports; see ``compose.Telling``.
        free: whether every coordinate may be at any extreme, whatever the others are: then
            ``whole`` is attained.
        known: whether the probability of telling is known, and not only bounded by 1.
        two_valued: whether coordinates have two outcomes, as randomised response has.
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
        mu: sensitivity over deviation of a continuous Gaussian that is no more private, but for
            1e-100, of a sum that holds as many such reports.
    """

    mu: Callable[[int], float]


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Sums over secret random samples, plus continuous Gaussian noise, or what is as private.

    Attributes:
        release: one of them, of a sum that holds as many such reports.
        times: how many.
        sides: what is sampled: of an event for a part of a client, the part that it stands for.
        adversaries: against whom; nothing is known against others.
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

    what: str


Loss = Pure | Normal | Sampled | Clear


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Independent two-valued bits, whose ones alone are seen, added up over clients.

    Attributes:
        epsilon: pure, of one bit.
        coordinates: how many.
        whole: a smaller pure epsilon of the whole report, if one is known.
    """

    epsilon: float
    coordinates: int
    whole: float | None


@dataclass(frozen=True, kw_only=True)
class Content:
    """What an event is made of, where it is a plain release that is made more or less often.

    Attributes:
        event: the release.
        count: how often.
        identity: where it is drawn once in a run and kept, what is drawn; else None.
    """

    event: Event
    count: int = 1
    identity: str | None = None


# The table


@dataclass(frozen=True, kw_only=True)
class Accountant(Generic[E]):
    """What is known of one class of events: a row of the table.

    Exactly one of ``loss``, ``content``, ``sides`` and ``nothing`` is given: it says what kind of
    event this is. The others are about an event that has a loss.

    Attributes:
        loss: of an event, for the numerics.
        content: of an event that is another one, more or less often.
        sides: of an event that is another one for each side that it states, the client's at least.
        nothing: what is sent, of an event that is computed from no data: it costs nothing, and no
            history holds it.
        price: an exact upper bound of what it adds to a budget of a kind; None: it is never
            covered.
        coordinate: the costliest of its coordinates as an event, where they are independent.
        summed: what a sum of such reports shows, where a sum protects them.
        shuffled: what a shuffler shows, where one protects such reports: of bits that are shuffled
            coordinate by coordinate, or of reports that are one category each.
        real_arithmetic_only: whether what is proven holds for real numbers, not for floats.
        by_mechanism: whether a mechanism may state it of its report: how that was randomised, and
            no more. What is drawn once, tells nothing or costs a record or a person less is known
            by whoever decides what a mechanism is given, and how often.
        size: how many coordinates it counts, which is a report's size; None: it counts none.
    """

    loss: Callable[[E], Loss] | None = None
    content: Callable[[E], Content] | None = None
    sides: Callable[[E], Mapping[Side, Event]] | None = None
    nothing: Callable[[E], str] | None = None
    price: Callable[[E, Kind], Fraction | None] = lambda event, kind: None
    coordinate: Callable[[E], Event] | None = None
    summed: Callable[[E], Bits | Normal | Sampled] | None = None
    shuffled: Callable[[E], Bits | Subset] | None = None
    real_arithmetic_only: Callable[[E], bool] = lambda event: False
    by_mechanism: bool = False
    size: Callable[[E], int] | None = None

    def __post_init__(self) -> None:
        kinds = (self.loss, self.content, self.sides, self.nothing)
        if sum(kind is not None for kind in kinds) != 1:
            raise TypeError("give exactly one of loss, content, sides and nothing")


def price_of_pure(epsilon: float, kind: Kind) -> Fraction:
    """Return an exact upper bound of what any pure ``epsilon`` mechanism adds to a budget.

    Source: ``pure_rho`` and ``pure_squared_mu``.
    """
    exact = Fraction(epsilon)
    if kind == "pure":
        return exact
    return pure_rho(exact) if kind == "zcdp" else pure_squared_mu(epsilon)


def _price_of_bits(event: BinaryRandomizedResponse, kind: Kind) -> Fraction:
    """Return the price of all bits one by one, or of the whole, whichever is less."""
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


def _bits(event: BinaryRandomizedResponse) -> Bits:
    return Bits(epsilon=event.epsilon, coordinates=event.coordinates, whole=event.whole)


def _price_of_coordinates(event: PureCoordinates, kind: Kind) -> Fraction:
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
        adversaries=("server", "downlink"),  # the server learns no more
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
        summed=_bits,  # of bits a sum shows what a shuffler of single bits does
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
    SubsetResponse: Accountant(
        price=lambda event, kind: price_of_pure(event.subset.epsilon, kind),
        loss=_loss_of_category,
        shuffled=lambda event: event.subset,
        by_mechanism=True,
    ),
    # Noise has no pure guarantee; and what a deployment draws is the discrete Gaussian, for which
    # mu-GDP is not proven.
    GaussianReport: Accountant(
        price=lambda event, kind: Fraction(event.rho) if kind == "zcdp" else None,
        loss=lambda event: Normal(mu=lambda shares: event.mu),
        by_mechanism=True,
    ),
    GaussianShare: Accountant(  # by itself: a ledger does not know what it was summed with
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
    InClear: Accountant(loss=lambda event: Clear(what=event.what), by_mechanism=True),
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
"""A row for each class of events. What a user's own code adds is taken like any other."""


# What is asked of it


def accountant(event: Event) -> Accountant[Any]:
    """Return what is known of the class of ``event``.

    Raises:
        UnknownEvent: nothing is.
    """
    found = ACCOUNTANTS.get(type(event))
    if found is None:
        raise UnknownEvent(f"event {type(event).__name__}: no accountant knows it")
    return found


@lru_cache(maxsize=1024)
def loss_of(event: Event) -> Loss | None:
    """Return the loss of ``event``; None where it is by side, by content, or nothing.

    Raises:
        UnknownEvent: the event is unknown.
        ConfigError: it is out of the range for which its loss is known.
    """
    loss = accountant(event).loss
    return None if loss is None else loss(event)


def content_of(event: Event) -> Content | None:
    """Return what ``event`` holds, where it is another one more or less often."""
    content = accountant(event).content
    return None if content is None else content(event)


def sides_of(event: Event) -> Mapping[Side, Event]:
    """Return what ``event`` is by side, where it states that; else nothing."""
    sides = accountant(event).sides
    return {} if sides is None else sides(event)


def on_side(event: Event, side: Side) -> Event:
    """Return what ``event`` is where neighbours differ in ``side``.

    What is stated of a larger side holds for a smaller one, of which nothing else may be stated.
    """
    stated = sides_of(event)
    if not stated:
        return event
    return next(stated[each] for each in SIDES[SIDES.index(side) :] if each in stated)


def releases_nothing(event: Event) -> bool:
    """Return whether ``event`` is computed from no data."""
    return accountant(event).nothing is not None


def sent_of_nothing(event: Event) -> str | None:
    """Return what is sent that is computed from no data; None for an event that releases some."""
    nothing = accountant(event).nothing
    return None if nothing is None else nothing(event)


def coordinate_of(event: Event) -> Event | None:
    """Return the costliest coordinate of ``event`` as an event; None if coordinates have none."""
    coordinate = accountant(event).coordinate
    return None if coordinate is None else coordinate(event)


def shuffled_loss(event: Event) -> Bits | Subset | None:
    """Return what a shuffler shows of ``event``; None if it protects nothing."""
    shuffled = accountant(event).shuffled
    return None if shuffled is None else shuffled(event)


def summed_loss(event: Event) -> Bits | Normal | Sampled | None:
    """Return what a sum of reports shows of ``event``; None if it protects nothing."""
    summed = accountant(event).summed
    return None if summed is None else summed(event)


def unfolded(history: Counter[Event]) -> Counter[Event]:
    """Return ``history`` with the contents of its events in their place.

    What was drawn once counts once, however often it was sent. Composition covers releases that are
    made at once as well as those that follow each other.
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


def drawn_once(event: Event) -> dict[tuple[Side, str], Event]:
    """Return the parts of ``event`` that are drawn once, by side and by what is drawn."""
    seen = [(side, on_side(event, side)) for side in SIDES]
    contents = [(side, each, content_of(each)) for side, each in seen]
    return {
        (side, content.identity): each
        for side, each, content in contents
        if content is not None and content.identity is not None
    }


def is_idealised(event: Event) -> bool:
    """Return whether what is proven for ``event`` holds for real numbers, not for floats as sent.

    So it is for an event that says so, for sums whose noise is drawn as floats, and for an event
    that holds one of these.
    """
    return any(accountant(each).real_arithmetic_only(each) for each in within(event))


def sent_in_clear(event: Event) -> list[str]:
    """Return what of ``event`` is sent unprotected, on one side or on all."""
    losses = (loss_of(each) for each in within(event))
    return [loss.what for loss in losses if isinstance(loss, Clear)]


def is_pure(event: Event) -> bool:
    """Return whether a report of ``event`` has a guarantee at delta 0, for its client."""
    return isinstance(loss_of(on_side(event, "client")), Pure)


def is_alike(event: Event) -> bool:
    """Return whether ``event`` says that all coordinates are independent and of one law."""
    loss = loss_of(on_side(event, "client"))
    return isinstance(loss, Pure) and loss.free and len(loss.singles) == 1


def protects_in_training(event: Event) -> bool:
    """Return whether what is protected, if anything is, may be so while a client trains.

    Where it is not, whatever the client's training has given is randomised after it.
    """
    return any(
        sides_of(each) or drawn_once(each) or isinstance(loss_of(each), Clear | Sampled)
        for each in within(event)
    )


# Records

_DEEPEST = 4


def from_record(record: object) -> Event:
    """Return the event of a record, as ``events.to_record`` makes it, which may be any JSON value.

    Raises:
        ConfigError: the record is of no event that this version knows, or does not fit it; or two
            classes of events are kept under one name, of which one would be read as the other.
    """
    return _read(record, _DEEPEST)


def _read(record: object, levels: int) -> Event:
    name = record.get("event") if isinstance(record, dict) else None
    known = {cls.wire: cls for cls in ACCOUNTANTS}
    if len(known) < len(ACCOUNTANTS):
        twice = ", ".join(name for name, n in Counter(c.wire for c in ACCOUNTANTS).items() if n > 1)
        raise ConfigError(f"{twice}: two classes of events are kept so; give yours another wire")
    if not isinstance(record, dict) or not isinstance(name, str) or name not in known:
        raise ConfigError(
            f"event = {name!a:.60}: this version knows {', '.join(known)} and no other"
        )
    if levels == 0:
        raise ConfigError(f"event {name}: it is nested too deep")
    values = {
        n: _read(v, levels - 1) if isinstance(v, dict) else v
        for n, v in record.items()
        if n != "event"
    }
    expected = {each.name for each in fields(known[name])}
    if not set(values) <= expected:
        raise ConfigError(f"event {name}: its record does not fit it; it has {', '.join(expected)}")
    try:
        return known[name](**values)
    except TypeError as error:
        raise ConfigError(f"event {name}: its record does not fit it: {error}") from error
