"""Computes the lines of a statement: what a client's releases guarantee.

``accountants`` gives the loss of an event. The code here computes epsilons only from losses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Literal, Self, cast, get_args

from fedldp.accounting.accountants import (
    Clear,
    CountedBits,
    Normal,
    Profile,
    Pure,
    Renyi,
    Sampled,
    Side,
    content_of,
    coordinate_of,
    loss_of,
    on_side,
    real_arithmetic_only,
    shuffled_loss,
    summed_loss,
    unfolded,
)
from fedldp.accounting.events import Event, GaussianReport, SampledGaussian
from fedldp.accounting.numerics import blanket, compose, gaussian, shuffle, shuffle_one, subsampled
from fedldp.accounting.numerics.losses import Losses, profile_losses, two_valued_losses
from fedldp.accounting.numerics.pld_fft import compose_upper
from fedldp.accounting.prices import cost
from fedldp.core import kinds
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Assumption, Method, NoGuarantee, in_order
from fedldp.core.numbers import SMALLEST_DELTA, round_up, strict_optional, strict_share, strict_text

Unit = Literal["weight", "record", "person", "client-round", "client-run"]
Adversary = Literal["server", "shuffled-server", "summing-server", "downlink"]
Neighbours = Literal["replace-client", "replace-person", "replace-record"]
Kind = Literal["pure", "approximate", "none"]


@dataclass(frozen=True)
class EpsilonMeaning:
    """What a system's setting ``epsilon`` covers: whose budget it is, and against which adversary.

    ``standing`` says whether the guarantee is proven here, or only claimed by the source.

    Raises:
        ConfigError: there is no such unit or adversary.
    """

    unit: Unit
    standing: Literal["proven", "claimed"]
    adversary: Adversary = "server"

    def __post_init__(self) -> None:
        for name, type in (("unit", Unit), ("adversary", Adversary)):
            if (given := getattr(self, name)) not in (known := get_args(type)):
                raise ConfigError(
                    f"meaning of epsilon: {name} = {given!r}: choose {', '.join(known)}"
                )

    def __str__(self) -> str:
        return f"per {self.unit} against a {self.adversary} ({self.standing})"


SIDE_OF: dict[Unit, Side] = {
    "weight": "client",
    "record": "record",
    "person": "person",
    "client-round": "client",
    "client-run": "client",
}
"""In what the neighbours of each unit differ."""

NEIGHBOURS: dict[Side, Neighbours] = {
    "record": "replace-record",
    "person": "replace-person",
    "client": "replace-client",
}
"""How a line names its neighbours, for each side in which they may differ."""

History = Counter[Event]
"""How often a client released each event."""

HOUSE = "fedldp"
"""The ``stated_by`` of a line that does not rely on the user's own code."""

LEAST_FOR_MU = 1e-100
"""The amount that discrete noise adds to an epsilon computed from ``mu``. For a delta below this,
no line is computed from ``mu``."""


