"""What one client releases in one report, as data that accountants interpret.

An event says what a mechanism did, never how safe that is. An accountant that does not know an
event raises; it never counts it as nothing. Neighbours differ in one client's whole input.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from fedldp.accounting.check import check_count, check_not_negative, check_positive
from fedldp.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, float | int):
                check_not_negative(name, value)


@dataclass(frozen=True, kw_only=True)
class TwoValuedBits(Event):
    """Independent bits, one for each coordinate; each can be at either of its two extremes.

    Attributes:
        epsilon: pure, of one coordinate.
        coordinates: how many, d.
        whole: a pure bound for the whole report where its bound on the vector gives one, smaller
            than ``coordinates * epsilon``; None where every coordinate may be at any extreme.
        group: the public label that a report travels under, where clients have budgets of their
            own: a shuffler keeps groups apart.
    """

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

    Raises:
        ConfigError: ``groups`` is empty or malformed.
    """

    groups: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        try:
            groups = tuple((float(epsilon), count) for epsilon, count in self.groups)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"groups = {self.groups}: give pairs of an epsilon and a count"
            ) from error
        for epsilon, count in groups:
            check_positive("epsilon", epsilon)
            check_count("count", count, least=1)
        if not groups or len(dict(groups)) < len(groups):
            raise ConfigError(f"groups = {groups}: give at least one, and every epsilon once")
        object.__setattr__(self, "groups", groups)  # a record holds lists


@dataclass(frozen=True, kw_only=True)
class PureReport(Event):
    """A report whose whole content is pure epsilon-private.

    Attributes:
        epsilon: of the whole report.
        idealised: whether that holds for real numbers only, not for the floats that are sent.
    """

    epsilon: float
    idealised: bool = False


@dataclass(frozen=True, kw_only=True)
class GaussianReport(Event):
    """A vector of bounded L2 norm plus Gaussian noise of equal deviation in every coordinate.

    Attributes:
        mu: sensitivity over deviation of a continuous Gaussian that is no more private than the
            discrete one of deployment, but for 1e-100: see ``mechanisms.gaussian``.
        rho: zCDP of the discrete Gaussian.
    """

    mu: float
    rho: float


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(Event):
    """Sums of clipped gradients over secret Poisson samples of a client's examples, plus noise.

    Its cost is known for neighbours that differ in one example: it goes into a ``PerRecord``.

    Attributes:
        noise_multiplier: deviation of the Gaussian noise over the clip of one example's gradient.
        sampling_rate: the probability with which a step takes an example.
        steps: how many sums.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int


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

    noise_multiplier: float
    sample_size: int
    population: int


@dataclass(frozen=True, kw_only=True)
class InClear(Event):
    """A value computed from private data that is sent as it is: no guarantee, epsilon infinite.

    Attributes:
        what: for the reader of a statement, such as "weights" or "number of examples".
    """

    what: str


@dataclass(frozen=True, kw_only=True)
class PerRecord(Event):
    """A release that costs one record less than it costs the whole input of a client.

    Attributes:
        record: what it is where neighbours differ in one training example.
        client: what it is where they differ in the client's whole input.
    """

    record: Event
    client: Event


@dataclass(frozen=True, kw_only=True)
class DrawnOnce(Event):
    """A release that is randomised once and kept: every later report follows from it alone.

    Attributes:
        drawn: what was released; it costs once, however many reports are computed from it. Equal
            events of one client in one run are one drawing: what is drawn several times, or in
            several rounds, is one event that counts all of it.
    """

    drawn: Event


EVENTS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        TwoValuedBits,
        PureCoordinates,
        PureReport,
        GaussianReport,
        SampledGaussian,
        SampledClientsGaussian,
        InClear,
        PerRecord,
        DrawnOnce,
    )
}


def to_record(event: Event) -> dict[str, Any]:
    """Return ``event`` as a JSON-ready record, which ``from_record`` reads back."""
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    return {
        "event": type(event).__name__,
        **{n: to_record(v) if isinstance(v, Event) else v for n, v in values.items()},
    }


def from_record(record: dict[str, Any]) -> Event:
    """Return the event of a record.

    Raises:
        ConfigError: the record names no event that this version knows.
    """
    values: dict[str, Any] = {
        n: from_record(v) if isinstance(v, dict) else v for n, v in record.items()
    }
    name = values.pop("event", None)
    if name not in EVENTS:
        raise ConfigError(f"event = {name}: this version knows {', '.join(EVENTS)} and no other")
    try:
        return EVENTS[name](**values)
    except TypeError as error:
        raise ConfigError(f"event {name}: its record does not fit it: {error}") from error
