"""The privacy statement of a run, computed from its configuration or from its clients' ledgers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any, Self, get_args

from fedldp.accounting.accountants import (
    PARTS,
    Clear,
    CountedBits,
    Normal,
    Part,
    Pure,
    Sampled,
    Side,
    coordinate_of,
    loss_of,
    shuffled_loss,
    sides_of,
    summed_loss,
)
from fedldp.accounting.events import Event
from fedldp.accounting.guarantees import (
    NEIGHBOURS,
    SIDE_OF,
    Adversary,
    Guarantee,
    History,
    Unit,
    guarantees_of,
    line_of,
    shuffled_guarantees,
    strict_list,
    summing_guarantees,
)
from fedldp.accounting.numerics.blanket import Subset
from fedldp.accounting.releases import ReleaseHistory, most_of
from fedldp.core import kinds
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Assumption, Caveat, Method
from fedldp.core.numbers import strict_number, strict_share, strict_text

OF_ANYONE = {each.kind for each in (kinds.IDEALISED, kinds.DISCRETE, kinds.ONCE)} | {
    kinds.SECRET_SAMPLE.name
}
"""Assumptions that a line for all clients needs as soon as one client's line needs them."""

_EXPECTED = Decimal("0.1")
"""How many of those protected may at most be revealed on average if delta is spent in the worst
way; see ``delta_to_take``."""

SCHEMA_VERSION = 2
"""The version of a statement's keys. It increases when a key is removed or changes its meaning, not
when a key or a kind is added."""


def scores_are_private(warnings: Iterable[Caveat]) -> bool:
    """Return whether a statement warns that scores use private rows, or models trained on them."""
    return not {kinds.HELD_OUT, kinds.OWN_HEADS}.isdisjoint(warnings)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the source of a system claims; quoted as a claim, never as a guarantee.

    Attributes:
        epsilon: the claimed epsilon.
        delta: the claimed delta.
        unit: the unit that the claim covers, in the vocabulary of the statements.
        source: where the claim is made.

    Raises:
        ConfigError: a number is out of range, or there is no such unit.
    """

    epsilon: float
    delta: float
    unit: Unit
    source: str

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            known = ", ".join(get_args(Unit))
            raise ConfigError(
                f"claim: unit = {self.unit!a:.60}: there is no such unit; choose {known}"
            )
        strict_number("claim: epsilon", self.epsilon)
        strict_share("claim: delta", self.delta)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the claim that JSON holds.

        Raises:
            ConfigError: it is no claim.
        """
        return cls(
            epsilon=strict_number("epsilon", found["epsilon"]),
            delta=strict_share("delta", found["delta"]),
            unit=found["unit"],
            source=strict_text("source", found["source"]),
        )


@dataclass(frozen=True, kw_only=True)
class ShufflerInPath:
    """A shuffler between the clients and the server.

    Attributes:
        chunk: the number of coordinates in one shuffled message, if reports are shuffled coordinate
            by coordinate.
        untrusted_clients: the number of participants in a round that may collude with the server or
            drop out.
        prediction_error: the error of clients' predictions of their own times; if it is above 0,
            arrival times tell clients apart.
    """

    chunk: int
    untrusted_clients: int
    prediction_error: float


