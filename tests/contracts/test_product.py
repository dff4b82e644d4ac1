"""Contracts over combinations of parts, not only over presets.

This covers ``composed``, its local updates in closed form, and channel and participation of every
preset. Every allowed pair of values is in at least one run, and every refused pair has a line that
names both values and a remedy that works.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import part_of
from tables import DOWNLINK, table_of
from test_client_boundary import OTHERS, Watch, assert_equal_but_for_clear

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.algorithms.systems import find_system, systems
from fedldp.core.errors import FedldpError
from fedldp.mechanisms import find_mechanism, mechanisms
from fedldp.protocol.roles import Update
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Sensitive, read_request
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.cases import Case, FixedKeys, deploys, events_of, in_clear
from fedldp.testing.clients import Roles, sender_of, senders_of
from fedldp.training.linear_models import LinearModel, Statistics
from fedldp.training.tensors import one_thread

Choice = Mapping[str, Any]
Pair = frozenset[tuple[str, Any]]

SMALL: dict[str, Any] = {
    "dataset": "digits", "model": "logistic", "num_clients": 6, "rounds": 2, "learning_rate": 0.1,
    "num_examples": 120,
}  # fmt: skip
OF_COMPOSED: dict[str, tuple[Any, ...]] = {
    "mechanism": (*mechanisms(), "none", "codes"),
    "bound": ("range", "norm"),
    "send": ("weights", "update"),
    "channel": ("named", "shuffle", "sum", "central"),
    "participation": ("all", "drawn", "balanced", "once", "auto"),
    "server_optimizer": ("none", "momentum", "adam"),
}
OF_CLOSED: dict[str, tuple[Any, ...]] = {
    "local_update": ("solution", "statistics"),
    "mechanism": ("k_closest", "two_point", "laplace", "gaussian_share", "none", "codes"),
    "bound": ("range", "norm", "direction"),
    "send": ("weights", "update"),
    "channel": ("named", "shuffle", "sum", "central"),
}
OF_PRESETS: dict[str, tuple[Any, ...]] = {
    "system": tuple(name for name in systems() if name != "composed"),
    "channel": (None, "named", "shuffle", "sum", "central"),
    "participation": (None, "all", "drawn", "balanced", "once", "auto"),
}
TABLES = {"composed": OF_COMPOSED, "closed": OF_CLOSED, "presets": OF_PRESETS}
BARE = ("none", "codes")


@cache
def of_preset(system: str) -> dict[str, Any]:
    """Return settings of a system's first recipe on digits, for few clients and rounds."""
    found = [recipe.config for recipe in recipes().values() if recipe.config.system == system]
    config = next(config for config in found if config.dataset == "digits")
    settings = config.model_dump()
    epochs = {name: min(1, settings[name]) for name in settings if "epochs" in name}
    few = {"num_clients": 6, "rounds": 2, "num_examples": 120, "clients_per_round": None}
    few["untrusted_clients"] = 0
    few |= {"batch_size": min(10, settings["batch_size"])}
    few |= {"dropout": 0.0} if "dropout" in settings else {}
    one = {n: v[0] for n, v in settings.items() if isinstance(v, list) and n in config.per_client}
    return {**settings, **few, **epochs, **one}


def made(choice: Choice) -> RunConfig:
    """Return the configuration of a choice of parts.

    Raises:
        ConfigError: they are refused.
    """
    settings = {**SMALL, "system": "composed"}
    if "system" in choice:
        settings = dict(of_preset(choice["system"]))
    settings |= {name: value for name, value in choice.items() if value is not None}
    if settings.get("local_update", "sgd") != "sgd":
        settings.pop("learning_rate")
    mechanism = choice.get("mechanism")
    if mechanism in BARE:
        settings.pop("bound", None)
    elif mechanism == "gaussian_share":
        settings.setdefault("epsilon", 4.0)
    elif mechanism is not None:
        one = find_mechanism(mechanism).epsilon_unit == "weight"
        settings.setdefault("epsilon", 4.0 if one else 100.0)
    elif "system" not in choice:
        settings.setdefault("epsilon", 4.0)
    if settings.get("participation") in ("drawn", "balanced"):
        settings["clients_per_round"] = 4
    if settings.get("server_optimizer") == "adam":
        settings["server_rate"] = 0.05
    return find_system(settings["system"]).model_validate(settings)