def unit_and_adversary(text: str) -> tuple[Unit, Adversary]:
    """Parse "UNIT:ADVERSARY", which names the unit and the adversary of a guarantee.

    Raises:
        ConfigError: there is no such unit or adversary.
    """
    unit, _, adversary = (part.strip() for part in text.partition(":"))
    for what, given, known in (
        ("unit", unit, get_args(Unit)),
        ("adversary", adversary, get_args(Adversary)),
    ):
        if given not in known:
            raise ConfigError(
                f"guarantee {text}: write UNIT:ADVERSARY, such as client-run:server; the {what} is "
                f"one of {', '.join(known)}"
            )
    return cast(Unit, unit), cast(Adversary, adversary)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """One line of a statement.

    Attributes:
        unit: what is protected.
        adversary: the adversary against whom it is protected.
        epsilon: a proven upper bound; None if there is none.
        delta: 0 for a pure guarantee, and if nothing is proven.
        lower: a proven lower bound on the true epsilon; equal to ``epsilon`` if ``epsilon`` is
            exact. None if no lower bound is known, as for releases that a user's own code states.
        method: how ``epsilon`` was computed; None if nothing is proven.
        reason: why nothing is proven; None if something is.
        assumptions: what the guarantee relies on.
        stated_by: who states what a client releases: "fedldp", or the address of the user's own
            code, "module:Class" (several are joined by ", "). Nothing here proves that the user's
            code is right. A line without a guarantee does not rely on anybody's statement, so it
            always says "fedldp".
    """

    unit: Unit
    adversary: Adversary
    epsilon: float | None
    delta: float
    lower: float | None = None
    method: Method | None = None
    reason: NoGuarantee | None = None
    assumptions: frozenset[Assumption] = frozenset()
    stated_by: str = HOUSE

    def __post_init__(self) -> None:
        proves = self.epsilon is not None
        if (self.method is not None, self.reason is not None) != (proves, not proves):
            raise ConfigError("a guarantee has a method, and a line that proves nothing a reason")
        if self.lower is not None and self.lower > self.size:
            raise ConfigError(
                f"lower = {self.lower!r}: a lower bound is at most epsilon = {self.epsilon!r}"
            )

    @property
    def size(self) -> float:
        """The epsilon; infinite if nothing is proven."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def neighbours(self) -> Neighbours:
        """The change in the input that the guarantee covers."""
        return NEIGHBOURS[SIDE_OF[self.unit]]

    @property
    def kind(self) -> Kind:
        """Either "pure" (delta 0), "approximate", or "none" (nothing can be proven)."""
        if self.epsilon is None:
            return "none"
        return "approximate" if self.delta else "pure"

    @property
    def is_idealised(self) -> bool:
        """Whether the line holds only for ideal real numbers, not for those that are sent."""
        return kinds.IDEALISED in self.assumptions

    def assuming(self, *more: Assumption) -> Self:
        """Return the line with more assumptions; a line that proves nothing stays as it is."""
        if self.kind == "none":
            return self
        return replace(self, assumptions=self.assumptions | set(more))

    def to_json(self) -> dict[str, Any]:
        """Return the line as JSON holds it, without any words."""
        found = {name: getattr(self, name) for name in _READ}
        for name in ("method", "reason"):
            found[name] = None if found[name] is None else found[name].to_json()
        found["assumptions"] = [each.to_json() for each in in_order(self.assumptions)]
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the line that JSON holds; other keys, such as "text", are not read.

        Raises:
            ConfigError: it is no such line, or its kind or neighbours are those of another.
        """
        read = {name: check(name, found[name]) for name, check in _READ.items()}
        line = cls(**{each.name: read[each.name] for each in fields(cls)})
        for name in ("neighbours", "kind"):
            if read[name] != getattr(line, name):
                raise ConfigError(
                    f"{name} = {read[name]}: it is {getattr(line, name)}, as unit = {line.unit}, "
                    f"epsilon = {line.epsilon} and delta = {line.delta}"
                )
        return line


def _one_of(known: Any) -> Callable[[str, Any], Any]:
    def read(name: str, value: Any) -> Any:
        if value not in get_args(known):
            raise ConfigError(f"{name} = {value!a:.60}: this is none of {get_args(known)}")
        return value

    return read


def strict_list(name: str, value: Any) -> list[Any]:
    """Return ``value``; raise ConfigError unless it is a list: an empty object is not no facts."""
    if type(value) is not list:
        raise ConfigError(f"{name}: this is no list")
    return value


_READ: dict[str, Callable[[str, Any], Any]] = {
    "unit": _one_of(Unit),
    "adversary": _one_of(Adversary),
    "neighbours": _one_of(Neighbours),
    "kind": _one_of(Kind),
    "epsilon": strict_optional,
    "delta": strict_share,
    "lower": strict_optional,
    "method": lambda _, value: None if value is None else Method.from_json(value),
    "reason": lambda _, value: None if value is None else NoGuarantee.from_json(value),
    "assumptions": lambda name, value: frozenset(
        map(Assumption.from_json, strict_list(name, value))
    ),
    "stated_by": strict_text,
}
"""How each value of a line is read from JSON."""