@dataclass(frozen=True, kw_only=True)
class SumInPath:
    """A secure sum between the clients and the server.

    Attributes:
        untrusted_clients: the number of participants in a round that may collude with the server or
            be missing.
        clients_in_sum: the number of clients whose reports were in the sum, for every round in
            which some client released a report. It is 0 if the round ended before the clients in
            its sum were fixed, and the smallest number if there were several sums. None before a
            run, when everyone who takes part counts as being in the sum.
        committees: whether a round may have several sums, one for each committee of clients.
            Committees are the same in all rounds; ``untrusted_clients`` then bounds any one
            committee.
        in_other_sums: how many participants are outside the smallest committee, if all of its
            members take part.
    """

    untrusted_clients: int
    clients_in_sum: Mapping[int, int] | None = None
    committees: bool = False
    in_other_sums: int = 0


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What is claimed, what is proven, and what a reader must know besides.

    Attributes:
        claim: what the system's source claims; None if it claims nothing.
        guarantees: the lines.
        warnings: what no line covers, and on whose word lines rest.
    """

    claim: Claim | None
    guarantees: tuple[Guarantee, ...]
    warnings: tuple[Caveat, ...] = ()

    def __eq__(self, other: object) -> bool:
        # A statement equals one that displays itself, which is of a subclass.
        if not isinstance(other, Statement):
            return NotImplemented
        mine = (self.claim, self.guarantees, self.warnings)
        return mine == (other.claim, other.guarantees, other.warnings)

    def warning(self, *more: Caveat) -> Self:
        """Return the statement with more warnings."""
        return replace(self, warnings=(*self.warnings, *more))

    def to_json(self) -> dict[str, Any]:
        """Return the statement as JSON holds it, without any words."""
        return {
            "schema_version": SCHEMA_VERSION,
            "claim": None if self.claim is None else asdict(self.claim),
            "guarantees": [line.to_json() for line in self.guarantees],
            "warnings": [each.to_json() for each in self.warnings],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the statement that JSON holds; its words, the keys "text", are not read.

        Raises:
            ConfigError: it is no such statement, or one of another version of the schema.
        """
        version = found.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"schema_version = {version!a:.40}: this version of fedldp reads statements of "
                f"version {SCHEMA_VERSION} only"
            )
        try:
            return cls(
                claim=None if found["claim"] is None else Claim.from_json(found["claim"]),
                guarantees=tuple(
                    map(Guarantee.from_json, strict_list("guarantees", found["guarantees"]))
                ),
                warnings=tuple(map(Caveat.from_json, strict_list("warnings", found["warnings"]))),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"this is no privacy statement: {error!r}") from error


def statement(
    releases: ReleaseHistory,
    *,
    claim: Claim | None,
    shuffler: ShufflerInPath | None,
    summed: SumInPath | None = None,
    delta: float,
    own_code: Sequence[str] = (),
    assumed: Sequence[Caveat] = (),
    persons_at_sites: int = 1,
    protected: Mapping[Side, int] | None = None,
    searched: Unit | None = None,
) -> Statement:
    """Return the statement: the source's claim, the proven guarantees, and warnings.

    Args:
        releases: what every client releases.
        claim: what the system's source claims.
        shuffler: the shuffler that reports go through, if any.
        summed: the secure sum that reports go through, if any.
        delta: the delta of the approximate lines; at 0 there are none.
        own_code: addresses of the user's own code that states what is released. Every line assumes
            that the code is right, and names it in ``stated_by``.
        assumed: warnings (``kinds.RESTS_ON``) that all lines rest on assumptions about things that
            do not state what is released: the user's own "code" or "file", or "facts" or "numbers"
            that the user declares public.
        persons_at_sites: the largest number of clients at which one person has rows; all lines for
            a person assume it. If each client adds its own noise, that many releases change. In one
            sum, or in a broadcast computed from it, the change is that many times as large as for
            one client.
        protected: how many records, people or clients the lines are to protect. These numbers must
            be public: a warning says which delta is too large for them.
        searched: the unit whose line a search reads: lower bounds of reports, lines for one round
            of a client, and lines behind a shuffler or of sums for other units, are then left out,
            because they take most of the time.
    """
    reports, parts = releases.of_side("client"), _stated_parts(releases)
    attained = searched is None

    def of_histories(histories: Iterable[History], unit: Unit) -> list[list[Guarantee]]:
        return [guarantees_of(h, unit, delta, attained=attained) for h in histories]

    runs = of_histories(reports.histories(), "client-run")
    lines = _weight_lines(reports)
    for part in parts:
        lines += _run_lines(releases, part, "server", delta, persons_at_sites, attained=attained)
    for part in PARTS:
        if claim is not None and claim.unit == part and part not in parts:
            found = _worst(runs, "client-run")
            if part == "person":
                found = _run_lines(releases, part, "server", delta, persons_at_sites)
            lines += [_of_part(line, part) for line in found]
    if searched in (None, "client-round"):
        rounds = of_histories((Counter([event]) for event in reports.events), "client-round")
        lines += _worst(rounds, "client-round")
    lines += _worst(runs, "client-run")
    lines += _downlink_lines(releases.of_server(), delta, persons_at_sites)
    warnings: list[Caveat] = [kinds.SIMULATED, *_uneven(runs)]
    if shuffler is not None and shuffler.prediction_error > 0:
        warnings.append(kinds.ARRIVAL_TIMES(prediction_error=shuffler.prediction_error))
    elif shuffler is not None and delta > 0:
        lines += _shuffled_lines(shuffler, reports, delta, searched)
    if summed is not None:
        for part in parts:
            lines += _summed_part_lines(summed, releases, part, delta, persons_at_sites)
        lines += _summed_lines(summed, reports, delta, searched=searched)
        if summed.committees:
            warnings.append(kinds.SMALLEST_COMMITTEE)
    if own_code and any(line.kind != "none" for line in lines):
        lines = [_on_the_word_of(own_code, line) for line in lines]
        warnings.append(kinds.RESTS_ON(assumption=kinds.OWN_CODE(of=tuple(own_code)), of="code"))
    lines = [line.assuming(*(each.values["assumption"] for each in assumed)) for line in lines]
    warnings += assumed
    for side, count in (protected or {}).items():
        warnings += _large_delta(side, count, lines, claim)
    return Statement(claim=claim, guarantees=tuple(lines), warnings=tuple(warnings))


