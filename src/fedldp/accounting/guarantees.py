"""From what a client released to what that guarantees: the accountants of a statement's lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from fedldp.accounting.budget import cost
from fedldp.accounting.check import SMALLEST_DELTA
from fedldp.accounting.compose import LARGEST_EPSILON as LARGEST_COMPOSED
from fedldp.accounting.compose import pure_epsilon, two_valued_epsilon, two_valued_epsilon_mixed
from fedldp.accounting.events import (
    DrawnOnce,
    Event,
    GaussianReport,
    InClear,
    PureCoordinates,
    PureReport,
    TwoValuedBits,
)
from fedldp.accounting.gaussian import compose_mu, compose_rho, gaussian_epsilon, zcdp_epsilon
from fedldp.accounting.shuffle import LARGEST_EPSILON as LARGEST_SHUFFLED
from fedldp.accounting.shuffle import (
    clones_epsilon,
    shuffled_composed_lower,
    shuffled_composed_upper,
)
from fedldp.accounting.shuffle_one import (
    LARGEST_EXACT,
    shuffled_one_epsilon,
    shuffled_one_lower,
)
from fedldp.errors import ConfigError

Unit = Literal["weight", "record", "client-round", "client-run"]
Adversary = Literal["server", "shuffled-server", "downlink"]

Coordinates = TwoValuedBits | PureCoordinates
"""Reports of independent coordinates."""

History = Counter[Event]
"""How often a client released which event."""

IDEALISED = "idealised real arithmetic: simulation only"
DISCRETE = "deployment: discrete Gaussian noise on a public grid"
_LEAST_FOR_MU = 1e-100
"""What ``GaussianReport.mu`` may lack in epsilon; far below one float's step of any delta."""

TAKES_PART = "the client takes part in at most"
ONCE = "what is drawn once is kept, and never drawn again, whatever a server asks for"
FRESH = (
    "every report is randomised on the client with fresh randomness that no one else knows, and is "
    "sent whatever the data: a client whose training gives NaN or infinity refuses, and is seen to"
)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """One line of a statement.

    Attributes:
        unit: what is protected.
        adversary: against whom.
        neighbours: which change of the input the guarantee is about.
        kind: "pure" (delta 0), "approximate", or "none": nothing can be proven.
        epsilon: an upper bound that is proven, or None for none.
        delta: 0 for pure.
        lower: a proven lower bound on the true epsilon; equal to ``epsilon`` where that is exact.
        assumptions: what the guarantee rests on.
        method: how it was computed, with the source.
    """

    unit: Unit
    adversary: Adversary
    neighbours: Literal["replace-client", "replace-record"] = "replace-client"
    kind: Literal["pure", "approximate", "none"]
    epsilon: float | None
    delta: float
    lower: float | None = None
    assumptions: list[str] = field(default_factory=lambda: [FRESH])
    method: str


def local_guarantees(history: History, unit: Unit, delta: float) -> list[Guarantee]:
    """Return what holds against a server that sees every report of ``history`` and its sender.

    Raises:
        ConfigError: the history holds an event that no accountant here knows.
    """
    once = {event.drawn: 1 for event in history if isinstance(event, DrawnOnce)}
    again = Counter({e: n for e, n in history.items() if not isinstance(e, DrawnOnce)})
    lines = _lines(Counter(once) + again, unit, delta)
    if once:  # what is sent follows from what was drawn, and may tell less of it
        lines = [replace(line, lower=None) for line in lines]
    assumptions = [ONCE] if once else []
    if unit in ("record", "client-run") and again:
        assumptions += _taking_part(history.total())
    return [
        line if line.kind == "none" else replace(line, assumptions=line.assumptions + assumptions)
        for line in lines
    ]


def _lines(history: History, unit: Unit, delta: float) -> list[Guarantee]:
    for event in history:
        if not isinstance(event, Coordinates | PureReport | GaussianReport | InClear):
            raise ConfigError(f"event {type(event).__name__}: no accountant knows it")
    clear = [event.what for event in history if isinstance(event, InClear)]
    if clear:
        return [
            Guarantee(
                unit=unit,
                adversary="server",
                kind="none",
                epsilon=None,
                delta=0.0,
                assumptions=[],
                method=f"none: {', '.join(sorted(set(clear)))} sent in clear",
            )
        ]
    if all(isinstance(event, Coordinates | PureReport) for event in history):
        return list(_pure_reports(history, unit, delta))
    if all(isinstance(event, GaussianReport) for event in history):
        return [_gaussian_reports(history, unit, delta)]
    return [_zcdp(history, unit, delta)]


