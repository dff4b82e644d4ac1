"""The contract of a system, for fedldp's presets and for yours.

    >>> from fedldp.algorithms.systems import find_system
    >>> from fedldp.testing.data import SMALL
    >>> from fedldp.testing.systems import check_system
    >>> from fedldp.testing.toys import TOY
    >>> sorted({outcome.verdict for outcome in check_system(find_system(TOY)(**SMALL))})
    ['ok']

A part of your own is checked in the systems of its module that use it (``check_part``).
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
from pydantic import ValidationError

from fedldp.accounting.events import Event, NoRelease
from fedldp.algorithms.config import RunConfig
from fedldp.audit import playing
from fedldp.audit.efforts import BRIEF
from fedldp.audit.plans import planned_games
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.kinds import SIMULATED
from fedldp.core.locks import scratch
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Place
from fedldp.protocol.roles import Encoder, Senders, Update
from fedldp.protocol.server_loop import Round
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Broadcast, Reports, Sensitive, pack_reports
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of, state
from fedldp.simulation.settings import from_mapping, read_toml, to_toml
from fedldp.testing import boundary as boundaries
from fedldp.testing.cases import ROUNDS, RUN, Case, population_of, simulation_keys
from fedldp.testing.checks import FALSE_ALARM, Check, NotApplicable, Outcome, outcomes
from fedldp.testing.clients import Roles, clients_of, sender_of, senders_of, trained_apart
from fedldp.testing.data import SMALL, images
from fedldp.training.tensors import one_thread

_SIZES = [12] * 4
"""How many examples each of a few clients has."""
_SECONDS = 16.0
"""No game starts after so many CPU seconds."""


@dataclass(frozen=True)
class System:
    """A configuration of the digits data that is checked.

    Attributes:
        config: the configuration.
    """

    config: RunConfig

    def __str__(self) -> str:
        return f"system = {self.config.name()}"

    @cached_property
    def case(self) -> Case:
        """The configuration with data, clients and a server."""
        return Case.of(self.config)

    @cached_property
    def roles(self) -> Roles:
        """The configuration's encoders, local update and server."""
        return Roles(self.case.config, self.case.problem)


def shortened(config: RunConfig) -> RunConfig:
    """Return a configuration for few clients, few examples and few rounds, if it allows that."""
    settings = config.model_dump()
    epochs = {name: 1 for name in settings if name.endswith("epochs")}
    few: dict[str, Any] = {**epochs, "rounds": ROUNDS}
    one = {n: v[0] for n, v in settings.items() if isinstance(v, list) and n in config.per_client}
    fewer = {
        "num_clients": 6, "num_examples": 120, "clients_per_round": None, "untrusted_clients": 0,
        "batch_size": min(10, settings["batch_size"]), **one,
    }  # fmt: skip
    fewer |= {"dropout": 0.0} if "dropout" in settings else {}
    for changes in (few | fewer, few):
        with suppress(ConfigError):
            found = config.changed(**changes)
            plan(found, problem_of(found, None))
            return found
    return config


def settings(at: System) -> Iterator[str]:
    """Settings are frozen and described, and read back from TOML and JSON as they were written."""
    config, fields = at.config, type(at.config).model_fields
    with suppress(ValidationError):
        config.rounds = 3  # type: ignore[misc]
        yield "a setting can be changed"
    with scratch() as folder:
        path = folder / "own.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        if read_toml(path) != config:
            yield "TOML gives another configuration"
    if from_mapping(json.loads(json.dumps(config.model_dump()))) != config:
        yield "JSON gives another configuration"
    for name, each in fields.items():
        if not each.description and name != "system":
            yield f"{name} has no description"
        kinds = [type(limit) for limit in each.metadata]
        if len(set(kinds)) < len(kinds):
            yield f"{name} has two limits of one kind, of which one would win silently"
    with suppress(ConfigError):
        more = config.changed(clients_per_round=config.num_clients + 1)
        plan(more, problem_of(more, None))
        yield "more clients in a round than in the run are not refused"