def guarantees_of(
    history: History,
    unit: Unit,
    delta: float,
    adversary: Adversary = "server",
    *,
    attained: bool = True,
    copies: int = 1,
    shift: int = 1,
) -> list[Guarantee]:
    """Return what holds against those who see every report of ``history`` and its sender.

    Args:
        history: how often a client released each event.
        unit: the unit that is protected.
        delta: the delta of the approximate lines; at 0 there are none.
        adversary: who sees the sums over secret samples; see ``sampled_guarantee``. The lines for
            all other releases are against the server, who sees the most.
        attained: whether to compute lower bounds, which takes as long as computing upper bounds.
        copies: how many clients with such a history change at once. Each has its own randomness,
            including for what is drawn once.
        shift: each input may move this many times as far as its event says. A guarantee of epsilon,
            rho or mu then becomes epsilon shift, rho shift^2 or mu shift.

    Raises:
        ConfigError: the history holds an event that no accountant here knows.

    Source: for ``shift``, group privacy of each notion separately. For zCDP: Bun, Steinke 2016,
    Proposition 1.9. A Gaussian whose inputs are ``shift`` times as far apart has ``shift`` times
    the mu.
    """
    if any(isinstance(loss_of(event), Sampled) for event in history):
        return [sampled_guarantee(history, unit, adversary, delta, copies=copies, shift=shift)]
    once = Counter({event: n for event, n in history.items() if _is_kept(event)})
    again = history - once
    drawn = unfolded(once) + unfolded(again)
    released = Counter({event: copies * n for event, n in drawn.items()})
    lines = _lines(released, unit, delta, attained, shift)
    if once:  # reports are computed from the draws, and may reveal less than the draws
        lines = [replace(line, lower=None) for line in lines]
    assumptions = [kinds.ONCE] if once else []
    if unit in ("record", "person", "client-run") and again:
        assumptions.append(kinds.TAKES_PART(rounds=history.total()))
    return [line.assuming(*assumptions) for line in lines]


def _is_kept(event: Event) -> bool:
    content = content_of(event)
    return content is not None and content.identity is not None


def _lines(
    history: History, unit: Unit, delta: float, attained: bool, shift: int
) -> list[Guarantee]:
    losses = [(loss_of(event), times) for event, times in history.items()]
    for event, (loss, _) in zip(history, losses, strict=True):
        if loss is None or isinstance(loss, Sampled):
            raise ConfigError(f"event {type(event).__name__}: no accountant knows it")
    clear = {loss.what for loss, _ in losses if isinstance(loss, Clear)}
    if clear:
        what = dict.fromkeys(each for sent in sorted(clear, key=repr) for each in sent)
        return [_nothing_proven(unit, "server", kinds.SENT_IN_CLEAR(what=tuple(what)))]
    of = {type(loss) for loss, _ in losses}
    assumptions = {kinds.FRESH} | ({kinds.DISCRETE} if Normal in of else set())
    if any(map(real_arithmetic_only, history)):
        assumptions.add(kinds.IDEALISED)
    if of <= {Pure}:
        pure = [(_moved(loss, shift), n) for loss, n in losses if isinstance(loss, Pure)]
        bounds = {0.0: _added_up(pure)}
        if delta > 0:
            bounds[delta] = _composed(pure, delta, attained=attained)
    else:
        own = of & {Profile, Renyi}
        if delta < SMALLEST_DELTA:
            reason = kinds.RENYI_NOT_PURE if own else kinds.NOT_PURE
            return [_nothing_proven(unit, "server", reason)]
        found: Bound | None = None
        if not own:
            found = _by_noise(history, delta, shift)
        elif shift == 1:
            found = (_by_profiles if Profile in own else _by_divergences)(history, delta)
        if found is None:
            unknown = kinds.PROFILE_OF_ONE if Profile in own else kinds.RENYI_OF_ONE
            return [_nothing_proven(unit, "server", unknown)]
        bounds = {delta: found}
    return [line_of(unit, "server", at, bound, assumptions) for at, bound in bounds.items()]


Bound = tuple[float, float | None, Method]
"""An epsilon, a lower bound on the true epsilon if one is known, and how it was computed."""


def line_of(
    unit: Unit, adversary: Adversary, delta: float, bound: Bound, assumptions: Set[Assumption]
) -> Guarantee:
    """Return the line that a bound is."""
    epsilon, lower, method = bound
    return Guarantee(
        unit=unit,
        adversary=adversary,
        epsilon=epsilon,
        delta=delta,
        lower=lower,
        method=method,
        assumptions=frozenset(assumptions),
    )


def _by_noise(history: History, delta: float, shift: int) -> Bound:
    """Return the bound for reports of which some have Gaussian noise; all others are pure."""
    rho = gaussian.compose_rho(
        (_times(shift**2, cost(event, "zcdp")), times) for event, times in history.items()
    )
    epsilon, method = gaussian.zcdp_epsilon(rho, delta), kinds.ZCDP
    normal = [
        (_moved_normal(loss, shift), times)
        for event, times in history.items()
        if isinstance(loss := loss_of(event), Normal)
    ]
    if len(normal) == len(history) and delta >= LEAST_FOR_MU:
        # Discrete Gaussian noise is nearly as private as continuous noise.
        by_mu = _normal_epsilon(normal, 1, delta)
        if by_mu <= epsilon:
            epsilon, method = by_mu, kinds.GAUSSIAN
    return epsilon, None, method


