"""What releases cost together that are pure private, each as a whole or coordinate by coordinate.

A history counts how often a client released which event; here all are ``TwoValuedBits``,
``PureCoordinates`` or ``PureReport``.
"""

from __future__ import annotations

from collections import Counter

from fedldp.accounting.check import SMALLEST_DELTA
from fedldp.accounting.compose import (
    LARGEST_EPSILON,
    Telling,
    pure_epsilon,
    telling_epsilon,
    telling_lower,
)
from fedldp.accounting.events import Event, PureCoordinates, PureReport, Several, TwoValuedBits


def one_by_one(history: Counter[Event]) -> Counter[Event]:
    """Return ``history`` with ``Several`` counted as what it is several of.

    Composition covers releases that are made at once as well as those that follow each other.
    """
    counts: Counter[Event] = Counter()
    for event, times in history.items():
        if isinstance(event, Several):
            counts[event.each] += event.count * times
        else:
            counts[event] += times
    return counts


def is_free(event: Event) -> bool:
    """Return whether every coordinate may be at any extreme, whatever the others are."""
    return isinstance(event, PureCoordinates) or (
        isinstance(event, TwoValuedBits) and event.whole is None
    )


def whole_epsilon(event: Event) -> float:
    """Return the pure epsilon of a whole report."""
    match event:
        case PureReport():
            return event.epsilon
        case PureCoordinates():
            return pure_epsilon(dict(event.groups))
        case TwoValuedBits():
            each = pure_epsilon({event.epsilon: event.coordinates})
            return each if event.whole is None else min(each, event.whole)
    raise AssertionError(event)


def whole_reports(history: Counter[Event]) -> dict[float, int]:
    """Return how many whole reports there are of each pure epsilon."""
    counts: Counter[float] = Counter()
    for event, times in history.items():
        counts[whole_epsilon(event)] += times
    return dict(counts)


def composed(
    history: Counter[Event], delta: float, *, attained: bool = True
) -> tuple[float, float | None, str]:
    """Return an epsilon at a positive ``delta``, what two inputs attain of it, and how it is known.

    The first is by whole reports or by their coordinates, whichever gives less. The second, not
    rounded down (by a relative 1e-9 at most), is None where it is not known: it is where every
    coordinate may be at any extreme, and what it tells there is known and not only bounded; and
    where it is not asked for (``attained``), for it takes as long as the first.
    """
    singles = _singles(history)
    whole = {(epsilon, 1.0): count for epsilon, count in whole_reports(history).items()}
    epsilon = _epsilon(singles, delta)
    if whole != singles:
        epsilon = min(epsilon, _epsilon(whole, delta))
    if not attained or delta < SMALLEST_DELTA or not all(map(is_free, history)):
        return epsilon, None, "an upper bound"
    bits = all(isinstance(event, TwoValuedBits) for event in history)
    if bits and len(singles) == 1:
        return epsilon, epsilon, "exact for two-valued reports"
    known = (isinstance(e, TwoValuedBits) or _telling(e) < 1 for e in history)
    if bits or not all(known) or max(each for each, _ in singles) > LARGEST_EPSILON:
        return epsilon, None, "an upper bound"
    lower = min(telling_lower(singles, delta), epsilon)
    return epsilon, lower, "of what single coordinates tell"


def _singles(history: Counter[Event]) -> Telling:
    """Return how many coordinates, or else whole reports, there are of each epsilon and telling."""
    counts: Counter[tuple[float, float]] = Counter()
    for event, times in history.items():
        match event:
            case PureCoordinates():
                for epsilon, count in event.groups:
                    counts[epsilon, event.telling] += times * count
            case TwoValuedBits():
                counts[event.epsilon, 1.0] += times * event.coordinates
            case _:
                counts[whole_epsilon(event), 1.0] += times
    return dict(counts)


def _telling(event: Event) -> float:
    return event.telling if isinstance(event, PureCoordinates) else 1.0


def _epsilon(counts: Telling, delta: float) -> float:
    if max(epsilon for epsilon, _ in counts) <= LARGEST_EPSILON:
        return telling_epsilon(counts, delta)
    merged: Counter[float] = Counter()
    for (epsilon, _), count in counts.items():
        merged[epsilon] += count
    return pure_epsilon(merged)  # composing in delta would gain next to nothing