def _pure_reports(history: History, unit: Unit, delta: float) -> Iterator[Guarantee]:
    assumptions = [FRESH, IDEALISED] if _is_idealised(history) else [FRESH]
    reports = _whole_reports(history)
    bits = _independent_bits(history)
    pure = pure_epsilon(reports)
    exact = all(map(_is_free, history))
    yield Guarantee(
        unit=unit,
        adversary="server",
        kind="pure",
        epsilon=pure,
        delta=0.0,
        lower=_just_below(pure) if exact else None,
        assumptions=assumptions,
        method="sum of pure epsilons over coordinates and rounds"
        if exact
        else "sum over rounds of the pure epsilon of a whole report",
    )
    if delta == 0:
        return
    composed = _epsilon_of_pure(reports, delta)
    if bits is not None:
        composed = min(composed, _epsilon_of_pure(bits, delta))
    two_valued = all(isinstance(event, TwoValuedBits) for event in history)
    tight = exact and two_valued and bits is not None and len(bits) == 1 and delta >= SMALLEST_DELTA
    yield Guarantee(
        unit=unit,
        adversary="server",
        kind="approximate",
        epsilon=composed,
        delta=delta,
        lower=_just_below(composed) if tight else None,
        assumptions=assumptions,
        method="optimal composition (Kairouz, Oh, Viswanath 2015)"
        + (", exact for two-valued reports" if tight else ", an upper bound"),
    )


def _is_idealised(history: History) -> bool:
    return any(isinstance(event, PureReport) and event.idealised for event in history)


def _whole_reports(history: History) -> dict[float, int]:
    """Return how many whole reports there are of each pure epsilon."""
    counts: Counter[float] = Counter()
    for event, reports in history.items():
        if isinstance(event, Coordinates):
            counts[_whole(event)] += reports
        elif isinstance(event, PureReport):
            counts[event.epsilon] += reports
    return dict(counts)


def _is_free(event: Event) -> bool:
    """Return whether every coordinate may be at any extreme, whatever the others are."""
    return isinstance(event, PureCoordinates) or (
        isinstance(event, TwoValuedBits) and event.whole is None
    )


def _whole(event: Coordinates) -> float:
    if isinstance(event, PureCoordinates):
        return pure_epsilon(dict(event.groups))
    each = pure_epsilon({event.epsilon: event.coordinates})
    return each if event.whole is None else min(each, event.whole)


def _independent_bits(history: History) -> dict[float, int] | None:
    """Return how many coordinates there are of each epsilon, or None where a report has none."""
    counts: Counter[float] = Counter()
    for event, reports in history.items():
        if isinstance(event, PureCoordinates):
            for epsilon, count in event.groups:
                counts[epsilon] += reports * count
        elif isinstance(event, TwoValuedBits):
            counts[event.epsilon] += reports * event.coordinates
        else:
            return None
    return dict(counts)


def _epsilon_of_pure(counts: Mapping[float, int], delta: float) -> float:
    if max(counts) > LARGEST_COMPOSED:  # composing in delta would gain next to nothing
        return pure_epsilon(counts)
    if len(counts) == 1:
        ((epsilon, count),) = counts.items()
        return two_valued_epsilon(epsilon, count, delta)
    return two_valued_epsilon_mixed(counts, delta)


def _gaussian_reports(history: History, unit: Unit, delta: float) -> Guarantee:
    """Return what holds of discrete Gaussian noise, which is nearly the continuous one."""
    by_zcdp = _zcdp(history, unit, delta)
    if delta < _LEAST_FOR_MU:
        return by_zcdp
    mus = [e.mu for e, n in history.items() if isinstance(e, GaussianReport) for _ in range(n)]
    epsilon = gaussian_epsilon(compose_mu(mus), math.nextafter(delta, 0)) + _LEAST_FOR_MU
    epsilon = math.nextafter(epsilon, math.inf)
    if by_zcdp.epsilon is not None and by_zcdp.epsilon < epsilon:
        return by_zcdp
    method = "Gaussian mechanism, closed form (Balle, Wang 2018), but for 1e-100"
    return replace(by_zcdp, epsilon=epsilon, method=method)


def _zcdp(history: History, unit: Unit, delta: float) -> Guarantee:
    """Return what zero-concentrated privacy gives for any mixture of events."""
    if delta < SMALLEST_DELTA:
        return Guarantee(
            unit=unit,
            adversary="server",
            kind="none",
            epsilon=None,
            delta=0.0,
            method="none: Gaussian noise gives no pure guarantee",
        )
    rhos = [cost(event, "zcdp") for event, count in history.items() for _ in range(count)]
    return Guarantee(
        unit=unit,
        adversary="server",
        kind="approximate",
        epsilon=zcdp_epsilon(compose_rho(rhos), delta),
        delta=delta,
        assumptions=[FRESH, DISCRETE, *([IDEALISED] if _is_idealised(history) else [])],
        method="zero-concentrated privacy, summed over rounds (Canonne, Kamath, Steinke 2020)",
    )


