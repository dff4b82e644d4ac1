"""Systems by name: fedldp's presets, each in a module of its own, and users' own, by address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from fedldp.accounting.accountants import Side
from fedldp.accounting.guarantees import HOUSE, SIDE_OF, Unit
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import ShufflerInPath, Statement, SumInPath, statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import rests_on
from fedldp.algorithms.problem import Problem
from fedldp.core import kinds
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Assumption, Caveat
from fedldp.core.formatting import rounded_count
from fedldp.core.registry import PAPERS, is_address, load, module_names

_PRESETS = "fedldp.algorithms.presets"


def modules_of_systems() -> dict[str, str]:
    """Return the module of every system: of its name, or a paper's ``preset``, ``preset_KIND``."""
    found = {name: f"{_PRESETS}.{name}" for name in module_names(_PRESETS)}
    for paper in module_names(PAPERS):
        for name in module_names(f"{PAPERS}.{paper}"):
            if name.startswith("preset"):
                found[paper + name.removeprefix("preset")] = f"{PAPERS}.{paper}.{name}"
    return dict(sorted(found.items()))


def systems() -> dict[str, type[RunConfig]]:
    """Return the configuration class of every system, by the system's name."""
    return {
        name: getattr(import_module(module), name) for name, module in modules_of_systems().items()
    }


def find_system(name: str) -> type[RunConfig]:
    """Return the system called ``name``: one of ``systems()``, or the user's "module:function".

    The setting ``system`` of a user's own system has that address as its value, so that a saved
    configuration finds its system again.

    Raises:
        ConfigError: there is no such system, or the address is not that of a system.
    """
    if not is_address(name):
        known = modules_of_systems()
        if name not in known:
            raise ConfigError(f'system = {name}: choose {", ".join(known)} or "module:function"')
        named: type[RunConfig] = getattr(import_module(known[name]), name)
        return named
    found = load(name, "system")
    if not (isinstance(found, type) and issubclass(found, RunConfig)):
        raise ConfigError(
            f"system = {name}: it is not a preset; write @preset above its function, see "
            "fedldp.algorithms.preset"
        )
    if found.name() != name:
        raise ConfigError(
            f'system = {name}: declare in it system: Literal["{name}"] = "{name}"; a saved '
            "configuration finds its system by this value"
        )
    return found


