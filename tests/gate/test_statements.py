"""Recipes state, are named, and tell clients what is recorded: "The gate" in contributing.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from fedldp.accounting.statement import Statement
from fedldp.reporting import words
from gate import golden, statements

BY_SYSTEM = statements.by_system()
SYSTEM_OF = {name: system for system, names in BY_SYSTEM.items() for name in names}


@cache
def recorded(system: str) -> dict[str, Any]:
    return golden.read(statements.path_of(system))


def test_every_recipe_is_recorded_and_nothing_else() -> None:
    assert {path.stem for path in statements.STATEMENTS.glob("*.json")} == set(BY_SYSTEM)
    for system, names in BY_SYSTEM.items():
        assert sorted(recorded(system)["recipes"]) == sorted(names)


# By default every fourth recipe of a system, but every twelfth of the one whose lines for shufflers
# take half a second each.
SLOW = {
    name
    for system, names in BY_SYSTEM.items()
    for at, name in enumerate(names)
    if at % (12 if system == "ldp_fl" else 4)
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SYSTEM_OF]
)
def test_a_recipe_is_as_recorded(name: str) -> None:
    document = recorded(SYSTEM_OF[name])
    found = golden.changes(
        {"arithmetic": document["arithmetic"], name: document["recipes"][name]},
        {"arithmetic": golden.arithmetic(), name: statements.of_recipe(name)},
    )
    assert list(found) == []


@pytest.mark.parametrize("name", ["quickstart", "personalized-sound-digits"])
def test_the_command_prints_the_bytes_of_the_recorded_statement(
    name: str, fedldp_command: Callable[..., Any]
) -> None:
    document = recorded(SYSTEM_OF[name])
    with golden.one_core():
        printed = fedldp_command("account", name, "--json").out
    if document["arithmetic"] == golden.arithmetic():
        known = Statement.from_json(document["recipes"][name]["statement"])
        assert printed == json.dumps(words.document(known), indent=2) + "\n"
    else:
        known = Statement.from_json(statements.of_recipe(name)["statement"])
        assert words.document(known) == json.loads(printed)
