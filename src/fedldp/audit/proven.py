"""What is proven of a mechanism, from the event that it states itself, through the accountants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fedldp.accounting.events import (
    Event,
    InClear,
    PerRecord,
    PureCoordinates,
    PureReport,
    TwoValuedBits,
)
from fedldp.accounting.guarantees import Unit, local_guarantees


def proven_epsilon(event: Event, unit: Unit, delta: float, rounds: int = 1) -> float | None:
    """Return the epsilon that is proven of ``rounds`` releases at ``delta``; None if none is.

    Args:
        event: of one report.
        unit: for "weight", of one coordinate of it.
        delta: 0 for pure.
        rounds: reports, each of the client's whole input.

    Raises:
        ConfigError: no accountant knows the event.
    """
    released = of_one_coordinate(event) if unit == "weight" else _of_client(event)
    if released is None:
        return None
    lines = local_guarantees(Counter({released: rounds}), unit, delta)
    return min((line.epsilon for line in lines if line.epsilon is not None), default=None)


def of_one_coordinate(event: Event) -> TwoValuedBits | PureCoordinates | None:
    """Return the event of the coordinate that costs most; None if coordinates have none."""
    event = _of_client(event)
    if isinstance(event, TwoValuedBits):
        return replace(event, coordinates=1, whole=None)
    if isinstance(event, PureCoordinates):
        return replace(event, groups=((max(epsilon for epsilon, _ in event.groups), 1),))
    return None


def is_alike(event: Event) -> bool:
    """Return whether an event says that all coordinates are independent and of one law."""
    if isinstance(event, TwoValuedBits):
        return event.whole is None
    return isinstance(event, PureCoordinates) and len(event.groups) == 1


def is_pure(event: Event) -> bool:
    """Return whether an event has a guarantee at delta 0."""
    return isinstance(_of_client(event), TwoValuedBits | PureCoordinates | PureReport)


def is_clear(event: Event) -> bool:
    """Return whether nothing is proven of an event."""
    return isinstance(_of_client(event), InClear)


def _of_client(event: Event) -> Event:
    return event.client if isinstance(event, PerRecord) else event
