"""A refused pair of parts has a line that names both values and a remedy that works."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import find_system, systems
from fedldp.core.errors import FedldpError
from fedldp.mechanisms import find_mechanism, mechanisms
from fedldp.simulation.plan import plan, problem_of

Choice = Mapping[str, Any]
Pair = frozenset[tuple[str, Any]]

SMALL: dict[str, Any] = {
    "dataset": "digits", "model": "logistic", "num_clients": 6, "rounds": 2, "learning_rate": 0.1,
    "num_examples": 120,
}  # fmt: skip
OF_COMPOSED: dict[str, tuple[Any, ...]] = {
    "mechanism": (*mechanisms(), "none"),
    "bound": ("range", "norm"),
    "send": ("weights", "update"),
    "channel": ("named", "shuffle", "sum", "central"),
    "participation": ("all", "drawn", "balanced", "once", "auto"),
    "server_optimizer": ("none", "momentum", "adam"),
}


def made(choice: Choice) -> RunConfig:
    """Return the configuration of a choice of parts.

    Raises:
        ConfigError: they are refused.
    """
    settings = {**SMALL, "system": "composed"}
    settings |= {name: value for name, value in choice.items() if value is not None}
    mechanism = choice.get("mechanism")
    if mechanism == "none":
        settings.pop("bound", None)
    elif mechanism == "gaussian_share":
        settings.setdefault("epsilon", 4.0)
    elif mechanism is not None:
        one = find_mechanism(mechanism).epsilon_unit == "weight"
        settings.setdefault("epsilon", 4.0 if one else 100.0)
    else:
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


def allowed_choices() -> list[Choice]:
    """Return the allowed choices of parts."""
    every = (
        dict(zip(OF_COMPOSED, values, strict=True))
        for values in itertools.product(*OF_COMPOSED.values())
    )
    return [choice for choice in every if not refusal(choice, thoroughly=False)]


def refused_choices() -> list[dict[str, Any]]:
    """Return values, and pairs of other values, that no allowed choice has; the rest is at its
    defaults."""
    allowed = allowed_choices()
    values = {item for choice in allowed for item in choice.items()}
    pairs = set().union(*map(pairs_of, allowed))
    found: list[dict[str, Any]] = []
    for name, every in OF_COMPOSED.items():
        found += [{name: value} for value in every if (name, value) not in values]
    for (one, ones), (other, others) in itertools.combinations(OF_COMPOSED.items(), 2):
        found += [
            {one: a, other: b}
            for a, b in itertools.product(ones, others)
            if {(one, a), (other, b)} <= values and frozenset({(one, a), (other, b)}) not in pairs
        ]
    return found


@pytest.mark.slow
def test_a_refusal_of_a_pair_names_both_and_a_remedy_that_is_accepted() -> None:
    choices = refused_choices()
    assert choices
    for choice in choices:
        line = refusal(choice)
        assert line, choice
        assert "\n" not in line
        before, _, remedies = line.rpartition("; ")
        assert len(re.findall(r"\w+ = [\w.-]+", before)) >= 2, line
        for name, value in choice.items():
            assert f"{name} = {value}" in before, line
        for remedy in alternatives(remedies):
            if "system" in remedy:  # it has settings of its own
                assert remedy["system"] in systems()
            else:
                assert not refusal({**choice, **remedy}), (line, remedy)


def alternatives(remedies: str) -> list[dict[str, Any]]:
    """Return each remedy that a line gives, as changed settings."""
    found = []
    for remedy in re.split(r",? or ", remedies):
        left_out = re.fullmatch(r"leave (\w+) out", remedy)
        if left_out:
            found.append({left_out[1]: None})
            continue
        changes: dict[str, Any] = dict(re.findall(r"(\w+) = ([\w.-]+)", remedy))
        changes = changes or found[-1]  # another value for what the last remedy names
        numbers = {n: json.loads(v) for n, v in changes.items() if re.fullmatch(r"[\d.]+", v)}
        changes |= numbers
        found.append(changes)
    return found