def over_draws(lines: Sequence[Guarantee], worse: Sequence[Sequence[Guarantee]]) -> list[Caveat]:
    """Return a warning with the bounds that hold over all draws, if draws decide a line.

    Args:
        lines: the guarantees for the clients that were drawn.
        worse: guarantees of which one holds for each draw; see ``releases_over_draws``.
    """
    bounds = []
    for line in lines:
        bound = max((_least(line, each) for each in worse), default=0.0)
        if line.epsilon is not None and bound > line.epsilon:
            where = {"unit": line.unit, "adversary": line.adversary}
            bounds.append(kinds.BOUND(**where, epsilon=bound, delta=line.delta))
    return [kinds.AS_DRAWN_HERE(bounds=tuple(dict.fromkeys(bounds)))] if bounds else []


def _least(line: Guarantee, others: Sequence[Guarantee]) -> float:
    """Return the smallest epsilon of the lines that are about the same as ``line``."""

    def about(one: Guarantee) -> tuple[str, str, bool]:
        return one.unit, one.adversary, one.is_idealised

    fitting = [e for e in others if about(e) == about(line) and e.delta <= line.delta]
    return min((each.size for each in fitting), default=math.inf)


def delta_to_take(count: int) -> float:
    """Return the delta to take if ``count`` records, people or clients are protected.

    It is at most 1e-5 and at most 0.1/count, rounded down to one digit. A mechanism that reveals
    each of them in full with probability delta satisfies (0, delta)-DP, and reveals delta times
    ``count`` of them on average.

    >>> [delta_to_take(count) for count in (100, 20_000, 60_000, 400_000)]
    [1e-05, 5e-06, 1e-06, 2e-07]
    """
    return float(Context(prec=1, rounding=ROUND_FLOOR).divide(_EXPECTED, max(count, 10_000)))


def revealed(delta: float, count: int) -> str:
    """Return how many of ``count`` are revealed on average if delta is spent in the worst way."""
    expected = Decimal(repr(delta)) * count
    return f"{expected:,.0f}" if expected >= 10 else f"{float(expected):.2g}"


def _large_delta(
    side: Side, count: int, lines: Sequence[Guarantee], claim: Claim | None
) -> list[Caveat]:
    """Return a warning if a line or a claim has too large a delta for those whom it protects."""
    deltas = [line.delta for line in lines if line.neighbours == NEIGHBOURS[side]]
    if claim is not None and SIDE_OF[claim.unit] == side:
        deltas.append(claim.delta)
    largest = max(deltas, default=0.0)
    if Decimal(repr(largest)) * count <= _EXPECTED:
        return []
    return [kinds.LARGE_DELTA(of=side, count=count, delta=largest)]


def _on_the_word_of(own_code: Sequence[str], line: Guarantee) -> Guarantee:
    """Return a line that relies on the user's own code: no lower bound is known for it."""
    if line.method is None:
        return line
    word, by = kinds.OWN_CODE(of=tuple(own_code)), ", ".join(own_code)
    return replace(line.assuming(word), lower=None, method=_as_stated(line.method), stated_by=by)