def _by_divergences(history: History, delta: float) -> Bound | None:
    """Return the bound for reports of which some have a Renyi curve; None if none is known.

    At each order, divergences add up, even of adaptive releases; a release that is rho-zCDP has at
    most rho times the order.

    Source: Mironov, "Renyi Differential Privacy", CSF 2017, Proposition 1.
    """
    curves = [loss for event in history if isinstance(loss := loss_of(event), Renyi)]
    totals: list[tuple[float, float]] = []
    for order in sorted({order for loss in curves for order, _ in loss.curve}):
        total: Fraction | None = Fraction(0)
        for event, times in history.items():
            loss = loss_of(event)
            if isinstance(loss, Renyi):
                each = loss.at(order)
            else:
                rho = cost(event, "zcdp")
                each = None if math.isinf(rho) else round_up(Fraction(rho) * Fraction(order))
            total = None if each is None or total is None else total + times * Fraction(each)
        if total is not None:
            totals.append((order, round_up(total)))
    epsilon, order = gaussian.renyi_epsilon(totals, delta)
    return None if math.isinf(epsilon) else (epsilon, None, kinds.RENYI(order=order))


def _by_profiles(history: History, delta: float) -> Bound | None:
    """Return the bound for reports of which some have a privacy profile; all others are pure.

    The pairs that dominate the reports are composed, even if releases are adaptive. The bound is
    None if none is known.
    """
    parts: list[tuple[Losses, int]] = []
    for event, times in history.items():
        loss = loss_of(event)
        if isinstance(loss, Profile) and loss.points[-1][1] + loss.error < delta:
            parts.append((_dominating(loss), times))
        elif isinstance(loss, Pure) and loss.whole <= compose.LARGEST_EPSILON:
            parts.append((two_valued_losses(loss.whole, times), 1))
        else:
            return None
    epsilon = compose_upper(parts, delta)
    return None if math.isinf(epsilon) else (epsilon, None, kinds.PROFILES)


@lru_cache(maxsize=64)
def _dominating(loss: Profile) -> Losses:
    return profile_losses(loss.points, loss.error)


def _moved(loss: Pure, shift: int) -> Pure:
    """Return the loss of a release if its input may move ``shift`` times as far as in ``loss``."""
    if shift == 1:
        return loss
    whole = _times(shift, loss.whole)
    return Pure(whole=whole, singles=(((whole, 1.0), 1),))


def _moved_normal(loss: Normal, shift: int) -> Normal:
    return Normal(mu=lambda shares: _times(shift, loss.mu(shares)))


def _times(factor: int, value: float) -> float:
    """Return a product, rounded up; a factor of 1 leaves the value unchanged."""
    return value if math.isinf(value) else round_up(factor * Fraction(value))


def _added_up(losses: list[tuple[Pure, int]]) -> Bound:
    """Return the bound at a delta of 0: the sum of all epsilons."""
    pure, exact = compose.pure_epsilon(_wholes(losses)), all(loss.free for loss, _ in losses)
    method = kinds.PURE_SUM(over="coordinates" if exact else "reports")
    return pure, _just_below(pure) if exact else None, method


def _composed(losses: list[tuple[Pure, int]], delta: float, *, attained: bool) -> Bound:
    """Return the bound at a positive ``delta``.

    The epsilon composes whole reports or their coordinates, whichever gives less. Its lower bound,
    which two inputs attain, is known if every coordinate may be at any extreme and its revealing
    probability is known rather than only bounded. It is also left out if ``attained`` is False,
    because computing it takes as long as computing the epsilon.
    """
    counts: Counter[tuple[float, float]] = Counter()
    for loss, times in losses:
        for single, count in loss.singles:
            counts[single] += times * count
    singles = dict(counts)
    whole = {(epsilon, 1.0): count for epsilon, count in _wholes(losses).items()}
    epsilon = _epsilon(singles, delta)
    if whole != singles:
        epsilon = min(epsilon, _epsilon(whole, delta))
    free = all(loss.free for loss, _ in losses)
    if not attained or delta < SMALLEST_DELTA or not free:
        return epsilon, None, kinds.OPTIMAL(tight="upper")
    two_valued = all(loss.two_valued for loss, _ in losses)
    if two_valued and len(singles) == 1:
        return epsilon, _just_below(epsilon), kinds.OPTIMAL(tight="exact")
    known = all(loss.known for loss, _ in losses)
    if two_valued or not known or max(each for each, _ in singles) > compose.LARGEST_EPSILON:
        return epsilon, None, kinds.OPTIMAL(tight="upper")
    lower = min(compose.revealing_lower(singles, delta), epsilon)
    return epsilon, _just_below(lower), kinds.OPTIMAL(tight="coordinates")


