"""The privacy statement of a deployed run: what was agreed, and what was actually released."""

from __future__ import annotations

from typing import Any

from fedldp.accounting.guarantees import IDEALISED, Unit
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import SIMULATED, SumInPath
from fedldp.algorithms import systems
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem

TIMED = (
    "when a site answers may tell how long it trained, and so about how many examples it has; no "
    "line is about that (a site's policy can fix when its answers leave, answer_after_seconds; "
    "programs on its machine still see how busy it is)"
)
"""The warning of a server's run that timing is not covered."""


def stated(
    config: RunConfig,
    problem: Problem | None,
    releases: ReleaseHistory,
    *,
    summed: SumInPath | None,
    simulated: bool,
    timed: str,
    delta: float | None = None,
) -> dict[str, Any]:
    """Return the statement of a deployed run.

    Args:
        config: the configuration of the run.
        problem: the agreed facts about the data; None if they are unknown.
        releases: who released what in which round, and, if reports are summed, who is in each sum.
        summed: the secure sum between the clients and the server, if there is one.
        simulated: whether all randomness comes from a seed.
        timed: what the statement does not cover about the timing of answers.
        delta: the delta for approximate guarantees. None: the configuration's delta.
    """
    found = systems.stated(
        config, problem, releases, asked=_asked(config, problem), summed=summed, delta=delta
    )
    # Leave out guarantees that hold only for a simulation's noise in real arithmetic: they do not
    # apply to what is sent here.
    lines = [line for line in found["guarantees"] if IDEALISED not in line["assumptions"]]
    warnings = [each for each in found["warnings"] if simulated or each != SIMULATED]
    warnings += [*config.composition.notes, timed]
    return {**found, "guarantees": lines, "warnings": warnings}


def _asked(config: RunConfig, problem: Problem | None) -> Unit | None:
    """Return the unit of the setting that meets the target; an agreement has no target itself."""
    meaning = config.composition.calibration.meaning
    if meaning is None:
        return None
    of_people = meaning.unit == "record" and problem is not None and problem.people is not None
    return "person" if of_people else meaning.unit
