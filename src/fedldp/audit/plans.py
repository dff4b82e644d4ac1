"""Which games an audit plays against a system: one for each line of its statement and setting.

A system is audited as configured; with smaller epsilons, if the source claims more than counting
can refute; and in a small setting, with a model of few weights and a budget at which every proven
epsilon could be refuted if it were false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedldp.accounting.guarantees import Adversary, Guarantee, Unit
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InLabels
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import PrivacyTarget
from fedldp.audit.efforts import Effort
from fedldp.audit.game import Planned
from fedldp.audit.harness import AttackedClient, weakest
from fedldp.audit.inputs import Swap
from fedldp.audit.results import Line
from fedldp.audit.system_checks import MapCheck, PeopleCheck, line_of_system
from fedldp.audit.systems import SenderGame, SystemGame, WholeRun, rounds_in_words
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.registry import is_address
from fedldp.simulation.plan import Plan, plan, state

CURVE = 0.1
"""One more delta, for a guarantee that is a curve: few trials may show more at this delta."""
ROUNDS = 2
"""The most rounds of a run that are played."""
LATE = 12
"""A round played without the earlier ones, because a client's behaviour may change over a run."""
HOSTILE = (16.0, 1 / 16)
"""The factors by which a dishonest server multiplies all numbers that it sends."""
WHOLE = 5
"""The number of rounds in a whole run."""
CLIENTS = 200
"""The number of clients that are canaries in a whole run."""
RECORDS = Problem((1, 16, 16), 2, 512)
"""The input shape of a whole run: as many pixels as there are record canaries."""
SMALL = Problem((1, 1, 2), 2, 80)
"""The input shape of the small setting; if the data name people, each person has one example."""
REFUTABLE = 3.0
"""The largest epsilon of a claim that the trials of the quick mode can refute."""
BUDGET = 1.5
"""The budget of the small setting. At 1, so few trials would not detect noise of half the size."""
MOST_EXAMPLES = 100

_CLAIMED = "with the claim scaled to 1"

_TARGETS: tuple[tuple[Unit, Adversary], ...] = (
    ("record", "server"),
    ("person", "server"),
    ("client-round", "server"),
    ("client-run", "summing-server"),
    ("client-run", "downlink"),
    ("record", "downlink"),
    ("person", "downlink"),
)


@dataclass(frozen=True)
class AuditedSetting:
    """A configuration of a system that is audited.

    Attributes:
        name: the setting, in words.
        planned: the configuration, with its statement.
        attacked: a client with the least protection.
        late: whether to play only its last round.
    """

    name: str
    planned: Plan
    attacked: AttackedClient
    late: bool = False


def settings_of(config: RunConfig, problem: Problem) -> list[AuditedSetting]:
    """Return the settings of a system that are audited.

    Raises:
        ConfigError: the system as configured is refused.
    """
    if config.composition.channel.phases > 1:  # every trial plays all phases, so use few clients
        changes = _small_changes(config, ROUNDS)
        changes |= {"dropout": 0.0} if config.has("dropout") else {}
        few = config.changed(**changes)
        return [_setting("as configured, but with two clients and a small model", few, SMALL)]
    found = [_setting("as configured", config, problem)]
    claim = found[0].planned.scheduled.claim()
    if claim is not None and claim.epsilon > REFUTABLE:
        with suppress(FedldpError, NotImplementedError):  # the system may not allow this setting
            found.append(_setting(_CLAIMED, _with_claim(config, claim.epsilon), problem))
    stated = {(line.unit, line.adversary) for line in found[0].planned.privacy.guarantees}
    targets = [each for each in _TARGETS if each in stated]  # to try the others would take minutes
    small = _small(config, problem, targets)
    found += small
    if small and config.rounds > ROUNDS:
        found += [replace(one, late=True) for one in _small(config, problem, targets, LATE)]
    return found


def planned_games(config: RunConfig, problem: Problem, effort: Effort) -> list[Planned]:
    """Return the games of a system in all of its settings, and its checks."""
    settings = settings_of(config, problem)
    found: list[Planned] = [game for one in settings for game in _planned(one, effort)]
    checks = (PeopleCheck.of(config, problem), MapCheck.of(config, problem))
    found += [check for check in checks if check is not None]
    if config.composition.channel.shuffles_reports and config.num_clients > 1:
        small = [setting for setting in settings if not setting.late][-1].planned
        found.append(_of_senders(small, effort))
    return [*found, *_whole_runs(config, problem)]