def refusal(choice: Choice, *, thoroughly: bool = True) -> str:
    """Return the line with which a choice or its plan is refused; empty if it is allowed."""
    try:
        config = made(choice)
        if thoroughly:
            plan(config, problem_of(config, None))
    except FedldpError as error:
        return str(error)
    return ""


def pairs_of(choice: Choice) -> set[Pair]:
    return {frozenset(two) for two in itertools.combinations(choice.items(), 2)}


@cache
def product(axes: str) -> tuple[list[Choice], int]:
    """Return the allowed choices along some axes, and the number of all choices."""
    found = TABLES[axes]
    every = [dict(zip(found, values, strict=True)) for values in itertools.product(*found.values())]
    return [choice for choice in every if not refusal(choice, thoroughly=axes == "presets")], len(
        every
    )


@cache
def covering(axes: str) -> list[Choice]:
    """Return choices that cover every allowed pair, greedily the best of fifty; always the same
    choices."""
    allowed, _ = product(axes)
    open_pairs = set().union(*map(pairs_of, allowed))
    draw = np.random.default_rng(7)
    found: list[Choice] = []
    while open_pairs:
        wanted = min(open_pairs, key=lambda pair: sorted(map(repr, pair)))
        candidates = [choice for choice in allowed if wanted <= set(choice.items())]
        some = [candidates[at] for at in draw.permutation(len(candidates))[:50]]
        found.append(max(some, key=lambda choice: len(pairs_of(choice) & open_pairs)))
        open_pairs -= pairs_of(found[-1])
    return found


AXES = pytest.mark.parametrize("axes", [*TABLES])


@AXES
def test_the_event_of_the_encoder_that_ran_is_charged(axes: str) -> None:
    chosen, (allowed, every) = part_of(covering(axes)), product(axes)
    for choice in chosen:
        config = made(choice)
        result = simulate(config)
        planned = plan(config, problem_of(config, None))
        (run,) = (each["run"] for each in result.ledger.to_record()["runs"])
        if not getattr(config, "dropout", 0):  # a client that drops out has not paid for all
            assert result.ledger.releases(run) == planned.releases, choice
        for by_client in table_of(planned.releases).values():
            for client, event in by_client.items():
                if client == DOWNLINK:
                    continue
                encoder = planned.scheduled.algorithm(planned.problem).encoder(client)
                phases = range(config.composition.channel.phases)
                assert event in [encoder.event(phase) for phase in phases], choice
    share = len(chosen) / len(allowed)
    pairs = "every allowed pair" if chosen == covering(axes) else "some allowed pairs"
    print(
        f"{axes}: {len(chosen)} of {len(allowed)} allowed combinations ran ({share:.0%}), with "
        f"{pairs}; {every - len(allowed)} of {every} are refused"
    )


@AXES
def test_reports_are_equal_one_by_one_and_in_groups(axes: str) -> None:
    for choice in part_of(covering(axes)):
        config = made(choice)
        if config.composition.channel.phases > 1:
            continue
        planned = plan(config, problem_of(config, None))
        roles = Roles(planned.scheduled, planned.problem)
        broadcast, size = roles.broadcast, roles.layout.size
        rows = np.random.default_rng(3).normal(0, 0.1, (4, size)).astype(np.float32)
        rows[2] = np.nan
        aux = {}
        if choice.get("system") == "priority":
            aux = {"importance": np.zeros((4, planned.problem.input_shape[-1] ** 2))}
        encoder = roles.encoder(0)
        if choice.get("local_update") == "statistics":
            own = np.random.default_rng(4).normal(0, 0.01, (4, statistics_of(config)))
            aux = {"statistics": own}
        together = Sensitive(Update(rows=rows, aux=aux))
        found = list(encoder(together, broadcast, senders_of([20] * 4)))
        one_by_one = [
            alone(encoder, Sensitive(together.open().alone(at)), broadcast, sender_of(20, at))
            for at in range(4)
        ]
        assert found == one_by_one, choice


def statistics_of(config: RunConfig) -> int:
    """Return how many numbers the statistics for a linear model of the digits have."""
    layout = config.layout(problem_of(config, None))
    return Statistics(LinearModel.of(layout)).size