def statement(at: System) -> Iterator[str]:
    """Every line is complete, and later rounds never make earlier releases cost less."""
    longer = at.config.changed(rounds=5)
    problem = problem_of(longer, None)
    planned = plan(longer, problem)
    stated = planned.privacy
    for line in stated.guarantees:
        where = f"the line for {line.unit} against {line.adversary}"
        if line.kind == "none":
            if line.lower is not None:
                yield f"{where} proves nothing, but has a lower bound"
        elif not math.isfinite(line.epsilon or 0) or not line.assumptions:
            yield f"{where} has no finite epsilon, or no assumptions"
        elif (line.lower or 0) > (line.epsilon or 0):
            yield f"{where} has a lower bound above its epsilon"
        if (line.kind == "approximate") != (line.delta > 0):
            yield f"{where} has the wrong delta for its kind"
    if ("client-run", "server") not in {(g.unit, g.adversary) for g in stated.guarantees}:
        yield "no line says what a client's run costs against the server"
    if SIMULATED not in stated.warnings:
        yield "it does not say that a simulation protects nothing"

    def lines(rounds: int) -> dict[tuple[Any, ...], float]:
        until = state(longer, problem, planned.releases.before(rounds + 1))
        return {
            (each.unit, each.adversary, each.kind): each.epsilon or math.inf
            for each in until.guarantees
        }

    few, many = lines(2), lines(5)
    for key, epsilon in few.items():
        if many.get(key, -1.0) < epsilon * (1 - 1e-9):
            yield f"five rounds cost less than two, or have no line, for {key}"


def events(at: System) -> Iterator[str]:
    """One event of a round covers all that is computed from examples; a client knows its own."""
    config, problem = at.case.config, at.case.problem
    phases = range(config.composition.channel.phases)
    firsts = [stage[0] for stage in config.composition.stages_of(config.rounds)]
    for group, round in itertools.product(config.encoder_groups(), firsts):
        first = [at.roles.encoder(group[0]).event(phase, round) for phase in phases]
        if len([event for event in first if not isinstance(event, NoRelease)]) != 1:
            yield "not exactly one phase releases something"
        for client in group[1:]:
            if [at.roles.encoder(client).event(phase, round) for phase in phases] != first:
                yield "two clients of one group of encoders have different events"
    for client in (0, config.num_clients - 1):
        told = config.for_client(client)
        if (told.seed, told.client_budget, told.target) != (0, None, None):
            yield "a client is told the seed, the budget or the target"
        own = told.algorithm(problem).encoder(client)
        for phase, round in itertools.product(phases, firsts):
            if own.event(phase, round) != at.roles.encoder(client).event(phase, round):
                yield "what a client is told gives it another event"


class _Stopped(Exception):
    pass


def run(at: System) -> Iterator[str]:
    """A run releases what was planned, states that, and continues as if it had not stopped."""
    config = at.config
    planned = plan(config, problem_of(config, None))
    with scratch() as folder:
        whole = simulate(config, out=folder / "whole")
        (kept,) = (each["run"] for each in whole.ledger.to_record()["runs"])
        released = whole.ledger.releases(kept)
        if not getattr(config, "dropout", 0) and released != planned.releases:
            yield "the run released something else than was planned"
        if state(planned.scheduled, planned.problem, released) != whole.privacy:
            yield "the statement is not that of what was released"
        if planned.privacy != whole.privacy:
            yield "the statement before the run differs from the one after it"

        def stop(record: Round) -> None:
            if record.round == 1:
                raise _Stopped

        cut = folder / "cut"
        with suppress(_Stopped):
            simulate(config, out=cut, after_round=stop)
        resumed = simulate(config, resume=RunFolder(cut))
    same = (np.array_equal(whole.weights[n], resumed.weights[n]) for n in whole.weights)
    if not all(same) or resumed.privacy != whole.privacy:
        yield "a run that was stopped continues with other weights, or another statement"


