"""From what a client released to what that guarantees: the accountants of a statement's lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from fedldp.accounting.budget import cost
from fedldp.accounting.check import SMALLEST_DELTA
from fedldp.accounting.compose import pure_epsilon
from fedldp.accounting.events import (
    DrawnOnce,
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    PureCoordinates,
    PureReport,
    TwoValuedBits,
)
from fedldp.accounting.gaussian import (
    compose_mu,
    compose_rho,
    gaussian_epsilon,
    shares_mu,
    zcdp_epsilon,
)
from fedldp.accounting.pure_reports import (
    composed,
    is_free,
    one_by_one,
    whole_epsilon,
    whole_reports,
)
from fedldp.accounting.shuffle import LARGEST_EPSILON as LARGEST_SHUFFLED
from fedldp.accounting.shuffle import (
    clones_epsilon,
    shuffled_composed_lower,
    shuffled_composed_upper,
)
from fedldp.accounting.shuffle_one import (
    LARGEST_SEARCHED,
    shuffled_one_epsilon,
    shuffled_one_lower,
)
from fedldp.errors import ConfigError

Unit = Literal["weight", "record", "client-round", "client-run"]
Adversary = Literal["server", "shuffled-server", "summing-server", "downlink"]

Coordinates = TwoValuedBits | PureCoordinates
"""Reports of independent coordinates."""

Noisy = GaussianReport | GaussianShare
"""Vectors with discrete Gaussian noise."""

History = Counter[Event]
"""How often a client released which event."""

IDEALISED = "idealised real arithmetic: simulation only"
HOUSE = "fedldp"
"""Who states what a line rests on, where no code of the user's own does."""

DISCRETE = "deployment: discrete Gaussian noise on a public grid"
LEAST_FOR_MU = 1e-100
"""What a ``mu`` of discrete noise may lack in epsilon; far below one float's step of any delta."""

LOWER = "; lower: "
"""What comes before the method of a lower bound, in a line's ``method``."""

_CLONES = "clone pair composed (Feldman, McMillan, Talwar 2021)"

TAKES_PART = "the client takes part in at most"
ONCE = "what is drawn once is kept, and never drawn again, whatever a server asks for"
FRESH = (
    "every report is randomised on the client, with randomness that no one else knows, and is "
    "sent whatever the data: where training gives NaN or infinity, something public takes its place"
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
            None where none is known, as of a user's own code.
        assumptions: what the guarantee rests on.
        method: how it was computed, with the source.
        stated_by: whose word it is what a client releases: "fedldp", or the address of the user's
            own code, "module:Class" (several are joined by ", "), of which nothing here proves it.
            A line without a guarantee rests on nobody's word, so it is always "fedldp".
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
    stated_by: str = HOUSE


def local_guarantees(
    history: History, unit: Unit, delta: float, *, attained: bool = True
) -> list[Guarantee]:
    """Return what holds against a server that sees every report of ``history`` and its sender.

    Args:
        history: how often a client released what.
        unit: that is protected.
        delta: of the approximate lines; at 0 there are none.
        attained: whether lower bounds are wanted that take as long as the upper ones.

    Raises:
        ConfigError: the history holds an event that no accountant here knows.
    """
    once = Counter(event.drawn for event in history if isinstance(event, DrawnOnce))
    again = Counter({e: n for e, n in history.items() if not isinstance(e, DrawnOnce)})
    lines = _lines(once + again, unit, delta, attained)
    if once:  # what is sent follows from what was drawn, and may tell less of it
        lines = [replace(line, lower=None) for line in lines]
    assumptions = [ONCE] if once else []
    if unit in ("record", "client-run") and again:
        assumptions += _taking_part(history.total())
    return [
        line if line.kind == "none" else replace(line, assumptions=line.assumptions + assumptions)
        for line in lines
    ]


def _lines(released: History, unit: Unit, delta: float, attained: bool) -> list[Guarantee]:
    history = one_by_one(released)
    for event in history:
        if not isinstance(event, Coordinates | PureReport | Noisy | InClear):
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
        return list(_pure_reports(history, unit, delta, attained))
    if all(isinstance(event, Noisy) for event in history):
        return [_gaussian_reports(history, unit, delta)]
    return [_zcdp(history, unit, delta)]


def _pure_reports(
    history: History, unit: Unit, delta: float, attained: bool
) -> Iterator[Guarantee]:
    assumptions = [FRESH, IDEALISED] if _is_idealised(history) else [FRESH]
    pure = pure_epsilon(whole_reports(history))
    exact = all(map(is_free, history))
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
        else "sum over all reports of the pure epsilon of each as a whole",
    )
    if delta == 0:
        return
    epsilon, lower, how = composed(history, delta, attained=attained)
    yield Guarantee(
        unit=unit,
        adversary="server",
        kind="approximate",
        epsilon=epsilon,
        delta=delta,
        lower=None if lower is None else _just_below(lower),
        assumptions=assumptions,
        method=f"optimal composition (Kairouz, Oh, Viswanath 2015), {how}",
    )


def _is_idealised(history: History) -> bool:
    return any(isinstance(event, PureReport) and event.idealised for event in history)