@lru_cache(maxsize=256)
def shuffled_guarantees(
    event: TwoValuedBits, rounds: int, *, crowd: int, chunk: int, delta: float
) -> tuple[Guarantee, ...]:
    """Return what holds against a server behind a shuffler.

    Args:
        event: what a client releases in each round.
        rounds: in how many rounds, at most.
        crowd: honest participants of every such round that release the same event, at least 1.
        chunk: coordinates in one shuffled message.
        delta: positive.
    """
    lines = [_shuffled_weight(event, crowd, delta)] if chunk == 1 else []
    units: tuple[tuple[Unit, int], ...] = (("client-round", 1), ("client-run", rounds))
    for unit, times in units:
        if chunk == 1:
            upper, lower, method = _shuffled_bits(event, times, crowd, delta)
        else:
            upper, lower, method = _shuffled_chunks(event, times, crowd, chunk, delta)
        local = _local_approximate(Counter({event: times}), unit, delta)
        if event.whole is not None:
            upper = min(upper, _clones_composed(event.whole, crowd, times, delta))
        lines.append(
            Guarantee(
                unit=unit,
                adversary="shuffled-server",
                kind="approximate",
                epsilon=min(upper, local),
                delta=delta,
                lower=None if lower is None else min(lower, upper, _just_below(local)),
                assumptions=_honest(crowd) + (_taking_part(times) if unit == "client-run" else []),
                method=method,
            )
        )
    return tuple(lines)


def _taking_part(rounds: int) -> list[str]:
    """Return the assumption of a run's line: another draw of participants may be worse."""
    return [f"{TAKES_PART} {rounds} rounds"]


def _just_below(exact: float) -> float:
    """Return a lower bound from a value that was rounded up, by a relative 1e-9 at most."""
    return exact * (1 - 2e-9)


def _honest(crowd: int) -> list[str]:
    return [
        FRESH,
        "a shuffler that the server does not control puts out only the messages",
        f"{crowd} honest participants in every round, each sending every position once",
        "when and whether messages are sent does not depend on the data",
    ]


def _shuffled_weight(event: TwoValuedBits, crowd: int, delta: float) -> Guarantee:
    hides = event.epsilon <= LARGEST_SHUFFLED  # beyond it only the local guarantee is computed
    exact = hides and event.whole is None and crowd <= LARGEST_EXACT
    one = shuffled_one_epsilon(event.epsilon, crowd, delta) if hides else event.epsilon
    lower = shuffled_one_lower(event.epsilon, crowd, max(delta, SMALLEST_DELTA)) if exact else 0.0
    return Guarantee(
        unit="weight",
        adversary="shuffled-server",
        kind="approximate",
        epsilon=min(one, event.epsilon, _whole(event)),
        delta=delta,
        lower=_just_below(lower) if exact else None,
        assumptions=_honest(crowd),
        method="one coordinate of one round: "
        + ("exact, worst case over the other clients" if exact else "an upper bound"),
    )


def _shuffled_bits(
    event: TwoValuedBits, times: int, crowd: int, delta: float
) -> tuple[float, float | None, str]:
    """Return upper bound, lower bound and method for reports whose bits are shuffled one by one."""
    messages = event.coordinates * times
    upper, lower = math.inf, None
    if event.epsilon <= LARGEST_SHUFFLED:
        upper = shuffled_composed_upper(event.epsilon, crowd, messages, delta)
        if event.whole is None:
            lower = shuffled_composed_lower(event.epsilon, crowd, messages, delta)
    method = (
        f"{messages:,} messages: clone pair composed (Feldman, McMillan, Talwar 2021); "
        "lower: exact pair composed"
    )
    return upper, lower, method


def _shuffled_chunks(
    event: TwoValuedBits, times: int, crowd: int, chunk: int, delta: float
) -> tuple[float, None, str]:
    """Return the same for messages that link the coordinates of one chunk: the unit shuffled."""
    messages = -(-event.coordinates // chunk) * times
    method = (
        f"{messages:,} messages of {chunk:,} coordinates: numeric bound for any "
        "randomiser (Feldman, McMillan, Talwar 2021), composed"
    )
    return _clones_composed(chunk * event.epsilon, crowd, messages, delta), None, method


def _clones_composed(epsilon: float, crowd: int, count: int, delta: float) -> float:
    """Compose ``count`` shuffled messages that are each pure ``epsilon`` before the shuffler.

    Half of delta goes to the messages, half to their composition (Kairouz, Oh, Viswanath 2015,
    Theorem 3.4 for approximate mechanisms: 1 - (1 - d)^m (1 - d') <= m d + d').
    """
    if epsilon > LARGEST_SHUFFLED:
        return pure_epsilon({epsilon: count})
    if count == 1:
        return clones_epsilon(epsilon, crowd, delta)
    each = clones_epsilon(epsilon, crowd, delta / (2 * count))
    if each == 0:
        return 0.0
    return two_valued_epsilon(each, count, delta / 2)


def _local_approximate(history: History, unit: Unit, delta: float) -> float:
    lines = local_guarantees(history, unit, delta)
    return min(line.epsilon for line in lines if line.epsilon is not None)