class _Recording(MemoryLedger):
    """A ledger that records what is charged, and the bytes that leave."""

    def release(self, place: Place, event: Event, *given: Any) -> Any:
        left = super().release(place, event, *given)
        self.charged += [(event, bytes(row)) for row in left if not isinstance(row, Exception)]
        return left

    def __init__(self) -> None:
        super().__init__()
        self.charged: list[tuple[Event, bytes]] = []


def charged(at: System) -> Iterator[str]:
    """What is charged is the event of the encoder that made the bytes that left."""
    case, made = at.case, list[tuple[Event, bytes]]()
    with scratch() as folder, one_thread():
        talk = case.talk(simulation_keys, folder / "talk")
        population, recording = population_of(case, folder / "all"), _Recording()
        kind = type(population.encoders[talk.index])
        encode: Callable[..., Reports] = vars(kind)["__call__"]

        def spied(encoder: Encoder, update: Any, broadcast: Broadcast, senders: Senders) -> Reports:
            reports = encode(encoder, update, broadcast, senders)
            for row in pack_reports(reports, run=RUN, phase=senders.phase):
                made.append((encoder.event(senders.phase, broadcast.round), row.tobytes()))
            return reports

        runtime = population.runtime(recording)
        with mock.patch.object(kind, "__call__", spied):
            for message in talk.requests:
                list(runtime.answers(message, [talk.index]))
    if not made or made != recording.charged:
        yield "what is charged differs from what the encoder that ran states, or from its bytes"
    releasing = [event for event, _ in recording.charged if not isinstance(event, NoRelease)]
    planned = plan(case.config, case.problem).releases.events
    if not set(releasing) <= set(planned):
        yield "the statement is made from other events than are charged"


def _trained(at: System) -> Update:
    """Return the updates of four clients, each trained alone."""
    if at.case.config.composition.channel.phases > 1:
        raise NotApplicable("its reports belong to the sum of a whole round")
    clients = clients_of(images(sum(_SIZES)), _SIZES)
    with one_thread():
        return trained_apart(at.roles.local_update, at.roles.broadcast, clients)


def groups(at: System) -> Iterator[str]:
    """A report is the same whether a client's update is encoded alone or with others."""
    update, encoder, broadcast = _trained(at), at.roles.encoder(), at.roles.broadcast
    update.rows[2] = np.nan
    together = list(encoder(Sensitive(update), broadcast, senders_of(_SIZES)))
    for place, report in enumerate(together):
        sender = sender_of(_SIZES[place], place)
        if alone(encoder, Sensitive(update.alone(place)), broadcast, sender) != report:
            yield f"client {place} sends another report alone than with others"


def length(at: System) -> Iterator[str]:
    """A report is as long for every update, and the server can read it."""
    update, roles, lengths = _trained(at), at.roles, set()
    for row, factor in zip(update.rows, (1.0, 0.0, 1e3, -1e6), strict=True):
        row[:] = roles.broadcast.weights + factor * (row - roles.broadcast.weights)
    for place, size in enumerate(_SIZES):
        one, sender = Sensitive(update.alone(place)), sender_of(size, place)
        report = alone(roles.encoder(), one, roles.broadcast, sender)
        lengths.add(len(report.payload))
        if at.case.config.composition.channel.kind != "sum":
            roles.aggregate([report])
    if len(lengths) > 1:
        yield f"reports of different updates have {' and '.join(map(str, sorted(lengths)))} bytes"


def boundary(at: System) -> Iterator[str]:
    """What leaves a client depends on its examples only through mechanisms, whatever it is asked.

    Excepted is what its event says is in the clear.
    """
    yield from boundaries.breaches(at.case)


def server(at: System) -> Iterator[str]:
    """A server needs reports, and starts with the same state after a restart."""
    with suppress(RunError):
        at.roles.aggregate([])
        yield "a round without reports is not refused"
    one, other = at.roles, Roles(at.case.config, at.case.problem)
    if not (one.first.round == other.first.round == one.broadcast.round == 1):
        yield "the first round is not round 1"
    pairs = [(one.broadcast.weights, other.broadcast.weights)]
    pairs += [(each, other.broadcast.public[n]) for n, each in one.broadcast.public.items()]
    if not all(np.array_equal(*pair) for pair in pairs):
        yield "a restarted server begins with another broadcast"


