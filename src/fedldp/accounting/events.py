"""What one client releases in one report, as data that accountants interpret.

An event says what a mechanism did, never how safe that is. An accountant that does not know an
event raises; it never counts it as nothing. Neighbours differ in one client's whole input.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedldp.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            bad = isinstance(value, float | int) and not (math.isfinite(value) and value >= 0)
            if bad:
                raise ConfigError(f"{name} = {value}: give a finite number of at least 0")


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
        mu: sensitivity over deviation, of the idealised Gaussian.
        rho: zCDP of the discrete Gaussian that deployment draws.
    """

    mu: float
    rho: float


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
        drawn: what was released; it costs once, however many reports are computed from it.
    """

    drawn: Event


EVENTS = {
    cls.__name__: cls
    for cls in (TwoValuedBits, PureReport, GaussianReport, InClear, PerRecord, DrawnOnce)
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
