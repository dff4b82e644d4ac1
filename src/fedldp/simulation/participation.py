"""Which clients take part in a round, and what they release according to the plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np

from fedldp.accounting.accountants import releases_nothing, sides_of
from fedldp.accounting.events import Event
from fedldp.accounting.releases import ClientIndices, ReleaseHistory
from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.participation import All, most_rounds
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, OverBudget
from fedldp.core.numbers import round_up
from fedldp.ledgers.budget import Budget
from fedldp.protocol.roles import Draws, Encoder

_T = TypeVar("_T")


def of_each_client(config: RunConfig, make: Callable[[int], _T]) -> list[_T]:
    """Return what ``make`` gives for each client; clients that release alike share one object."""
    first, *others = config.encoder_groups()
    found = [make(int(first[0]))] * config.num_clients
    for group in others:
        shared = make(int(group[0]))
        for client in group:
            found[client] = shared
    return found


def participants(config: RunConfig, round: int, draws: Draws) -> Sequence[int]:
    """Return the clients of ``round``, ascending."""
    found = config.composition.participation.clients(round, draws)
    if found is None:
        return range(config.num_clients)
    return found.tolist() if isinstance(found, np.ndarray) else found


def planned_releases(config: RunConfig, problem: Problem, draws: Draws) -> ReleaseHistory:
    """Return what every client, and the server, will release in the run.

    Raises:
        ConfigError: a release protects single people or rows, and no limit of a budget can cover
            it; or ``person_budget`` does not cover the whole run.
    """
    algorithm = config.algorithm(problem)
    participation, downlink = algorithm.parts.participation, algorithm.server().downlink
    stages = algorithm.parts.stages_of(config.rounds)
    groups_of = {stage: _groups(algorithm, stage[0]) for stage in stages}
    asked = {r: participation.clients(r, draws) for r in range(1, config.rounds + 1)}
    if config.budgets:
        for groups in groups_of.values():
            _check_may_pay(config.budgets, groups)
        _check_lasts(config, groups_of)
        if len(groups_of) == 1:
            (groups,) = groups_of.values()
            asked = _within_budgets(config.budgets, config, groups, asked)
    return ReleaseHistory.joined(
        [
            ReleaseHistory.planned(
                groups,
                {round: asked[round] for round in stage},
                None if downlink is None else downlink(stage[0]),
            )
            for stage, groups in groups_of.items()
        ]
    )


def releases_over_draws(config: RunConfig, problem: Problem) -> list[ReleaseHistory]:
    """Return releases of which one costs each client at least as much as any draw's releases.

    Where clients are drawn, all rounds are one stage.

    Each client is taken to be drawn as often as it may be, in rounds with as few others that
    release the same event as there may be. The list is empty if all clients answer every round.
    """
    participation = config.composition.participation
    if isinstance(participation, All):
        return []
    candidates = [config]
    if participation.told:  # a client's noise depends on its number of rounds
        every = range(1, config.rounds + 1)
        candidates = [config.changed(**dict.fromkeys(participation.told, n)) for n in every]
    return [_most(each, problem) for each in candidates]


def _most(config: RunConfig, problem: Problem) -> ReleaseHistory:
    algorithm = config.algorithm(problem)
    groups, participation = _groups(algorithm, 1), algorithm.parts.participation
    asked: dict[int, list[int]] = {round: [] for round in range(1, config.rounds + 1)}
    for clients in groups.values():
        others = config.num_clients - len(clients)
        # Others may be drawn first, and budgets may be spent at different times.
        fewest = 1 if config.budgets else max(1, config.fewest_in_round - others)
        there = [int(client) for client in clients[:fewest]]
        for round in range(1, most_rounds(participation, there[0], config.rounds) + 1):
            asked[round] += there
    answering: dict[int, ClientIndices | None] = {r: sorted(each) for r, each in asked.items()}
    if config.budgets:
        answering = _within_budgets(config.budgets, config, groups, answering)
    downlink = algorithm.server().downlink
    return ReleaseHistory.planned(groups, answering, None if downlink is None else downlink(1))


def _groups(algorithm: Algorithm, round: int) -> dict[Event, ClientIndices]:
    """Return the clients that release each event if they take part in a round."""
    found: dict[Event, list[ClientIndices]] = {}
    for group in algorithm.config.encoder_groups():
        encoder = algorithm.encoder(group[0])
        for event in events_of_round(encoder, algorithm.parts.channel.phases, round):
            found.setdefault(event, []).append(group)
    return {
        event: each[0] if len(each) == 1 else np.concatenate(each) for event, each in found.items()
    }


def _within_budgets(
    budgets: Sequence[Budget],
    config: RunConfig,
    groups: Mapping[Event, ClientIndices],
    asked: Mapping[int, ClientIndices | None],
) -> dict[int, ClientIndices | None]:
    """Return who will answer in each round: invited clients whose ledgers still allow an answer."""
    left = np.zeros(config.num_clients, np.int32)
    for event, clients in groups.items():
        left[np.asarray(clients)] = min(
            _times_paid(event, budget, config.rounds) for budget in budgets
        )
    answering: dict[int, ClientIndices | None] = {}
    for round, there in asked.items():
        places = slice(None) if there is None else np.asarray(there, np.int64)
        able = left[places] > 0
        left[places] -= able
        if able.all():
            answering[round] = there  # None means all clients
        else:
            answering[round] = np.flatnonzero(able) if there is None else np.asarray(there)[able]
    return answering


def _check_lasts(
    config: RunConfig, groups_of: Mapping[range, Mapping[Event, ClientIndices]]
) -> None:
    """Refuse a budget that does not cover the whole run of some client.

    Where a run has stages, every client must answer all of them. Else the budget for a client may
    end before the run does, and the client leaves then.
    """
    often = most_rounds(config.composition.participation, 0, config.rounds)
    for budget in config.budgets:
        if budget.unit == "client" and len(groups_of) == 1:
            continue
        dearest = [
            (max(of, key=budget.price), min(len(stage), often)) for stage, of in groups_of.items()
        ]
        run = round_up(budget.price_of_run(dearest))
        if run > budget.limit:
            raise ConfigError(
                f"{_setting_of(budget)}.limit = {budget.limit:g}: the whole run costs "
                f"{budget.amount(run)}: raise the limit to that, or lower epsilon"
            )


def _setting_of(budget: Budget) -> str:
    return "client_budget" if budget.unit == "client" else "person_budget"


def _check_may_pay(budgets: Sequence[Budget], events: Iterable[Event]) -> None:
    """Refuse a budget that cannot, at any limit, cover a client's, person's or row's release."""
    for event in events:
        for budget in budgets:
            if sides_of(event) and not budget.may_cover(event):
                try:
                    budget.admit(event, 0)
                except OverBudget as error:
                    raise ConfigError(f"{_setting_of(budget)}: {error}") from error


def _times_paid(event: Event, budget: Budget, most: int) -> int:
    """Return how many times a budget can pay for an event in one run, but at most ``most``."""
    first, later = budget.price(event), budget.price(event, [event])
    rest = Fraction(budget.limit) - Fraction(first) if math.isfinite(first) else Fraction(-1)
    if rest < 0:
        return 0
    return most if later == 0 else min(most, 1 + int(rest // Fraction(later)))


def events_of_round(encoder: Encoder, phases: int, round: int = 1) -> list[Event]:
    """Return the events that a client releases in one round, except those computed without data."""
    events = [encoder.event(phase, round) for phase in range(phases)]
    return [event for event in events if not releases_nothing(event)]