def _wholes(losses: list[tuple[Pure, int]]) -> dict[float, int]:
    """Return the number of whole reports for each pure epsilon."""
    counts: Counter[float] = Counter()
    for loss, times in losses:
        counts[loss.whole] += times
    return dict(counts)


def _epsilon(counts: compose.RevealingCounts, delta: float) -> float:
    if max(epsilon for epsilon, _ in counts) <= compose.LARGEST_EPSILON:
        return compose.revealing_epsilon(counts, delta)
    merged: Counter[float] = Counter()
    for (epsilon, _), count in counts.items():
        merged[epsilon] += count
    return compose.pure_epsilon(merged)  # at such epsilons, using delta would gain almost nothing


def _normal_epsilon(losses: Iterable[tuple[Normal, int]], shares: int, delta: float) -> float:
    """Return the epsilon of noisy reports if the sum of every round holds ``shares`` of them.

    Args:
        losses: the losses of the client's reports, each with the number of releases.
        shares: the number of honest reports in each sum; 1 for reports that are seen individually.
        delta: at least 1e-100 and below 1.
    """
    mu = gaussian.compose_mu((loss.mu(shares), times) for loss, times in losses)
    epsilon = gaussian.gaussian_epsilon(mu, math.nextafter(delta, 0)) + LEAST_FOR_MU
    return math.nextafter(epsilon, math.inf)


def _nothing_proven(unit: Unit, adversary: Adversary, reason: NoGuarantee) -> Guarantee:
    return Guarantee(unit=unit, adversary=adversary, epsilon=None, delta=0.0, reason=reason)


def proven_epsilon(event: Event, unit: Unit, delta: float, rounds: int = 1) -> float | None:
    """Return the proven epsilon of ``rounds`` releases at ``delta``; None if none is proven.

    Args:
        event: the event of one report, as its mechanism states it.
        unit: the unit; "weight" means one coordinate of the report.
        delta: 0 for a pure epsilon.
        rounds: the number of reports, each computed from the client's whole input.

    Raises:
        ConfigError: no accountant knows the event.
    """
    report = on_side(event, "client")
    released = coordinate_of(report) if unit == "weight" else report
    if released is None:
        return None
    lines = guarantees_of(Counter({released: rounds}), unit, delta)
    return min((line.epsilon for line in lines if line.epsilon is not None), default=None)


# Sums over secret samples


def sampled_guarantee(
    history: History,
    unit: Unit,
    adversary: Adversary,
    delta: float,
    *,
    copies: int = 1,
    shift: int = 1,
) -> Guarantee:
    """Return what Gaussian noise on sums over secret random samples guarantees.

    Args:
        history: how often each event was released; every event must be such a sum.
        unit: "record" or "person" if a client samples these; "client-round" or "client-run" if the
            server samples clients.
        adversary: the adversary against whom the guarantee holds. If clients sample, the server
            learns no more than other adversaries.
        delta: at least 0 and below 1; there is no guarantee at 0.
        copies: see ``guarantees_of``.
        shift: how many vectors of a sum may change at once, each sampled independently. If it is
            above 1, amplification by sampling is not counted: whatever samples were drawn, the sum
            moves at most ``shift`` times as far as with one vector.

    Raises:
        ConfigError: nothing is known about this unit and adversary for such a history.
    """
    side = SIDE_OF[unit]
    releases: Counter[subsampled.SampledRelease] = Counter()
    for event, times in history.items():
        loss = loss_of(event)
        if (
            unit == "weight"
            or not isinstance(loss, Sampled)
            or side not in loss.sides
            or adversary not in loss.adversaries
        ):
            raise ConfigError(
                f"event {type(event).__name__}: no accountant knows its cost for a {unit} "
                f"against {adversary} in sampled sums; charge a PerRecord or PerPerson event, or "
                "the server's release"
            )
        releases[_moved_sample(loss.release(1), shift)] += copies * times * loss.times
    epsilon = subsampled.sampled_epsilon(releases, delta)
    if math.isinf(epsilon):
        return _nothing_proven(unit, adversary, kinds.NOT_PURE)
    sampled = kinds.SAMPLED(releases=releases.total(), of="client" if side == "client" else "part")
    assumptions = {kinds.FRESH, kinds.IDEALISED, kinds.SECRET_SAMPLE(of=side)}
    return line_of(unit, adversary, delta, (epsilon, None, sampled), assumptions)