def _of_senders(small: Plan, effort: Effort) -> SenderGame:
    config = small.scheduled
    line = line_of_system(
        config,
        small.problem,
        setting="senders",
        unit="client-round",
        adversary="shuffled-server",
        neighbours="another client with the same data sends the report",
        proven=0.0,
    )
    return SenderGame(
        lines=(line,), effort=effort, config=config, problem=small.problem, key="senders"
    )


def representatives() -> list[RunConfig]:
    """Return configurations of every system, from its recipes on digits.

    For each system, this is the recipe named after the system and the data, or else the system's
    first recipe. A recipe with a public encoder, for which more is proven, is added to these.
    """
    from fedldp.algorithms.recipes import recipes

    found: dict[str, RunConfig] = {}
    for recipe in recipes().values():
        config = recipe.config
        if config.dataset != "digits":
            continue
        name = config.name()
        digits = f"{name.replace('_', '-')}-digits"
        if recipe.name == digits or name not in found:
            found[name] = config
        if recipe.name == f"{digits}-public":
            found[f"{name} public"] = config
    return [found[name] for name in sorted(found)]


def _setting(name: str, config: RunConfig, problem: Problem) -> AuditedSetting:
    planned = plan(config, problem)
    attacked = _attacked(planned)
    if not attacked.trains_once:  # every trial trains, so shorten training
        changes: dict[str, Any] = {
            each: 1 for each in type(config).model_fields
            if each.endswith("epochs") and getattr(config, each) != 1
        }  # fmt: skip
        if not name.startswith("small") and config.rounds > 1:
            changes["rounds"] = _rounds(config, 1)
        if changes:
            told = " and ".join(f"{key} = {value}" for key, value in changes.items())
            name += f", but with {told}"
            planned = plan(planned.config.changed(**changes, target=None), problem)
            attacked = _attacked(planned)
    return AuditedSetting(name, planned, attacked)


def _attacked(planned: Plan) -> AttackedClient:
    """Return a client among those with the least protection."""
    return AttackedClient(planned.scheduled, planned.problem, weakest(planned.scheduled))


def _with_claim(config: RunConfig, claimed: float) -> RunConfig:
    """Return a copy that claims 1: every epsilon is divided by the claimed one.

    Raises:
        ConfigError: the configuration has no epsilon.
    """
    changes: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name.startswith("epsilon") and isinstance(value, list):
            changes[name] = [each / claimed for each in value]
        elif name.startswith("epsilon") and isinstance(value, int | float):
            changes[name] = value / claimed
    if not changes:
        raise ConfigError("epsilon: the configuration has none")
    return config.changed(**changes)


