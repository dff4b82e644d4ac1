"""Who takes part in a round, and what all of them release by plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.budget import Budget, price
from fedldp.accounting.events import Event, NoData
from fedldp.accounting.releases import Releases
from fedldp.parts.sides import Draws, Encoder
from fedldp.systems.base import Problem, SystemConfig


def participants(config: SystemConfig, round: int, draws: Draws) -> Sequence[int]:
    """Return the clients of ``round``, ascending: those whom the system chooses, where it does.

    Otherwise they are a uniform sample without replacement.
    """
    chosen = config.participants(round, draws)
    if chosen is not None:
        return chosen
    if config.clients_per_round is None:
        return range(config.num_clients)
    drawn = (
        draws(round)("participation")
        .generator()
        .choice(config.num_clients, size=config.clients_per_round, replace=False)
    )
    found: list[int] = sorted(drawn.tolist())
    return found


def planned_releases(config: SystemConfig, problem: Problem, draws: Draws) -> Releases:
    """Return what every client, and the server, will release."""
    groups: dict[Event, list[int]] = {}
    for alike in config.alike():
        for event in events_of_round(config.client_encoder(problem, alike[0]), config.exchanges):
            groups.setdefault(event, []).extend(alike)
    all_clients = config.clients_per_round is None
    chosen: dict[int, Sequence[int] | NDArray[np.integer] | None] = {
        round: None
        if all_clients and config.participants(round, draws) is None
        else participants(config, round, draws)
        for round in range(1, config.rounds + 1)
    }
    if config.client_budget is not None:
        chosen = _within_budget(config, config.client_budget.budget(), groups, chosen)
    return Releases.planned(groups, chosen, config.server(problem).downlink)


def _within_budget(
    config: SystemConfig,
    budget: Budget,
    groups: Mapping[Event, Sequence[int]],
    chosen: Mapping[int, Sequence[int] | NDArray[np.integer] | None],
) -> dict[int, Sequence[int] | NDArray[np.integer] | None]:
    """Return who will answer in each round: those asked whose ledgers do not refuse by then."""
    left = np.zeros(config.num_clients, np.int64)
    for event, clients in groups.items():
        left[np.asarray(clients)] = _times_paid(event, budget, config.rounds)
    answering: dict[int, Sequence[int] | NDArray[np.integer] | None] = {}
    for round, asked in chosen.items():
        there = np.arange(config.num_clients) if asked is None else np.asarray(asked, np.int64)
        there = there[left[there] > 0]
        left[there] -= 1
        answering[round] = there
    return answering


def _times_paid(event: Event, budget: Budget, most: int) -> int:
    """Return how often a budget pays for an event in one run, up to ``most`` times."""
    first, later = price(event, budget.kind), price(event, budget.kind, [event])
    rest = Fraction(budget.limit) - Fraction(first) if math.isfinite(first) else Fraction(-1)
    if rest < 0:
        return 0
    return most if later == 0 else min(most, 1 + int(rest // Fraction(later)))


def events_of_round(encoder: Encoder[Any], exchanges: int) -> list[Event]:
    """Return what a client releases in one round, without what is computed from no data."""
    events = [encoder.event(exchange) for exchange in range(exchanges)]
    return [event for event in events if not isinstance(event, NoData)]
