"""What is proven, with its conditions: an epsilon as it travels from a statement to a reader.

One run has the ``Proven`` of a line of its statement. A set of runs on the same rows has one of its
own, because losses add up over runs, whether or not their results are published.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Self, cast

from fedldp.accounting.accountants import (
    Normal,
    Pure,
    Sampled,
    loss_of,
    shuffled_loss,
    unfolded,
)
from fedldp.accounting.events import Event
from fedldp.accounting.guarantees import (
    HOUSE,
    SIDE_OF,
    Adversary,
    Guarantee,
    History,
    Unit,
    guarantees_of,
    noisier_alone,
    shuffled_guarantees,
)
from fedldp.accounting.numerics.gaussian import compose_mu, compose_rho
from fedldp.accounting.prices import cost
from fedldp.accounting.releases import ReleaseHistory, most_of
from fedldp.accounting.statement import Statement
from fedldp.core import kinds
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Assumption, Fact, NoGuarantee, in_order
from fedldp.core.numbers import round_up

LARGER: dict[Unit, tuple[Unit, ...]] = {
    "weight": ("weight",),
    "record": ("record", "person", "client-run"),
    "person": ("person", "client-run"),
    "client-round": ("client-round", "client-run"),
    "client-run": ("client-run",),
}
"""The units whose guarantee covers each unit."""

SEES_MORE: dict[Adversary, tuple[Adversary, ...]] = {
    "server": ("server",),
    "shuffled-server": ("shuffled-server", "server"),
    "summing-server": ("summing-server", "server"),
    "downlink": ("downlink", "summing-server", "shuffled-server", "server"),
}
"""The adversaries who see at least as much as each adversary."""

_OF_MACHINES = 1e-6
"""How much the same epsilon may differ between machines; see ``facts.alike``."""


@dataclass(frozen=True, kw_only=True)
class Proven:
    """An epsilon with everything that it depends on.

    Attributes:
        epsilon: a proven upper bound; None if nothing is proven.
        delta: its delta.
        unit: what is protected.
        adversary: against whom.
        conditions: the line's assumptions, and all warnings of its statement.
        stated_by: "fedldp", or the addresses of the user's own code that states the line.
        reason: why nothing is proven, if nothing is and the statement says why.
    """

    epsilon: float | None
    delta: float
    unit: Unit
    adversary: Adversary
    conditions: tuple[Fact, ...]
    stated_by: str = HOUSE
    reason: NoGuarantee | None = None

    @property
    def size(self) -> float:
        """The epsilon; infinite if nothing is proven."""
        return math.inf if self.epsilon is None else self.epsilon

    @property
    def is_idealised(self) -> bool:
        """Whether it holds only for ideal real numbers."""
        return kinds.IDEALISED in self.conditions

    @classmethod
    def of(cls, statement: Statement, unit: Unit, adversary: Adversary) -> Self:
        """Return the best line of a statement; lines for the numbers that are sent come first.

        Raises:
            ConfigError: the statement rests on an assumption that this version does not know.
        """
        about = [g for g in statement.guarantees if (g.unit, g.adversary) == (unit, adversary)]
        best = min(about, key=lambda line: (line.is_idealised, line.size), default=None)
        if best is None:
            return cls(
                epsilon=None,
                delta=0.0,
                unit=unit,
                adversary=adversary,
                conditions=statement.warnings,
            )
        return cls.of_line(best, statement)

    @classmethod
    def of_line(cls, line: Guarantee, statement: Statement) -> Self:
        """Return a line of a statement.

        Raises:
            ConfigError: the line rests on an assumption that this version does not know.
        """
        _check_known(line.assumptions)
        return cls(
            epsilon=line.epsilon,
            delta=line.delta,
            unit=line.unit,
            adversary=line.adversary,
            conditions=(*in_order(line.assumptions), *statement.warnings),
            stated_by=line.stated_by,
            reason=line.reason,
        )


@dataclass(frozen=True, kw_only=True)
class Released:
    """What one run of a set releases.

    Attributes:
        releases: what every client, and the server, releases; as planned, if the run is not over.
        statement: the run's statement.
        at: a function of delta that returns the run's statement at that delta.
        persons_at_sites: the largest number of clients at which one person has rows.
        over_draws: returns what the run might release with other draws: for every draw, one of
            these costs each client at least as much. Empty if nothing that counts is drawn.
    """

    releases: ReleaseHistory
    statement: Statement
    at: Callable[[float], Statement]
    persons_at_sites: int = 1
    over_draws: Callable[[], Sequence[Released]] = tuple

    def covering(self, unit: Unit, adversary: Adversary) -> list[Guarantee]:
        """Return the lines that cover a unit against an adversary, the best first."""
        found = []
        for line in self.statement.guarantees:
            if (
                line.epsilon is None
                or line.unit not in LARGER[unit]
                or line.adversary not in SEES_MORE[adversary]
            ):
                continue
            if unit == "person" and line.unit != "person":
                # What protects one client protects a person whose rows are all at that client.
                if self.persons_at_sites > 1:
                    continue
                line = line.assuming(kinds.AT_SITES(sites=1))
            found.append(line)
        return sorted(found, key=lambda line: line.size)

    def size_at(self, line: Guarantee, delta: float) -> float:
        """Return the epsilon of one of the statement's lines at a smaller delta.

        It is infinite if nothing is proven there, or if the line is not as planned: with other
        rounds, or fewer reports among which each is hidden, the plan says nothing of another delta.
        """
        planned, smaller = (
            min((each.size for each in self.at(d).guarantees if _about(each) == _about(line)),
                default=math.inf)
            for d in (line.delta, delta)
        )  # fmt: skip
        as_planned = math.isclose(line.size, planned, rel_tol=_OF_MACHINES)
        return smaller if as_planned else math.inf


Chosen = tuple[Released, Guarantee]
"""A run and the one of its lines that is counted."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """What a set of runs on the same rows costs.

    Attributes:
        proven: what the protected runs cost together.
        runs: how many runs are protected.
        unprotected: how many runs on the same rows protect nothing.
        data: the name of the data.
    """

    proven: Proven
    runs: int
    unprotected: int
    data: str = ""


def together(
    runs: Sequence[Released], unit: Unit, adversary: Adversary, data: str = ""
) -> Together:
    """Return what several runs on the same rows guarantee together.

    Each run's worst history is unfolded before histories are added: what is drawn once in a run is
    drawn anew in the next. The delta is the smallest positive one of the runs' best lines. If other
    draws could cost more, the conditions say what all draws cost at most.

    Args:
        runs: the runs; those without a guarantee for the unit are counted, and not added.
        unit: a unit that covers whole runs.
        adversary: who sees all of them.
        data: the name of the data.

    Raises:
        ConfigError: a statement rests on an assumption that this version does not know.

    Source: all releases composed by their losses, in one computation or by groups of one kind of
    loss at delta divided among these; and, where that may be loose, the runs' epsilons at delta
    divided among them, added (basic composition). A sum with shares of noise is composed like one
    report with all their noise, and equal events in sums of bits or behind a shuffler as in one run
    of all rounds, with the fewest honest reports of any run. The smallest figure counts: of the
    runs' best lines, or of all lines about one larger unit and one adversary who sees more.
    """
    found = [(run, run.covering(unit, adversary)) for run in runs]
    known = [(run, lines) for run, lines in found if lines]
    _check_known(each for _, lines in known for line in lines for each in line.assumptions)
    delta = min((lines[0].delta for _, lines in known if lines[0].delta > 0), default=0.0)
    ways: dict[tuple[Guarantee, ...], list[Chosen]] = {}
    for about in (None, *itertools.product(LARGER[unit], SEES_MORE[adversary])):
        way = [
            (run, next((line for line in lines if _about(line) == about), lines[0]))
            for run, lines in known
        ]
        ways.setdefault(tuple(line for _, line in way), way)
    epsilon, chosen = min(
        ((_epsilon([[each] for each in way], delta), way) for way in ways.values()),
        key=lambda found: found[0],
    )
    bounds = []
    drawn = [_over_draws(*each) for each in chosen]
    if any(worse is not None for worse in drawn):
        both = zip(chosen, drawn, strict=True)
        most = [[own] if worse is None else worse for own, worse in both]
        if (bound := _epsilon(most, delta)) > epsilon:
            of = kinds.BOUND(unit=unit, adversary=adversary, epsilon=bound, delta=delta)
            bounds = [kinds.AS_DRAWN_HERE(bounds=(of,))]
    by = dict.fromkeys(
        each for _, line in chosen if line.stated_by != HOUSE for each in line.stated_by.split(", ")
    )
    return Together(
        proven=Proven(
            epsilon=None if not chosen or math.isinf(epsilon) else epsilon,
            delta=delta,
            unit=unit,
            adversary=adversary,
            conditions=(*_conditions(chosen), *bounds),
            stated_by=", ".join(by) or HOUSE,
        ),
        runs=len(known),
        unprotected=len(runs) - len(known),
        data=data,
    )


def _check_known(assumptions: Iterable[Assumption]) -> None:
    unknown = dict.fromkeys(each.kind for each in assumptions if not each.is_known)
    if unknown:
        raise ConfigError(
            f"the statement assumes {', '.join(unknown)}, which this version of fedldp does not "
            "know; read it with the version that wrote it"
        )


def _about(line: Guarantee) -> tuple[Unit, Adversary]:
    return line.unit, line.adversary


def _over_draws(run: Released, line: Guarantee) -> list[Chosen] | None:
    """Return what the run might release with other draws, each with a line like ``line``.

    None if nothing that counts is drawn; nothing if some draw has no such line.
    """
    worse = run.over_draws()
    if not worse:
        return None
    lines = [
        next((like for like in each.covering(*_about(line)) if _about(like) == _about(line)), None)
        for each in worse
    ]
    found = [(each, like) for each, like in zip(worse, lines, strict=True) if like is not None]
    return found if len(found) == len(worse) else []


def _epsilon(known: Sequence[Sequence[Chosen]], delta: float) -> float:
    """Return an epsilon of several runs together: the smaller of two.

    Args:
        known: for each run, releases of which one costs a client at least as much as the run does,
            with their lines about one unit and adversary; none if nothing is proven.
        delta: the delta of the result.
    """
    if not all(known):
        return math.inf
    epsilon = _by_losses(known, delta)
    # At a part of delta, no line is smaller than at its own.
    least = _sum([max(line.size for _, line in draws) for draws in known])
    return epsilon if epsilon <= least else min(epsilon, _by_lines(known, delta))


def _by_losses(known: Sequence[Sequence[Chosen]], delta: float) -> float:
    """Return the epsilon of all releases composed; infinite if some cannot be composed."""
    alone: dict[tuple[type, int, Unit, Adversary], History] = {}
    crowds: dict[_Hidden, tuple[int, int]] = {}
    for each in known:
        if (seen := _seen_alone(each)) is not None:
            history, shift = seen
            line = each[0][1]
            by: Adversary = "downlink" if line.adversary == "downlink" else "server"
            for event, times in history.items():
                kind = type(loss_of(event))
                about: tuple[Unit, Adversary] = ("client-run", "server")
                if kind is Sampled:
                    about = line.unit, by
                alone.setdefault((kind, shift, *about), Counter())[event] += times
        elif (crowd := _seen_in_crowd(each)) is not None:
            hidden, rounds, reports = crowd
            before, fewest = crowds.get(hidden, (0, reports))
            crowds[hidden] = before + rounds, min(fewest, reports)
        else:
            return math.inf
    # Groups of one kind of loss, each with its part of delta; pure groups may need none.
    pure = [functools.partial(_composed, *each) for each in alone.items() if each[0][0] is Pure]
    rest = [functools.partial(_composed, *each) for each in alone.items() if each[0][0] is not Pure]
    rest += [functools.partial(_hidden_epsilon, *each) for each in crowds.items()]
    found = []
    for parts in {len(rest), len(rest) + len(pure)}:
        part = _part(delta, parts)
        of_pure = part if parts > len(rest) else 0.0
        found.append(_sum([each(part) for each in rest] + [each(of_pure) for each in pure]))
    if {kind for kind, *_ in alone} == {Pure, Normal} and len(alone) == 2 and not crowds:
        (one, history), (_, other) = alone.items()
        if len({shift for _, shift, *_ in alone}) == 1:
            found.append(_composed(one, history + other, delta))
    return min(found)


def _composed(of: tuple[type, int, Unit, Adversary], history: History, delta: float) -> float:
    _, shift, unit, adversary = of
    lines = guarantees_of(history, unit, delta, adversary, attained=False, shift=shift)
    return min(line.size for line in lines)


def _seen_alone(draws: Sequence[Chosen]) -> tuple[History, int] | None:
    """Return the worst history of a run, unfolded, and how far its inputs may move.

    None if only a crowd hides the releases.
    """
    run, line = draws[0]
    sites = run.persons_at_sites if line.unit == "person" else 1
    copies = sites if line.adversary == "server" else 1
    shift = sites if line.adversary == "downlink" else 1
    each: list[History] = []
    for run, line in draws:
        found = run.releases.of_server() if line.adversary == "downlink" else run.releases
        histories = found.of_side(SIDE_OF[line.unit]).histories()
        if line.adversary in ("server", "downlink"):
            each += map(unfolded, histories)
            continue
        clients = [fact.values["clients"] for fact in kinds.HONEST_SUMMANDS.among(line.assumptions)]
        for history in histories:
            noisier = Counter[Event]()
            for event, times in history.items():
                one = noisier_alone(event, clients[0], sites) if clients else None
                if one is None:
                    return None
                noisier[one] += times
            each.append(noisier)
    losses = [loss_of(event) for history in each for event in history]
    # Charge every event as often as any client, or any site of a person, released it.
    worst = most_of(each)
    if each and copies == 1 and all(isinstance(loss, Normal) for loss in losses):
        # One client is worst off if it is so by both notions of which an epsilon takes the better.
        costliest = max(each, key=_mu)
        if _rho(costliest) == max(map(_rho, each)):
            worst = costliest
    return Counter({event: copies * times for event, times in worst.items()}), shift


class _Hidden(NamedTuple):
    """A report that is seen only among others like it, in messages of so many coordinates."""

    event: Event
    chunk: int


def _seen_in_crowd(draws: Sequence[Chosen]) -> tuple[_Hidden, int, int] | None:
    """Return a run's report, its largest number of rounds, and its smallest number of reports.

    None if clients release several events: a statement has only the line of the worst.
    """
    found = []
    for run, line in draws:
        histories = run.releases.of_side("client").histories()
        if [len(history) for history in histories] != [1]:
            return None
        ((event, rounds),) = histories[0].items()
        chunk = 1
        if line.adversary == "shuffled-server":  # fewer coordinates in a message reveal less
            whole = getattr(shuffled_loss(event), "coordinates", 1)
            chunk = whole if line.method is None else line.method.values.get("chunk", whole)
        among = [(kinds.HONEST_SUMMANDS, "clients"), (kinds.HONEST_PARTICIPANTS, "clients")]
        among.append((kinds.HONEST_CATEGORIES, "reports"))
        (reports,) = (
            fact.values[name] for kind, name in among for fact in kind.among(line.assumptions)
        )
        found.append((_Hidden(event, chunk), rounds, reports))
    if len({hidden for hidden, _, _ in found}) > 1:
        return None
    return found[0][0], max(rounds for _, rounds, _ in found), min(n for _, _, n in found)


def _hidden_epsilon(hidden: _Hidden, times: tuple[int, int], delta: float) -> float:
    if delta == 0:
        return math.inf
    rounds, reports = times
    lines = shuffled_guarantees(
        hidden.event,
        rounds,
        anonymity_set=reports,
        chunk=hidden.chunk,
        delta=delta,
        searched="client-run",
    )
    return lines[0].size


def _mu(history: History) -> float:
    return compose_mu(
        (cast(Normal, loss_of(event)).mu(1), times) for event, times in history.items()
    )


def _rho(history: History) -> float:
    return compose_rho((cost(event, "zcdp"), times) for event, times in history.items())


def _by_lines(known: Sequence[Sequence[Chosen]], delta: float) -> float:
    """Return the sum of the epsilons of the runs' lines, each at its part of delta."""
    parts = sum(any(line.delta > 0 for _, line in draws) for draws in known)
    if delta == 0 and parts:
        return math.inf
    part = _part(delta, parts)
    return _sum(
        [
            max(run.size_at(line, part) if line.delta > 0 else line.size for run, line in draws)
            for draws in known
        ]
    )


def _part(delta: float, parts: int) -> float:
    """Return an equal part of delta, rounded down."""
    return math.nextafter(delta / parts, 0) if parts > 1 else delta


def _sum(epsilons: Sequence[float]) -> float:
    """Return a sum, rounded up."""
    return math.inf if math.inf in epsilons else round_up(sum(map(Fraction, epsilons)))


def _conditions(known: Sequence[Chosen]) -> tuple[Fact, ...]:
    """Return the conditions of all runs; a client's rounds in all runs are added up."""
    rounds = [
        max(each.values["rounds"] for each in found)
        for _, line in known
        if (found := kinds.TAKES_PART.among(line.assumptions))
    ]
    assumptions = {each for _, line in known for each in line.assumptions}
    assumptions -= set(kinds.TAKES_PART.among(assumptions))
    if rounds:
        assumptions.add(kinds.TAKES_PART(rounds=sum(rounds)))
    warnings = dict.fromkeys(each for run, _ in known for each in run.statement.warnings)
    for of_one_run in kinds.AS_DRAWN_HERE.among(warnings):
        del warnings[of_one_run]
    return (*in_order(assumptions), *warnings)