def _small(
    config: RunConfig,
    problem: Problem,
    targets: Iterable[tuple[Unit, Adversary]],
    rounds: int = ROUNDS,
) -> list[AuditedSetting]:
    """Return the small setting, in which proven epsilons can be refuted, if the system has one."""
    changes = _small_changes(config, rounds)
    people = problem.people
    few = replace(
        problem,
        num_examples=2 * problem.num_examples // config.num_clients,
        people=None if people is None else max(2, 2 * people // config.num_clients),
    )
    little = _with_people(SMALL, problem)
    if isinstance(config.composition.bound_of(0).chart, InLabels):
        little = replace(little, num_classes=3)  # two labels would have mirrored weights
    models: tuple[tuple[dict[str, Any], Problem], ...] = (
        ({}, little),
        ({"model": config.model}, few),
    )
    for unit, adversary in targets:
        for model, shape in models:
            try:
                target = PrivacyTarget(
                    unit=unit, epsilon=BUDGET, delta=config.delta, adversary=adversary
                )
                small = config.changed(**{**changes, **model, "target": target})
                return [_setting(f"small setting with a budget of {BUDGET:g}", small, shape)]
            except (FedldpError, ValueError):
                continue
    return []


def _small_changes(config: RunConfig, rounds: int) -> dict[str, Any]:
    """Return the changes that make a run small: at most ``rounds`` rounds of two clients.

    If the run has several stages, one round trains, and the others stay.
    """
    trained, rounds = config.composition.trained, _rounds(config, rounds)
    changes: dict[str, Any] = {
        "rounds": rounds, "num_clients": 2 * rounds if config.answers_once else 2,
        "clients_per_round": None, "local_epochs": 1, "batch_size": 10,
        "untrusted_clients": 0, "committee": None,
        "model": "logistic" if trained is None else "linear",
    }  # fmt: skip
    for name in config.per_client:
        value = getattr(config, name)
        if isinstance(value, Sequence):
            changes[name] = value[0]
    return changes


def _rounds(config: RunConfig, most: int) -> int:
    """Return at most so many rounds; or one that trains, with all stages beside it.

    Without one that trains, such a run would be refused, unless it only asks.
    """
    trained = config.composition.trained
    if trained is not None:
        return config.rounds - max(0, len(trained) - 1)
    return min(most, config.rounds)


def _planned(setting: AuditedSetting, effort: Effort) -> Iterator[SystemGame]:
    planned, config = setting.planned, setting.planned.scheduled
    stated = list(planned.privacy.guarantees)
    if any(line.kind == "approximate" for line in stated):
        stated += state(config, planned.problem, planned.releases, delta=CURVE).guarantees
    claim = config.claim()
    claimed_against = "downlink" if config.composition.downlink is not None else "server"
    small = setting.name.startswith("small")
    groups = dict.fromkeys((li.unit, li.adversary, li.neighbours) for li in stated)
    known = {li.unit for li in stated if li.adversary == "server" and li.kind != "none"}
    of_a_round: Unit = next(
        (unit for unit in ("person", "record") if unit in known and "client-round" not in known),
        "client-round",
    )
    for unit, adversary, neighbours in groups:
        if setting.late and (unit, adversary) != (of_a_round, "server"):
            continue
        if adversary != "server" and not small:
            continue  # games with all clients of a real run would take too long
        own = [li for li in stated if (li.unit, li.adversary) == (unit, adversary)]
        claimed_here = claim if _is_claimed(claim, unit, adversary, claimed_against) else None
        if setting.name.startswith(_CLAIMED) and claimed_here is None:
            continue  # this setting serves only to test the claim
        lines = tuple(
            line_of_system(
                config,
                planned.problem,
                setting=setting.name,
                unit=unit,
                adversary=adversary,
                neighbours=neighbours,
                delta=delta,
                claimed=_claimed(claimed_here, delta),
                claim_unit=None if claimed_here is None else claimed_here.unit,
                proven=_proven(own, delta),
            )
            for delta in _deltas(own, claimed_here)
        )
        games = [_game(setting, lines, swap, effort) for swap in _swaps(unit, setting.attacked)]
        if setting.late:
            games = [replace(game, rounds=(config.rounds,)) for game in games]
        elif small and (unit, adversary) == (of_a_round, "server"):
            games += _dishonest(games) if setting.attacked.role.phases == 1 else []
        kind = "late" if setting.late else setting.name.partition(" ")[0]
        for game in games:
            key = f"{kind}: {unit}, {adversary}{game.suffix}"
            if not game.suffix:
                yield replace(game, key=key)
            elif any(line.proven is not None for line in lines):  # else there is nothing to refute
                yield replace(game, key=key, lines=lines[-1:])


def _dishonest(games: Sequence[SystemGame]) -> list[SystemGame]:
    """Return games with a server that sends every request twice or sends wrong numbers."""
    again = [replace(game, asked=2) for game in games if game.swap in ("client", "person")]
    return again + [replace(game, factor=factor) for game in games for factor in HOSTILE]


def _swaps(unit: Unit, attacked: AttackedClient) -> tuple[Swap, ...]:
    if unit == "record":
        return ("record", "label")
    if unit == "person":
        return ("person",)
    if unit == "weight":
        return ("weight",) if attacked.takes_updates else ()
    return ("client",)


def _game(
    setting: AuditedSetting, lines: tuple[Line, ...], swap: Swap, effort: Effort
) -> SystemGame:
    config, problem = setting.planned.scheduled, setting.planned.problem
    unit, once = lines[0].unit, setting.attacked.trains_once
    drawn_once = once and config.composition.local.drawn_once
    many = unit == "client-run" or (unit in ("record", "person") and not drawn_once)
    rounds = min(ROUNDS, config.rounds) if many else 1
    if many and setting.name.startswith("small") and config.composition.trained is not None:
        rounds = config.rounds  # every stage is played
    count = max(1, problem.num_examples // config.num_clients)
    if once:
        claim = config.claim()
        if claim is None or claim.unit != "record":
            count = min(count, MOST_EXAMPLES)
    else:
        count = 1 if unit == "record" else min(count, ROUNDS)
    return SystemGame(
        lines=lines,
        effort=effort,
        config=config,
        problem=problem,
        index=setting.attacked.index,
        swap=swap,
        rounds=tuple(range(1, rounds + 1)),
        count=count,
        trained=not once or lines[0].adversary != "server",
    )


def _is_claimed(claim: Claim | None, unit: Unit, adversary: Adversary, against: str) -> bool:
    """Return whether a claim is for a unit; a claim for a weight counts for a report, too."""
    if claim is None or adversary != against:
        return False
    return claim.unit == unit or (claim.unit == "weight" and unit == "client-round")


def _deltas(lines: Sequence[Guarantee], claim: Claim | None) -> tuple[float, ...]:
    found = {line.delta for line in lines if line.kind != "none"}
    if claim is not None:
        found.add(claim.delta)
    pure = any(line.kind == "pure" for line in lines)
    return tuple(sorted(d for d in found if d != CURVE or not pure)) or (0.0,)


def _claimed(claim: Claim | None, delta: float) -> float | None:
    return None if claim is None or delta < claim.delta else claim.epsilon


def _proven(lines: Sequence[Guarantee], delta: float) -> float | None:
    known = [
        float(line.epsilon) for line in lines if line.epsilon is not None and line.delta <= delta
    ]
    return min(known, default=None)


_TINY = 1e-9
"""The delta of whole runs: m canaries add about 2 m delta to the bound's p-value in any case."""


def _whole_runs(config: RunConfig, problem: Problem) -> Iterator[WholeRun]:
    """Yield the games of whole runs, whose canaries are records, persons or clients."""
    of_one: Literal["record", "person"] = "record" if problem.people is None else "person"
    units: tuple[tuple[Literal["record", "person", "client-run"], Problem, int], ...] = (
        (of_one, _with_people(RECORDS, problem), 2),
        ("client-run", replace(SMALL, num_examples=CLIENTS), CLIENTS),
    )
    for unit, few, num_clients in units:
        rounds = 1 if config.answers_once else WHOLE
        changes = _small_changes(config, rounds) | {
            "num_clients": num_clients,
            "target": PrivacyTarget(unit=unit, epsilon=1.0, delta=config.delta),
        }  # fmt: skip
        try:
            planned = plan(config.changed(**changes), few, delta=_TINY)
        except FedldpError:
            try:  # a target that cannot be met here is dropped
                planned = plan(config.changed(**changes | {"target": None}), few, delta=_TINY)
            except FedldpError:
                continue
        lines = planned.privacy.guarantees
        own = [line for line in lines if (line.unit, line.adversary) == (unit, "server")]
        if not own or planned.scheduled.algorithm(few).server().dialogue is not None:
            continue
        delta = min(line.delta for line in own)
        config_of_run = planned.scheduled
        line = line_of_system(
            config_of_run,
            few,
            setting=f"small setting, {rounds_in_words(config_of_run.rounds)}",
            unit=unit,
            neighbours=own[0].neighbours,
            delta=delta,
            proven=_proven(own, delta),
        )
        yield WholeRun(lines=(line,), config=config_of_run, problem=few, key=f"{unit}, one run")


def _with_people(small: Problem, problem: Problem) -> Problem:
    """Return ``small``, with one person for each example if ``problem`` names people."""
    return small if problem.people is None else replace(small, people=small.num_examples)


def configs_of(name: str) -> list[RunConfig]:
    """Return the configurations that a user names: by recipe, TOML file, system or "module:Class".

    Raises:
        ConfigError: nothing has that name.
    """
    from fedldp.algorithms.systems import find_system, systems
    from fedldp.simulation.settings import named

    if name in systems():
        known = [config for config in representatives() if config.name() == name]
        if not known:
            find_system(name)
            raise ConfigError(f"{name}: none of its recipes can be audited here; name a recipe")
        return known
    if is_address(name) and not name.endswith(".toml"):
        return [find_system(name).model_validate({})]
    return [named(name)]