def _moved_sample(release: subsampled.SampledRelease, shift: int) -> subsampled.SampledRelease:
    if shift == 1:
        return release
    noise = math.nextafter(release.noise_multiplier / shift, 0)
    return subsampled.SampledRelease(
        noise_multiplier=noise, sampling_rate=1.0, sample=release.sample
    )


# Behind a shuffler


@lru_cache(maxsize=256)
def shuffled_guarantees(
    event: Event,
    rounds: int,
    *,
    anonymity_set: int,
    chunk: int,
    delta: float,
    searched: Unit | None = None,
) -> tuple[Guarantee, ...]:
    """Return what holds against a server behind a shuffler.

    Args:
        event: what a client releases in each round.
        rounds: the largest number of rounds in which the client releases it.
        anonymity_set: the number of honest participants that release the same event in every such
            round.
        chunk: the number of coordinates in one shuffled message; ignored for reports of one
            category.
        delta: positive.
        searched: the only unit whose line is needed, without its lower bound; None for all lines.

    Raises:
        ConfigError: a shuffler does not protect such reports.
    """
    seen = shuffled_loss(event)
    if seen is None:
        raise ConfigError(f"event {type(event).__name__}: a shuffler does not protect it")
    if isinstance(seen, blanket.Subset):
        honest = kinds.HONEST_CATEGORIES(
            reports=anonymity_set, categories=seen.categories, closest=seen.closest
        )
        assumptions = _shuffled("reports", honest) | {kinds.FRESH_SEEDS}

        def of_reports(times: int) -> Bound:
            return _categories(seen, times, anonymity_set, delta)

        return _round_and_run("shuffled-server", rounds, delta, assumptions, of_reports, searched)
    assumptions = _shuffled("messages", kinds.HONEST_PARTICIPANTS(clients=anonymity_set))

    def of_messages(times: int) -> Bound:
        lines = guarantees_of(Counter({event: times}), "client-run", delta, attained=False)
        local, attained = min(line.size for line in lines), searched is None
        return _messages(seen, times, anonymity_set, chunk, delta, local, attained=attained)

    lines = _round_and_run("shuffled-server", rounds, delta, assumptions, of_messages, searched)
    if chunk == 1 and searched in (None, "weight"):
        of_weight = _of_weight(seen, anonymity_set, delta)
        lines = (line_of("weight", "shuffled-server", delta, of_weight, assumptions), *lines)
    return lines


def _round_and_run(
    adversary: Adversary,
    rounds: int,
    delta: float,
    assumptions: frozenset[Assumption],
    bound: Callable[[int], Bound],
    searched: Unit | None = None,
) -> tuple[Guarantee, ...]:
    """Return the lines for a client's round and its run, from the bound for a number of reports.

    The line for the run assumes the limit on participation: a client that exceeds it may be worse
    off. With ``searched``, there is only that unit's line.
    """
    of_units: dict[Unit, tuple[int, set[Assumption]]] = {
        "client-round": (1, set()),
        "client-run": (rounds, {kinds.TAKES_PART(rounds=rounds)}),
    }
    once = cache(bound)  # a run may have only one round
    return tuple(
        line_of(unit, adversary, delta, once(times), assumptions | taking_part)
        for unit, (times, taking_part) in of_units.items()
        if searched in (None, unit)
    )


def _shuffled(of: str, honest: Assumption) -> frozenset[Assumption]:
    return frozenset({kinds.FRESH, kinds.SHUFFLER(of=of), honest, kinds.SENDING_INDEPENDENT(of=of)})


def _categories(subset: blanket.Subset, times: int, anonymity_set: int, delta: float) -> Bound:
    """Return the bound for reports that are one category each and are shuffled as a whole."""
    epsilon = blanket.blanket_epsilon(subset, anonymity_set, delta, times)
    if epsilon < compose.two_valued_epsilon(subset.epsilon, times, delta):
        return epsilon, None, kinds.SHUFFLED_CATEGORIES(reports=times)
    return epsilon, None, kinds.AS_WITHOUT_SHUFFLER