def _as_stated(method: Method) -> Method:
    """Return a method that claims neither exactness nor a lower bound; also inside of another."""
    values = method.values
    if method.kind == kinds.ONE_COORDINATE.name and values["tight"] == "exact":
        return kinds.ONE_COORDINATE(tight="stated")
    if method.kind == kinds.SHUFFLED_MESSAGES.name:
        return kinds.SHUFFLED_MESSAGES(**values | {"lower": None})
    if "of" in values and isinstance(values["of"], Method):
        pairs = (values | {"of": _as_stated(values["of"])}).items()
        return Method(method.kind, tuple(sorted(pairs)))
    return method


WHOLE_RUN: tuple[Unit, ...] = ("record", "person", "client-run")
"""Units whose lines cover all rounds together."""


def spent_by_unit(lines: Iterable[Guarantee], planned: Iterable[Guarantee]) -> list[dict[str, Any]]:
    """Return bounds on the cost of some rounds and of the whole run, by unit and adversary.

    Args:
        lines: the guarantees in the statement of these rounds.
        planned: the guarantees in the statement of the whole run.

    Returns:
        One entry for each adversary and each unit that covers all rounds together, from the best
        line: "unit", "adversary", "epsilon" (None: nothing is proven), "delta", "of" (the epsilon
        of the whole run) and "idealised" (whether the line holds only for ideal real numbers).
    """
    ends = _best_of_run(planned)
    return [
        {
            "unit": unit,
            "adversary": adversary,
            "epsilon": line.epsilon,
            "delta": line.delta,
            "of": ends[unit, adversary].epsilon if (unit, adversary) in ends else None,
            "idealised": line.is_idealised,
        }
        for (unit, adversary), line in _best_of_run(lines).items()
    ]


def _best_of_run(lines: Iterable[Guarantee]) -> dict[tuple[str, str], Guarantee]:
    """Return the best line about a whole run, for each unit and adversary."""
    found: dict[tuple[str, str], Guarantee] = {}
    for line in lines:
        key = line.unit, line.adversary
        if line.unit in WHOLE_RUN and (key not in found or line.size < found[key].size):
            found[key] = line
    return found


def _weight_lines(releases: ReleaseHistory) -> list[Guarantee]:
    costs, free = [], True
    for event in releases.events:
        one, loss = coordinate_of(event), loss_of(event)
        if one is None or not isinstance(loss, Pure):
            return []  # other lines cover the coordinates of such reports
        each = loss_of(one)
        assert isinstance(each, Pure)
        costs.append(min(each.whole, loss.whole))
        free = free and loss.free
    if not costs:
        return []
    worst = max(costs)
    method = kinds.ONE_COORDINATE(tight="exact" if free else "whole")
    bound = worst, worst * (1 - 2e-9) if free else None, method
    return [line_of("weight", "server", 0.0, bound, {kinds.FRESH})]


def _stated_parts(releases: ReleaseHistory) -> list[Part]:
    """Return the parts of a client's input for which an event states something separate."""
    return [part for part in PARTS if any(part in sides_of(event) for event in releases.events)]


def _run_lines(
    releases: ReleaseHistory,
    unit: Unit,
    adversary: Adversary,
    delta: float,
    persons_at_sites: int,
    *,
    attained: bool = True,
) -> list[Guarantee]:
    """Return what holds over the whole run for a client, or a part of its input."""
    sites = persons_at_sites if unit == "person" else 1
    found = releases.of_side(SIDE_OF[unit]).histories()
    if sites > 1 and found:
        # A person's sites may have different histories: charge each site, for each event, the
        # largest number of releases in any history.
        found = [most_of(found)]
    by_sum = adversary == "downlink"  # the broadcast is one release for all clients
    copies, shift = (1, sites) if by_sum else (sites, 1)
    lines = _worst(
        [
            guarantees_of(
                history, unit, delta, adversary, attained=attained, copies=copies, shift=shift
            )
            for history in found
        ],
        unit,
    )
    return [_at_sites(line, unit, sites, "one-sum" if by_sum else "own-noise") for line in lines]


def _at_sites(line: Guarantee, unit: Unit, sites: int, by: str) -> Guarantee:
    """Return a line for a unit, with its assumption about a person's sites."""
    line = replace(line, unit=unit)
    if unit != "person" or line.method is None:
        return line
    line = line.assuming(kinds.AT_SITES(sites=sites))
    # The bound may not be attained: perhaps no person is at that many sites, or no person's sites
    # all release the most.
    if sites == 1:
        return line
    return replace(line, lower=None, method=kinds.SEVERAL_SITES(sites=sites, by=by, of=line.method))


