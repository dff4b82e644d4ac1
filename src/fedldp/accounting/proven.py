"""What is proven, with its conditions: an epsilon as it travels from a statement to a reader.

One run has the ``Proven`` of a line of its statement. A set of runs on the same rows has one of its
own, because losses add up over runs, whether or not their results are published.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from fedldp.accounting.accountants import Normal, Pure, Sampled, loss_of, unfolded
from fedldp.accounting.guarantees import (
    HOUSE,
    SIDE_OF,
    Adversary,
    Guarantee,
    History,
    Unit,
    guarantees_of,
)
from fedldp.accounting.numerics.gaussian import compose_mu, compose_rho
from fedldp.accounting.prices import cost, rounded_up
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import Statement
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Assumption, Fact, NoGuarantee, in_order
from fedldp.core.kinds import AT_SITES, IDEALISED, TAKES_PART

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
        return IDEALISED in self.conditions

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
    """

    releases: ReleaseHistory
    statement: Statement
    at: Callable[[float], Statement]
    persons_at_sites: int = 1

    def line(self, unit: Unit, adversary: Adversary) -> Guarantee | None:
        """Return the best line that covers a unit against an adversary; None if none does."""
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
                line = line.assuming(AT_SITES(sites=1))
            found.append(line)
        return min(found, key=lambda line: line.size, default=None)

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
    drawn anew in the next. The delta is the smallest positive one of the runs' lines.

    Args:
        runs: the runs; those without a guarantee for the unit are counted, and not added.
        unit: a unit that covers whole runs.
        adversary: who sees all of them.
        data: the name of the data.

    Raises:
        ConfigError: a statement rests on an assumption that this version does not know.

    Source: all releases composed by their losses, in one computation or by groups of one kind of
    loss at delta divided among these; and, where that may be loose or a line is about sums or
    shuffled reports, the runs' epsilons at delta divided among them, added (basic composition).
    """
    lines = [(run, run.line(unit, adversary)) for run in runs]
    known = [(run, line) for run, line in lines if line is not None]
    deltas = [line.delta for _, line in known if line.delta > 0]
    delta = min(deltas, default=0.0)
    for _, line in known:
        _check_known(line.assumptions)
    epsilon = None
    if known:
        epsilon, is_tight = _by_losses(known, delta)
        if not is_tight:
            epsilon = min(epsilon, _by_lines(known, delta))
    by = dict.fromkeys(
        each for _, line in known if line.stated_by != HOUSE for each in line.stated_by.split(", ")
    )
    return Together(
        proven=Proven(
            epsilon=None if epsilon is None or math.isinf(epsilon) else epsilon,
            delta=delta,
            unit=unit,
            adversary=adversary,
            conditions=_conditions(known),
            stated_by=", ".join(by) or HOUSE,
        ),
        runs=len(known),
        unprotected=len(runs) - len(known),
        data=data,
    )


def _check_known(assumptions: Iterable[Assumption]) -> None:
    unknown = [each.kind for each in assumptions if not each.is_known]
    if unknown:
        raise ConfigError(
            f"the statement assumes {', '.join(unknown)}, which this version of fedldp does not "
            "know; read it with the version that wrote it"
        )


def _about(line: Guarantee) -> tuple[Unit, Adversary]:
    return line.unit, line.adversary


def _by_losses(known: Sequence[tuple[Released, Guarantee]], delta: float) -> tuple[float, bool]:
    """Return the epsilon of all releases composed, and whether no other way may give less.

    It is infinite if some line is not about single reports or broadcasts.
    """
    total: History = Counter()
    shifts, one_is_worst = set(), True
    for run, line in known:
        found = _history(run, line)
        if found is None:
            return math.inf, False
        history, shift, is_of_one = found
        shifts.add(shift)
        one_is_worst &= is_of_one
        total += history
    if not total:
        return 0.0, True
    kinds: dict[type, History] = {}
    for event, times in total.items():
        kinds.setdefault(type(loss_of(event)), Counter())[event] += times
    differs = len({(line.unit, line.adversary) for _, line in known}) > 1
    if len(shifts) > 1 or (Sampled in kinds and differs):
        return math.inf, False
    (shift,) = shifts
    like = known[0][1]
    if len(kinds) == 1:
        is_tight = one_is_worst and (len(total) == 1 or Pure not in kinds)
        return _composed(total, like, delta, shift), is_tight
    # Groups of one kind of loss, each with its part of delta; a pure group needs none.
    part = _part(delta, sum(kind is not Pure for kind in kinds))
    apart = [
        _composed(each, like, 0.0 if kind is Pure else part, shift) for kind, each in kinds.items()
    ]
    whole = math.inf if Sampled in kinds else _composed(total, like, delta, shift)
    return min(_sum(apart), whole), False


def _history(run: Released, line: Guarantee) -> tuple[History, int, bool] | None:
    """Return the worst history that a line is about, unfolded, and how far its inputs may move.

    The last value is whether some client has this history; None for what is seen in sums, or
    shuffled.
    """
    side = SIDE_OF[line.unit]
    sites = run.persons_at_sites if line.unit == "person" else 1
    if line.adversary == "downlink":
        found, copies, shift = run.releases.of_server().of_side(side).histories(), 1, sites
    elif line.adversary == "server":
        found, copies, shift = run.releases.of_side(side).histories(), sites, 1
    else:
        return None
    if not found:
        return Counter(), shift, True
    each = [unfolded(history) for history in found]
    losses = [loss_of(event) for history in each for event in history]
    # Charge every event as often as any client, or any site of a person, released it.
    worst = functools.reduce(operator.or_, each)
    if copies == 1 and all(isinstance(loss, Normal) for loss in losses):
        # One client is worst off if it is so by both notions of which an epsilon takes the better.
        costliest = max(each, key=_mu)
        if _rho(costliest) == max(map(_rho, each)):
            worst = costliest
    released = Counter({event: copies * times for event, times in worst.items()})
    return released, shift, worst in each


def _mu(history: History) -> float:
    mus: list[float] = []
    for event, times in history.items():
        loss = loss_of(event)
        assert isinstance(loss, Normal)
        mus += [loss.mu(1)] * times
    return compose_mu(mus)


def _rho(history: History) -> float:
    return compose_rho(cost(event, "zcdp") for event in history.elements())


def _composed(history: History, like: Guarantee, delta: float, shift: int) -> float:
    lines = guarantees_of(history, like.unit, like.adversary, delta, attained=False, shift=shift)
    return min(line.size for line in lines)


def _by_lines(known: Sequence[tuple[Released, Guarantee]], delta: float) -> float:
    """Return the sum of the epsilons of the runs' lines, each at its part of delta."""
    part = _part(delta, sum(line.delta > 0 for _, line in known))
    return _sum([run.size_at(line, part) if line.delta > 0 else line.size for run, line in known])


def _part(delta: float, parts: int) -> float:
    """Return an equal part of delta, rounded down."""
    return math.nextafter(delta / parts, 0) if parts > 1 else delta


def _sum(epsilons: Sequence[float]) -> float:
    """Return a sum, rounded up."""
    return math.inf if math.inf in epsilons else rounded_up(sum(map(Fraction, epsilons)))


def _conditions(known: Sequence[tuple[Released, Guarantee]]) -> tuple[Fact, ...]:
    """Return the conditions of all runs; a client's rounds in all runs are added up."""
    rounds = [
        max(each.values["rounds"] for each in found)
        for _, line in known
        if (found := TAKES_PART.among(line.assumptions))
    ]
    assumptions = {each for _, line in known for each in line.assumptions}
    assumptions -= set(TAKES_PART.among(assumptions))
    if rounds:
        assumptions.add(TAKES_PART(rounds=sum(rounds)))
    warnings = dict.fromkeys(each for run, _ in known for each in run.statement.warnings)
    return (*in_order(assumptions), *warnings)