def _just_below(exact: float) -> float:
    """Return a lower bound from a value that was rounded up by at most a relative 1e-9."""
    return exact * (1 - 2e-9)


def _of_weight(bits: CountedBits, anonymity_set: int, delta: float) -> Bound:
    """Return the bound for a single coordinate, which is shuffled alone."""
    # Above the largest epsilon, only the local guarantee is computed.
    hides = bits.epsilon <= shuffle.LARGEST_EPSILON
    one = (
        shuffle_one.shuffled_one_epsilon(bits.epsilon, anonymity_set, delta)
        if hides
        else bits.epsilon
    )
    lower = None
    if hides and bits.whole is None and anonymity_set <= shuffle_one.LARGEST_SEARCHED:
        lower = shuffle_one.shuffled_one_lower(
            bits.epsilon, anonymity_set, max(delta, SMALLEST_DELTA)
        )
    exact = lower is not None and _just_below(one) <= lower
    epsilon = min(one, bits.epsilon, math.inf if bits.whole is None else bits.whole)
    method = kinds.SHUFFLED_COORDINATE(tight="exact" if exact else "upper")
    return epsilon, None if lower is None else _just_below(lower), method


def _messages(
    bits: CountedBits,
    times: int,
    anonymity_set: int,
    chunk: int,
    delta: float,
    local: float,
    *,
    attained: bool,
) -> Bound:
    """Return the bound for reports that are shuffled chunk by chunk.

    ``local`` is what holds without the shuffler; ``attained``: whether to compute a lower bound.
    """
    messages = -(-bits.coordinates // chunk) * times
    each = compose.pure_epsilon({bits.epsilon: chunk})
    upper, lower = math.inf, None
    if each <= shuffle.LARGEST_EPSILON:
        upper = shuffle.clones_epsilon(each, anonymity_set, delta, messages, two_valued=True)
    if attained and bits.epsilon <= shuffle.LARGEST_EPSILON and bits.whole is None:
        singles = bits.coordinates * times  # chunks reveal at least as much as single bits
        lower = shuffle.shuffled_composed_lower(bits.epsilon, anonymity_set, singles, delta)
    below = None if lower is None else "exact-pair"
    method = kinds.SHUFFLED_MESSAGES(messages=messages, chunk=chunk, lower=below)
    if bits.whole is not None and bits.whole <= shuffle.LARGEST_EPSILON:
        whole = shuffle.clones_epsilon(bits.whole, anonymity_set, delta, times)
        if whole < upper:
            upper, method = whole, kinds.SHUFFLED_REPORTS(reports=times)
    if lower is not None:
        lower = min(lower, upper, _just_below(local))
    if local < upper:
        return local, lower, kinds.AS_WITHOUT_SHUFFLER
    return upper, lower, method


# Within a sum


def summing_guarantees(
    history: Mapping[Event, int],
    *,
    summands: int,
    untrusted: int,
    delta: float,
    shift: int = 1,
    committees: bool = False,
    searched: Unit | None = None,
) -> list[Guarantee]:
    """Return the lines of one client whose reports the server sees only within sums.

    For one-bit reports, a sum reveals the number of ones at each coordinate. An ideal shuffler of
    single bits reveals the same, so the epsilons are the same and only the assumptions differ. For
    reports with shares of noise, a sum reveals one vector with the noise of all shares. There are
    no lines if a sum adds nothing to each report's own guarantee.

    Args:
        history: how often the client released each event; events computed from no data are left
            out. If there are several, they were released in different rounds.
        summands: the number of honest clients in the sum of every round that this client took part
            in, including this client, so at least 1; each releases the same event in that round.
        untrusted: the number of clients in a round that may collude with the server or be missing;
            ``summands`` does not count them.
        delta: the delta of the approximate lines; at 0 there are none.
        shift: how many vectors of one sum change at once, for reports with shares of noise. The sum
            then moves that many times as far, and mu grows by the same factor. If these vectors are
            in different sums, the total change is smaller, because the root of a sum of squares is
            at most the sum.
        committees: whether a round has several sums, each of one committee of clients;
            ``untrusted`` then counts clients of any one committee. Given the broadcasts, what other
            committees' sums reveal is independent of the client's input.
        searched: see ``shuffled_guarantees``.

    Raises:
        ConfigError: the client releases several kinds of events, not all with Gaussian noise; or it
            releases bits and several clients change at once.
    """
    losses = [(summed_loss(event), rounds) for event, rounds in history.items()]
    if delta == 0 or not any(loss for loss, _ in losses):
        return []
    among = "committee" if committees else "round"
    rests = frozenset(
        {
            kinds.FRESH,
            kinds.FOLLOWS_SUM,
            kinds.CERTIFIED_ROSTER,
            kinds.AT_MOST_UNTRUSTED(clients=untrusted, among=among),
            kinds.HONEST_SUMMANDS(clients=summands, among=among),
            kinds.SENDING_INDEPENDENT(of="messages"),
        }
    )
    normal = [(_moved_normal(a, shift), rounds) for a, rounds in losses if isinstance(a, Normal)]
    if len(normal) == len(losses):
        return _of_shares(normal, summands, rests, delta, searched)
    if len(history) > 1:
        raise ConfigError("a sum's guarantee is known only if a client sends one kind of report")
    ((event, rounds),) = history.items()
    ((loss, _),) = losses
    if isinstance(loss, Sampled):
        return _of_sampled_shares(loss, rounds, summands, rests, delta, shift)
    if shift > 1:
        raise ConfigError("a sum of bits: nothing is known if several clients change at once")
    lines = shuffled_guarantees(
        event, rounds, anonymity_set=summands, chunk=1, delta=delta, searched=searched
    )
    return [
        replace(
            line,
            adversary="summing-server",
            assumptions=rests | set(kinds.TAKES_PART.among(line.assumptions)),
            method=kinds.OF_SUM_OF_BITS(of=line.method),
        )
        for line in lines
    ]


def _of_shares(
    losses: list[tuple[Normal, int]],
    summands: int,
    rests: frozenset[Assumption],
    delta: float,
    searched: Unit | None,
) -> list[Guarantee]:
    """Return the lines for reports that each add a share of discrete Gaussian noise to the sum.

    Args:
        losses: the losses of a client's reports, each with the number of rounds that it is released
            in; no two are of one round.
        summands: see ``summing_guarantees``.
        rests: what the lines rest on.
        delta: the delta of the lines.
        searched: see ``shuffled_guarantees``.

    There are no lines for a delta below 1e-100, where the closed form for sums is not proven.
    """
    if delta < LEAST_FOR_MU:
        return []
    rounds = sum(times for _, times in losses)
    of_round = max(_normal_epsilon([(loss, 1)], summands, delta) for loss, _ in losses)
    of_run = _normal_epsilon(losses, summands, delta)
    assumptions = rests | {kinds.DISCRETE, kinds.OWN_SHARES(shares=summands)}
    epsilons, method = {1: of_round, rounds: of_run}, kinds.SUM_OF_SHARES(shares=summands)

    def bound(times: int) -> Bound:
        return epsilons[times], None, method

    return list(_round_and_run("summing-server", rounds, delta, assumptions, bound, searched))


def _of_sampled_shares(
    loss: Sampled,
    rounds: int,
    summands: int,
    rests: frozenset[Assumption],
    delta: float,
    shift: int,
) -> list[Guarantee]:
    """Return the run's line for sampled reports that each add a share of noise to the sum."""
    if delta < LEAST_FOR_MU:
        return []
    release, steps = _moved_sample(loss.release(summands), shift), rounds * loss.times
    epsilon = subsampled.sampled_epsilon({release: steps}, delta)
    bound = epsilon, None, kinds.SAMPLED_SHARES(steps=steps, shares=summands)
    own = {kinds.IDEALISED, kinds.OWN_SHARES(shares=summands), kinds.TAKES_PART(rounds=rounds)}
    return [line_of("client-run", "summing-server", delta, bound, rests | own)]


def noisier_alone(event: Event, summands: int, shift: int) -> Event | None:
    """Return an event that, but for 1e-100, is no more private alone than ``event`` in a sum.

    Args:
        event: a report with a share of noise, perhaps of sampled sums; None is returned for others.
        summands: the number of honest clients in the sum.
        shift: see ``summing_guarantees``.
    """
    loss = summed_loss(event)
    if isinstance(loss, Normal):
        mu = _moved_normal(loss, shift).mu(summands)
        # A Gaussian has this rho, and its own epsilon is always smaller than what rho gives.
        return GaussianReport(mu=mu, rho=round_up(Fraction(mu) ** 2 / 2))
    if not isinstance(loss, Sampled):
        return None
    one = _moved_sample(loss.release(summands), shift)
    return SampledGaussian(
        noise_multiplier=one.noise_multiplier, sampling_rate=one.sampling_rate, steps=loss.times
    )