def with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved configuration, in which each missing setting has its default.

    The configuration of a user's own system is returned unchanged, because reading its settings
    would run the user's code.
    """
    name = str(settings.get("system"))
    fields = find_system(name).model_fields if name in modules_of_systems() else {}
    defaults = {name: each.get_default() for name, each in fields.items() if not each.is_required()}
    return {**defaults, **settings}


def own_code(config: RunConfig) -> tuple[str, ...]:
    """Return the addresses of the user's own code that states what a client releases.

    A statement relies on what this code states, which fedldp has not proven.
    """
    named = (config.system, getattr(config, "mechanism", None))
    return tuple(name for name in named if isinstance(name, str) and is_address(name))


def assumed(config: RunConfig, begins: str | None = None) -> tuple[Caveat, ...]:
    """Return warnings of what lines assume about the user's own features, models and numbers.

    Args:
        config: the configuration.
        begins: the digest of the weights that a deployed run begins with; None if it draws them.
    """
    found: list[tuple[Assumption, str]] = []
    named = str(getattr(config, "features", "none"))
    if rest := rests_on(named):
        kind = kinds.MAPS_ALONE if rest == "code" else kinds.PUBLIC_FILE
        found.append((kind(of=named), rest))
    for name in ("model", "loss"):
        if is_address(value := getattr(config, name)):
            found.append((kinds.KEEPS_NOTHING(setting=name, of=value), "code"))
    if config.initial is not None:
        # A model that is only evaluated may have been trained on the same people.
        kind = kinds.GIVEN_MODEL if getattr(config, "ask", None) else kinds.BEGINS_PUBLIC
        found.append((kind(of=config.initial), "file"))
    elif config.trainable != "all" and is_address(config.model):
        found.append((kinds.FROZEN_PUBLIC(of=config.model), "code"))
    if begins is not None:
        found.append((kinds.GIVEN_MODEL(of=begins[:16]), "file"))
    declared = ("centre_columns", "fill_columns", "scale_columns", "categories", "classes",
                "spread_columns", "class_shares", "other_columns", "fold_columns",
                "label_range", "label_typical", "edges")  # fmt: skip
    # A number may be 0, which is declared like any other.
    public = tuple(
        name for name in declared if getattr(config, name, None) not in (None, {}, [], ())
    )
    if public:
        found.append((kinds.DECLARED_PUBLIC(of=public), "facts"))
    if config.class_weights is not None:
        found.append((kinds.NOT_COUNTED, "numbers"))
    return tuple(kinds.RESTS_ON(assumption=what, of=of) for what, of in found)


def notes(config: RunConfig, problem: Problem | None) -> list[Caveat]:
    """Return the system's additional caveats; sentences of a user's own system as its notes."""
    composition = config.composition
    found = [
        kinds.OWN_NOTE(of=config.name(), text=each) if isinstance(each, str) else each
        for each in composition.notes
    ]
    if composition.notes_on is not None and problem is not None:
        found += composition.notes_on(problem)
    return found


def stated(
    config: RunConfig,
    problem: Problem | None,
    releases: ReleaseHistory,
    *,
    asked: Unit | None,
    summed: SumInPath | None,
    shuffler: ShufflerInPath | None = None,
    delta: float | None = None,
    searched: Unit | None = None,
    begins: str | None = None,
) -> Statement:
    """Return the statement of a configuration for what was or will be released.

    Args:
        config: the configuration.
        problem: the public facts about the data; None if they are unknown.
        releases: what every client releases.
        asked: the unit that the run is to protect.
        summed: the secure sum between the clients and the server, if there is one.
        shuffler: the shuffler between the clients and the server, if there is one.
        delta: the delta of the approximate lines; None uses ``config.delta``.
        searched: see ``statement``.
        begins: see ``assumed``.
    """
    return statement(
        releases,
        claim=config.claim(),
        shuffler=shuffler,
        summed=summed,
        delta=config.delta if delta is None else delta,
        own_code=own_code(config),
        assumed=assumed(config, begins),
        persons_at_sites=config.persons_at_sites,
        protected=_protected(config, problem, asked),
        searched=searched,
    )


def deployed(
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
    """Return the statement of a deployed run: ``stated``, for what a deployment sends.

    Args:
        config: the configuration of the run.
        problem: the agreed facts about the data; None if they are unknown.
        releases: who released what in which round, and, if reports are summed, who is in each sum.
        summed: the secure sum between the clients and the server, if there is one.
        simulated: whether all randomness comes from a seed.
        timed: what the statement does not cover about the timing of answers.
        begins: see ``assumed``.
        delta: the delta for approximate guarantees. None: the configuration's delta.
        searched: see ``statement``.
    """
    unit: Unit | None = None
    # An agreement has no target; the setting that meets it has its unit.
    if (meaning := config.composition.calibration.meaning) is not None:
        of_people = problem is not None and problem.people is not None
        unit = "person" if meaning.unit == "record" and of_people else meaning.unit
    more: Any = {"delta": delta, "searched": searched, "begins": begins}
    found = stated(config, problem, releases, asked=unit, summed=summed, **more)
    # Leave out guarantees that hold only for a simulation's noise in real arithmetic: they do not
    # apply to what is sent.
    lines = tuple(line for line in found.guarantees if not line.is_idealised)
    warnings = [each for each in found.warnings if simulated or each != kinds.SIMULATED]
    warnings += [*notes(config, problem), timed]
    return replace(found, guarantees=lines, warnings=tuple(warnings))


def _protected(config: RunConfig, problem: Problem | None, asked: Unit | None) -> dict[Side, int]:
    """Return how many records, people or clients the asked and the claimed unit protect.

    Only public numbers are returned. A number that was counted in private rows is rounded up, and
    is returned only for the asked unit: its neighbours have equally many of them.
    """
    claim, found = config.claim(), dict[Side, int]()
    for unit in (asked, None if claim is None else claim.unit):
        if unit is None:
            continue
        side = SIDE_OF[unit]
        if side == "client":
            found[side] = config.num_clients
        elif problem is not None:
            whole = problem.num_examples
            number = whole if side == "record" or problem.people is None else problem.people
            if not problem.counted_in_private:
                found[side] = number
            elif unit == asked:
                found[side] = rounded_count(number)
    return found


def name_and_digest(config: RunConfig, problem: Problem) -> dict[str, str] | None:
    """Return the setting ``features``, and the digest of the function; None without features.

    Raises:
        ConfigError: these features cannot be computed from such examples.
    """
    mapping = config.composition.features.mapping(problem)
    if mapping is None:
        return None
    return {"name": str(getattr(config, "features")), "digest": mapping.digest}  # noqa: B009


def noted_features(config: RunConfig, problem: Problem) -> dict[str, str] | None:
    """Return ``name_and_digest`` for a run's folder; None for the user's own code.

    A function may come from a notebook, where it has no source from which to compute a digest.
    """
    code = rests_on(str(getattr(config, "features", "none"))) == "code"
    return None if code else name_and_digest(config, problem)


def whose_word(config: RunConfig) -> str:
    """Return ``stated_by`` for the statement's lines: "fedldp", or the user's own code."""
    return ", ".join(own_code(config)) or HOUSE
