"""The privacy statement of a deployed run: what was agreed, and what was actually released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedldp.accounting.guarantees import Unit
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import Statement, SumInPath
from fedldp.algorithms import systems
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.facts import Caveat
from fedldp.core.kinds import COUNT_NOISE, SIMULATED, STAGE


def stated(
    config: RunConfig,
    problem: Problem | None,
    releases: ReleaseHistory,
    *,
    summed: SumInPath | None,
    simulated: bool,
    timed: Caveat,
    begins: str | None = None,
    delta: float | None = None,
    searched: Unit | None = None,
) -> Statement:
    """Return the statement of a deployed run.

    Args:
        config: the configuration of the run.
        problem: the agreed facts about the data; None if they are unknown.
        releases: who released what in which round, and, if reports are summed, who is in each sum.
        summed: the secure sum between the clients and the server, if there is one.
        simulated: whether all randomness comes from a seed.
        timed: what the statement does not cover about the timing of answers.
        begins: see ``systems.assumed``.
        delta: the delta for approximate guarantees. None: the configuration's delta.
        searched: see ``systems.stated``.
    """
    unit = _asked(config, problem)
    found = systems.stated(
        config,
        problem,
        releases,
        asked=unit,
        summed=summed,
        delta=delta,
        searched=searched,
        begins=begins,
    )
    # Leave out guarantees that hold only for a simulation's noise in real arithmetic: they do not
    # apply to what is sent here.
    lines = tuple(line for line in found.guarantees if not line.is_idealised)
    warnings = [each for each in found.warnings if simulated or each != SIMULATED]
    warnings += [*systems.notes(config, problem), timed]
    return replace(found, guarantees=lines, warnings=tuple(warnings))


def without_left_out(statement: Statement, releases: ReleaseHistory) -> Statement:
    """Return a run's statement without caveats about rounds in which nothing was released.

    Args:
        statement: the statement of a run of which rounds were left out.
        releases: who released what in which round.
    """

    def was_made(caveat: Caveat) -> bool:
        values: Mapping[str, Any] = caveat.values
        match caveat.kind:
            case STAGE.name:
                first, last = values["first"], values["last"]
            case COUNT_NOISE.name:
                first = last = values["round"]
            case _:
                return True
        return releases.before(first) != releases.before(last + 1)

    return replace(statement, warnings=tuple(filter(was_made, statement.warnings)))


def _asked(config: RunConfig, problem: Problem | None) -> Unit | None:
    """Return the unit of the setting that meets the target; an agreement has no target itself."""
    meaning = config.composition.calibration.meaning
    if meaning is None:
        return None
    of_people = meaning.unit == "record" and problem is not None and problem.people is not None
    return "person" if of_people else meaning.unit
