"""The privacy statement of a run, from its configuration alone or from its clients' ledgers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from fedldp.accounting.events import Event, TwoValuedBits
from fedldp.accounting.guarantees import FRESH, Guarantee, local_guarantees, shuffled_guarantees
from fedldp.accounting.releases import Releases, histories, smallest_crowds
from fedldp.systems import SystemConfig

SIMULATED = "simulated with a fixed seed: this run itself protects nothing"


def statement(
    config: SystemConfig, releases: Releases, *, delta: float | None = None
) -> dict[str, Any]:
    """Return the statement: the source's claim, the guarantees that are proven, and warnings.

    Args:
        config: the run's configuration.
        releases: what every client releases; see ``simulation.participation.planned_releases``.
        delta: of the approximate lines; ``config.delta`` where it is not given.
    """
    delta = config.delta if delta is None else delta
    lines = _weight_lines(releases) + _local_lines(releases, delta)
    warnings = [SIMULATED]
    delays = config.delays()
    if delays is not None and delta > 0:
        if delays.prediction_error > 0:
            warnings.append(
                f"prediction_error = {delays.prediction_error:g}: arrival times tell clients "
                "apart, so no guarantee of the shuffler is stated"
            )
        else:
            lines += _shuffled_lines(config, delays.chunk, releases, delta)
    claim = config.claim()
    return {
        "claim": None if claim is None else asdict(claim),
        "guarantees": [asdict(line) for line in lines],
        "warnings": warnings,
    }


def _events(releases: Releases) -> list[Event]:
    return list(dict.fromkeys(event for one in releases.values() for event in one.values()))


def _weight_lines(releases: Releases) -> list[Guarantee]:
    bits = [event for event in _events(releases) if isinstance(event, TwoValuedBits)]
    if not bits:
        return []
    worst = max(event.epsilon for event in bits)
    return [
        Guarantee(
            unit="weight",
            adversary="server",
            kind="pure",
            epsilon=worst,
            delta=0.0,
            lower=worst,
            assumptions=[FRESH],
            method="one coordinate of one report: exact, integer thresholds",
        )
    ]


def _local_lines(releases: Releases, delta: float) -> list[Guarantee]:
    rounds = [local_guarantees(Counter([e]), "client-round", delta) for e in _events(releases)]
    runs = [local_guarantees(h, "client-run", delta) for h in histories(releases)]
    return _worst(rounds) + _worst(runs)


def _shuffled_lines(
    config: SystemConfig, chunk: int, releases: Releases, delta: float
) -> list[Guarantee]:
    crowds = smallest_crowds(releases)
    candidates = []
    for history in histories(releases):
        for event, rounds in history.items():
            if len(history) > 1 or not isinstance(event, TwoValuedBits):
                raise AssertionError("only one kind of bits per client goes through the shuffler")
            crowd = max(1, crowds[event] - config.untrusted_clients)
            candidates.append(
                shuffled_guarantees(event, rounds, crowd=crowd, chunk=chunk, delta=delta)
            )
    return _worst(candidates)


def _worst(candidates: list[list[Guarantee]]) -> list[Guarantee]:
    """Return what holds for every client: line by line that of the worst-off.

    Where clients have different kinds of lines, only the approximate epsilon is comparable.
    """
    if len({tuple((g.unit, g.kind, g.delta) for g in lines) for lines in candidates}) == 1:
        return [max(lines, key=_badness) for lines in zip(*candidates, strict=True)]
    best = [min(lines, key=lambda g: (g.kind == "pure", _badness(g))) for lines in candidates]
    return [max(best, key=_badness)]


def _badness(line: Guarantee) -> float:
    return math.inf if line.epsilon is None else line.epsilon