def _gaussian_reports(history: History, unit: Unit, delta: float) -> Guarantee:
    """Return what holds of discrete Gaussian noise, which is nearly the continuous one."""
    by_zcdp = _zcdp(history, unit, delta)
    if delta < LEAST_FOR_MU:
        return by_zcdp
    epsilon = gaussian_sums_epsilon(history, 1, delta)
    if by_zcdp.epsilon is not None and by_zcdp.epsilon < epsilon:
        return by_zcdp
    method = "Gaussian mechanism, closed form (Balle, Wang 2018), but for 1e-100"
    return replace(by_zcdp, epsilon=epsilon, method=method)


def gaussian_sums_epsilon(history: History, shares: int, delta: float) -> float:
    """Return the epsilon of ``Noisy`` events, where ``shares`` are in the sum of every round.

    Args:
        history: how often a client released which of them.
        shares: honest ones in each sum; 1 for shares that are seen by themselves.
        delta: from 1e-100 to below 1.
    """
    mus: list[float] = []
    for event, times in history.items():
        if isinstance(event, GaussianShare):
            mu = shares_mu(event.squared_distance, event.variance, shares)
        else:
            assert isinstance(event, GaussianReport)
            mu = event.mu
        mus += [mu] * times
    epsilon = gaussian_epsilon(compose_mu(mus), math.nextafter(delta, 0)) + LEAST_FOR_MU
    return math.nextafter(epsilon, math.inf)


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
    event: TwoValuedBits, rounds: int, *, anonymity_set: int, chunk: int, delta: float
) -> tuple[Guarantee, ...]:
    """Return what holds against a server behind a shuffler.

    Args:
        event: what a client releases in each round.
        rounds: in how many rounds, at most.
        anonymity_set: how many honest participants of every such round release the same event.
        chunk: coordinates in one shuffled message.
        delta: positive.
    """
    lines = [_shuffled_weight(event, anonymity_set, delta)] if chunk == 1 else []
    units: tuple[tuple[Unit, int], ...] = (("client-round", 1), ("client-run", rounds))
    for unit, times in units:
        upper, lower, method = _shuffled_messages(event, times, anonymity_set, chunk, delta)
        local = _local_approximate(Counter({event: times}), unit, delta)
        if event.whole is not None and event.whole <= LARGEST_SHUFFLED:
            whole = clones_epsilon(event.whole, anonymity_set, delta, times)
            if whole < upper:
                upper, method = whole, f"{times:,} whole reports: {_CLONES}, for any randomiser"
        if local < upper:
            method = "what holds against a server without the shuffler, which proves no more"
        lines.append(
            Guarantee(
                unit=unit,
                adversary="shuffled-server",
                kind="approximate",
                epsilon=min(upper, local),
                delta=delta,
                lower=None if lower is None else min(lower, upper, _just_below(local)),
                assumptions=_honest(anonymity_set)
                + (_taking_part(times) if unit == "client-run" else []),
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


def _honest(anonymity_set: int) -> list[str]:
    return [
        FRESH,
        "a shuffler that the server does not control puts out only the messages",
        f"{anonymity_set} honest participants in every round, each sending every position once",
        "when and whether messages are sent does not depend on the data",
    ]


def _shuffled_weight(event: TwoValuedBits, anonymity_set: int, delta: float) -> Guarantee:
    hides = event.epsilon <= LARGEST_SHUFFLED  # beyond it only the local guarantee is computed
    one = shuffled_one_epsilon(event.epsilon, anonymity_set, delta) if hides else event.epsilon
    lower = None
    if hides and event.whole is None and anonymity_set <= LARGEST_SEARCHED:
        lower = shuffled_one_lower(event.epsilon, anonymity_set, max(delta, SMALLEST_DELTA))
    exact = lower is not None and _just_below(one) <= lower
    return Guarantee(
        unit="weight",
        adversary="shuffled-server",
        kind="approximate",
        epsilon=min(one, event.epsilon, whole_epsilon(event)),
        delta=delta,
        lower=None if lower is None else _just_below(lower),
        assumptions=_honest(anonymity_set),
        method="one coordinate of one round: "
        + ("exact, worst case over the other clients" if exact else "an upper bound"),
    )


def _shuffled_messages(
    event: TwoValuedBits, times: int, anonymity_set: int, chunk: int, delta: float
) -> tuple[float, float | None, str]:
    """Return upper bound, lower bound and method for reports that are shuffled chunk by chunk."""
    messages = -(-event.coordinates // chunk) * times
    each = pure_epsilon({event.epsilon: chunk})
    upper, lower = math.inf, None
    if each <= LARGEST_SHUFFLED:
        upper = shuffled_composed_upper(each, anonymity_set, messages, delta)
    if event.epsilon <= LARGEST_SHUFFLED and event.whole is None:
        bits = event.coordinates * times  # from chunks, what is learned of the bits alone follows
        lower = shuffled_composed_lower(event.epsilon, anonymity_set, bits, delta)
    of = "" if chunk == 1 else f" of {chunk:,} coordinates"
    below = "" if lower is None else f"{LOWER}exact pair of single coordinates composed"
    return upper, lower, f"{messages:,} messages{of}: {_CLONES}{below}"


def _local_approximate(history: History, unit: Unit, delta: float) -> float:
    lines = local_guarantees(history, unit, delta)
    return min(line.epsilon for line in lines if line.epsilon is not None)