def _of_part(line: Guarantee, part: Part) -> Guarantee:
    """Return what a run's guarantee for a client implies for a part of the client's input."""
    method = line.method and kinds.PART_OF_CLIENT(part=part, of=line.method)
    return replace(line, unit=part, lower=None, method=method)


def _uneven(runs: Sequence[Sequence[Guarantee]]) -> list[Caveat]:
    """Return a warning if clients of a run are protected to different degrees."""
    bests = [min(lines, key=_most_useful) for lines in runs]
    if len({line.size for line in bests}) < 2:
        return []
    best = min(bests, key=lambda line: line.size)
    assert best.epsilon is not None
    return [kinds.UNEVEN(epsilon=best.epsilon, delta=best.delta)]


def _downlink_lines(
    releases: ReleaseHistory, delta: float, persons_at_sites: int
) -> list[Guarantee]:
    """Return what holds against those who see only broadcasts, if the server adds noise."""
    if not releases.events:
        return []
    carried = {
        kinds.IDEALISED.kind,
        kinds.DISCRETE.kind,
        kinds.SECRET_SAMPLE.name,
        kinds.AT_SITES.name,
    }
    units: tuple[Unit, ...] = (*_stated_parts(releases), "client-run")
    found = []
    for line in (
        each for u in units for each in _run_lines(releases, u, "downlink", delta, persons_at_sites)
    ):
        kept = {each for each in line.assumptions if each.kind in carried} | {kinds.SERVER_TRUSTED}
        found.append(replace(line, adversary="downlink", assumptions=frozenset(kept)))
    return found


def _shuffled_lines(
    shuffler: ShufflerInPath, releases: ReleaseHistory, delta: float, searched: Unit | None
) -> list[Guarantee]:
    sizes = {event: set(crowd.values()) for event, crowd in releases.crowds().items()}
    worst: list[tuple[Event, CountedBits | Subset, int, int]] = []
    for history in releases.histories():
        shown = [shuffled_loss(event) for event in history]
        if len(shown) > 1 or shown[0] is None:
            raise ConfigError(
                "a shuffler's guarantee is known only if a client sends one kind of bits, or of "
                "categories"
            )
        ((event, rounds),) = history.items()
        crowd = max(1, min(sizes[event]) - shuffler.untrusted_clients)
        worst.append((event, shown[0], rounds, crowd))
    candidates = []
    for event, bits, rounds, crowd in worst:
        if any(_no_better(other, (bits, rounds, crowd)) for _, *other in worst):
            continue
        chunk = min(shuffler.chunk, bits.coordinates) if isinstance(bits, CountedBits) else 1
        lines = shuffled_guarantees(
            event, rounds, anonymity_set=crowd, chunk=chunk, delta=delta, searched=searched
        )
        if len(sizes[event]) > 1:  # a lower bound would need the anonymity set of every round
            lines = tuple(replace(line, lower=None) for line in lines)
        candidates.append(list(lines))
    return _worst(candidates, "client-run") if candidates else []


def _summed_part_lines(
    summed: SumInPath, releases: ReleaseHistory, part: Part, delta: float, persons_at_sites: int
) -> list[Guarantee]:
    """Return what a sum adds for a part of a client's input, if all clients add noise of one kind.

    The protection that other clients' bits give is not covered: it depends on all data of those
    clients, and a statement about a part does not say how much the bits hide about a whole client.
    """
    seen = releases.of_side(part)
    losses = [summed_loss(event) for event in seen.events]
    sampled = len(losses) == 1 and isinstance(losses[0], Sampled)
    if not sampled and not _normal_one_a_round(seen.crowds()):
        return []
    sites = persons_at_sites if part == "person" else 1
    lines = [
        _at_sites(line, part, sites, "one-sum")
        for line in _summed_lines(summed, seen, delta, shift=sites, searched="client-run")
    ]
    if sampled:
        lines = [line.assuming(kinds.SECRET_SAMPLE(of=part)) for line in lines]
    return lines


def _normal_one_a_round(crowds: Mapping[Event, Counter[int]]) -> bool:
    """Return whether every round's reports are of one kind, with Gaussian noise in all of them."""
    rounds = Counter(round for crowd in crowds.values() for round in crowd)
    normal = all(isinstance(summed_loss(event), Normal) for event in crowds)
    return bool(crowds) and normal and max(rounds.values(), default=1) == 1