@pytest.mark.parametrize(
    "axes", ["composed", "closed", pytest.param("presets", marks=pytest.mark.slow)]
)
def test_what_leaves_depends_on_examples_only_through_a_mechanism(
    axes: str, tmp_path: Path
) -> None:
    seen = set()
    for at, choice in enumerate(part_of(covering(axes))):
        names = ("system", "local_update", "mechanism", "bound", "send", "channel")
        sent = tuple(choice.get(n) for n in names)
        if sent in seen:
            continue
        seen.add(sent)
        with one_thread():
            check_boundary(made(choice), tmp_path / str(at))


def check_boundary(config: RunConfig, folder: Path) -> None:
    """Check that, with the mechanism's output held fixed, nothing depends on the examples."""
    case, events = Case.of(config), events_of(config)
    keys = FixedKeys(0, not deploys(config))
    talk = case.talk(lambda client: FixedKeys(client, keys.simulated), folder / "talk")
    watch = Watch(case, talk, folder / "watch")
    base, _, _ = watch.answers(watch.own)
    for name in ("other features", "other labels", "one example"):
        examples = OTHERS[name](watch.own)
        if len(examples) != len(watch.own) and watch.role.most_examples is not None:
            continue  # its price counts examples, so a client has that number
        found, _, _ = watch.answers(examples)
        for request, one, two in zip(talk.requests, base, found, strict=True):
            clear = in_clear(events[read_request(request).phase])
            more = "payload" if len(examples) != len(watch.own) and clear else None
            assert_equal_but_for_clear(one, two, clear, watch.own, examples, more)


# Refusals


def refused_choices(axes: str) -> list[dict[str, Any]]:
    """Return values, and pairs of other values, that no allowed choice has; the rest is at its
    defaults."""
    allowed, _ = product(axes)
    table = TABLES[axes]
    values = {item for choice in allowed for item in choice.items()}
    pairs = set().union(*map(pairs_of, allowed))
    found: list[dict[str, Any]] = []
    for name, every in table.items():
        found += [{name: value} for value in every if (name, value) not in values]
    for (one, ones), (other, others) in itertools.combinations(table.items(), 2):
        found += [
            {one: a, other: b}
            for a, b in itertools.product(ones, others)
            if {(one, a), (other, b)} <= values and frozenset({(one, a), (other, b)}) not in pairs
        ]
    if axes == "presets":  # a pair belongs to a system that has its first value
        for choice in found:
            if "system" not in choice:
                first = set(list(choice.items())[:1])
                own = next(other for other in allowed if first <= set(other.items()))
                choice["system"] = own["system"]
    return found


@pytest.mark.parametrize("axes", ["composed", "presets"])
def test_a_refusal_of_a_pair_names_both_and_a_remedy_that_is_accepted(axes: str) -> None:
    assert refused_choices(axes)
    for choice in refused_choices(axes):
        line = refusal(choice)
        assert line, choice
        assert "\n" not in line
        before, _, remedies = line.rpartition("; ")
        assert len(re.findall(r"\w+ = [\w.-]+", before)) >= 2, line
        for name, value in choice.items():
            if name != "system":
                assert f"{name} = {value}" in before, line
        for remedy in alternatives(remedies):
            assert not refusal_of({**choice, **remedy}), (line, remedy)


def alternatives(remedies: str) -> list[dict[str, Any]]:
    """Return each remedy that a line gives, as changed settings."""
    found = []
    for remedy in re.split(r",? or ", remedies):
        left_out = re.fullmatch(r"leave (\w+) out", remedy)
        if left_out:
            found.append({left_out[1]: None})
            continue
        changes: dict[str, Any] = dict(re.findall(r"(\w+) = ([\w.-]+)", remedy))
        assert changes, remedies
        numbers = {n: json.loads(v) for n, v in changes.items() if re.fullmatch(r"[\d.]+", v)}
        changes |= numbers
        found.append(changes)
    return found


def refusal_of(choice: Choice) -> str:
    """Return the line that refuses a choice; if a remedy sets another system, that has its own
    settings."""
    if choice.get("system") in (None, "composed"):
        return refusal(choice)
    if "mechanism" in choice:
        return refusal({"system": choice["system"]})
    return refusal(choice)