def law(at: System) -> Iterator[str]:
    """No adversary of the audit's brief games learns more than the statement says."""
    config = at.config
    games = playing.cover(planned_games(config, problem_of(config, None), BRIEF), 1 - FALSE_ALARM)
    found = playing.play(
        str(at), games, confidence=1 - FALSE_ALARM, trials=None, seed=0, futile=False,
        seconds=_SECONDS,
    )  # fmt: skip
    if all(row.is_unplayed for row in found.rows):
        raise NotApplicable("its statement has no line that so few trials could refute")
    for row in found.rows:
        if row.verdict == "bug":
            yield (
                f"epsilon for {row.unit} against {row.adversary} is at least {row.lower:.3f}; "
                f"{row.proven:.3f} is stated ({row.setting}: {row.attack})"
            )


CHECKS: tuple[Check[System], ...] = (
    Check("settings", settings, "declare each setting once, with its meaning below it"),
    Check("statement", statement, "state an event of accounting.events that an accountant knows"),
    Check("events", events, "let the encoder's event depend on public settings alone"),
    Check(
        "length of a report", length, "send as many bytes as the mechanism says, for every update"
    ),
    Check("run and resume", run, "keep nothing between rounds but what State and stores hold"),
    Check("what is charged", charged, "state the event in the encoder that makes the bytes"),
    Check("alone and in groups", groups, "compute each row of an update from that row alone"),
    Check("boundary", boundary, "send nothing that was computed from examples but by a mechanism"),
    Check("server", server, "draw from the server's draw, and refuse an empty round"),
    Check("law", law, "a report costs more than is stated: state that", thorough=True),
)


def check_system(config: RunConfig, *, thorough: bool = False) -> list[Outcome]:
    """Check that a configuration of a system keeps its contract, on few of the digits.

    Args:
        config: a configuration with ``dataset = digits``; it is shortened as far as it allows.
        thorough: whether it is also attacked, as the audit does (``law``), for 20 seconds or so.

    Returns:
        One outcome for each check.
    """
    return list(outcomes(CHECKS, [System(shortened(config))], thorough=thorough))


def small_config(kind: type[RunConfig]) -> RunConfig:
    """Return a small configuration of a system on the digits.

    A setting that has no default and that ``SMALL`` does not give is 1.

    Raises:
        ConfigError: the system refuses these settings.
    """
    needed = {name for name, field in kind.model_fields.items() if field.is_required()}
    return kind.model_validate({**dict.fromkeys(needed, 1), **SMALL})


def configs_in(module: ModuleType | None) -> list[RunConfig]:
    """Return a small configuration of each system that a module defines."""
    return [
        small_config(kind)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, RunConfig) and kind.__module__ == getattr(module, "__name__", "")
    ]


def check_part(kind: type[Any], *, thorough: bool = False) -> dict[str, list[Outcome]]:
    """Check a part of your own in the systems of its module that use it.

    Args:
        kind: the part's class.
        thorough: see ``check_system``.

    Returns:
        The outcomes, by the name of the system.

    Raises:
        ConfigError: no system of its module makes such a part.
    """
    found, init = {}, kind.__init__
    for config in configs_in(inspect.getmodule(kind)):
        made = False

        def noted(part: Any, *args: Any, **more: Any) -> None:
            nonlocal made
            made = True
            init(part, *args, **more)

        with mock.patch.object(kind, "__init__", noted):
            outcomes_here = check_system(config.changed(), thorough=thorough)
        if made:
            found[config.name()] = outcomes_here
    if not found:
        raise ConfigError(
            f"check {kind.__module__}:{kind.__qualname__}: it is neither a mechanism, a system, an "
            "event nor an attack, and no system of its module makes one: put a preset that uses it "
            "into the same file"
        )
    return found