def _summed_lines(
    summed: SumInPath,
    releases: ReleaseHistory,
    delta: float,
    shift: int = 1,
    searched: Unit | None = None,
) -> list[Guarantee]:
    crowds = releases.crowds()
    if any(isinstance(loss_of(event), Clear) for event in crowds):
        return []  # a sum of unprotected values protects nothing
    if not any(summed_loss(event) for event in crowds):
        return []  # the sum adds nothing to each report's own guarantee
    if len(crowds) > 1 and not _normal_one_a_round(crowds):
        raise ConfigError(
            "a sum's guarantee is known only if all clients send one kind of report in a round, "
            "and one kind in the run unless their noise is Gaussian"
        )
    crowd = Counter[int]()
    for each in crowds.values():
        crowd |= each
    seen = {round: _in_sum(summed, round, released) for round, released in crowd.items()}
    sizes = set(seen.values()) - {0}
    if not sizes:
        return []  # the server saw no sum
    lines = summing_guarantees(
        most_of(releases.histories()),
        summands=max(1, min(sizes) - summed.untrusted_clients),
        untrusted=summed.untrusted_clients,
        delta=delta,
        shift=shift,
        committees=summed.committees,
        searched=searched,
    )
    # A lower bound would need the number of summands in every round, and every report in its sum.
    if len(sizes) > 1 or seen != crowd:
        lines = [replace(line, lower=None) for line in lines]
    return [_worst_of([line]) for line in lines]


def _in_sum(summed: SumInPath, round: int, released: int) -> int:
    """Return a lower bound on the number of reports in the sum that the server saw in a round."""
    if summed.clients_in_sum is None:  # all missing clients may be in the smallest committee
        return max(1, released - summed.in_other_sums)
    if round not in summed.clients_in_sum:
        raise ConfigError(f"clients_in_sum lacks round {round}, in which clients sent reports")
    return min(released, summed.clients_in_sum[round])


def _no_better(other: Sequence[Any], one: Sequence[Any]) -> bool:
    """Return whether ``other`` costs at least as much as ``one``, and differs from it.

    Both arguments are triples (bits, rounds, crowd).
    """
    (a, a_rounds, a_crowd), (b, b_rounds, b_crowd) = other, one
    if not (isinstance(a, CountedBits) and isinstance(b, CountedBits)):
        return False
    if a.whole is not None or b.whole is not None or a.coordinates != b.coordinates:
        return False
    costs, least = (a.epsilon, a_rounds, -a_crowd), (b.epsilon, b_rounds, -b_crowd)
    return costs != least and all(x >= y for x, y in zip(costs, least, strict=True))


def _worst(candidates: list[list[Guarantee]], unit: Unit) -> list[Guarantee]:
    """Return what holds for every client: for each line, the worst-off client's version.

    If clients have different kinds of lines, only their approximate epsilons can be compared.
    """
    if not candidates:
        return [line_of(unit, "server", 0.0, (0.0, 0.0, kinds.NOTHING_SENT), set())]
    if len({tuple((g.unit, g.kind, g.delta) for g in lines) for lines in candidates}) == 1:
        return [_worst_of(lines) for lines in zip(*candidates, strict=True)]
    return [_worst_of([min(lines, key=_most_useful) for lines in candidates])]


def _most_useful(line: Guarantee) -> tuple[bool, bool, float]:
    """Return a sort key: approximate lines first, then deployable lines, then small epsilons."""
    return line.kind == "pure", line.is_idealised, line.size


def _worst_of(lines: Sequence[Guarantee]) -> Guarantee:
    """Return the worst-off client's line, with the ``OF_ANYONE`` assumptions of all lines."""
    worst = max(lines, key=lambda line: line.size)
    if worst.kind == "none":
        return worst
    everybody = frozenset[Assumption]().union(*(line.assumptions for line in lines))
    rounds = set(kinds.TAKES_PART.among(everybody))
    needed = {each for each in everybody if each.kind in OF_ANYONE}
    if rounds:  # clients that are not drawn here may have other budgets
        needed |= {kinds.AS_DRAWN, *(rounds if len(rounds) == 1 else ())}
    return replace(worst, assumptions=(worst.assumptions - rounds) | needed)
