"""Tables of constants say of each row what it is, so that no two rows can be exchanged.

Most tables are words for a unit, an adversary or a kind of trust. Each row's words are sorted
back into a row, by the words that only that row may use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pytest

from fedldp.accounting import guarantees
from fedldp.accounting.guarantees import Adversary, Neighbours, Unit
from fedldp.core.kinds import SECRET_SAMPLE
from fedldp.experiments.advising import plan
from fedldp.reporting import words


def _unit(told: str) -> str:
    """Return which unit some words are about; what follows the first clause only explains it."""
    clause = re.split(r"[.:]", told)[0]
    for unit, pattern in (
        ("weight", r"\bweight\b"),
        ("person", r"\b(person|people)\b"),
        ("client-round", r"\bclient\b.*\bround\b"),
        ("client-run", r"\bclient\b"),
        ("record", r"\b(rows?|records?|example)\b"),
    ):
        if re.search(pattern, clause):
            return unit
    raise AssertionError(f"words about no unit: {told}")


def _adversary(told: str) -> str:
    """Return against which adversary some words are."""
    for adversary, word in (
        ("downlink", "broadcast"),
        ("shuffled-server", "shuffler"),
        ("summing-server", "sum"),
        ("server", "server"),
    ):
        if word in told:
            return adversary
    raise AssertionError(f"words about no adversary: {told}")


def _side(told: str) -> str:
    """Return in what neighbours differ, or what is sampled, according to some words."""
    found = re.search(r"client|takes part", told)
    return "client" if found else _unit(told)


def _trust(told: str) -> str:
    for trust, pattern in (
        ("none", r"nobody|any server"),
        ("sum", r"\bsums?\b"),
        ("central", r"one server|trusted server|no protection against the server"),
    ):
        if re.search(pattern, told, re.IGNORECASE):
            return trust
    raise AssertionError(f"words about no trust: {told}")


UNITS, ADVERSARIES, SIDES = set(get_args(Unit)), set(get_args(Adversary)), {"record", "person"}
TRUSTS = {"none", "sum", "central"}
ADVISED = {"record", "person", "client-run"}

TABLES: dict[str, tuple[Mapping[Any, str], Callable[[str], str], set[str]]] = {
    **{f"units, {of}": (words.names(of), _unit, UNITS) for of in ("about", "unit", "part")},
    "advice, units": (words.names("one"), _unit, ADVISED),
    "advice, who is hidden": (words.names("protected"), _unit, ADVISED),
    **{
        f"adversaries, {of}": (words.names(of), _adversary, ADVERSARIES)
        for of in ("adversary", "against", "trust")
    },
    "card, neighbours": (
        {name.removeprefix("replace-"): told for name, told in words.names("neighbours").items()},
        lambda told: _side(told.removeprefix("two data sets are adjacent if ")),
        {name.removeprefix("replace-") for name in get_args(Neighbours)},
    ),
    "sides, neighbours": (guarantees.NEIGHBOURS, _side, SIDES | {"client"}),
    "what is sampled": (
        {
            side: words.line(SECRET_SAMPLE(of=side)).replace("examples", "example")
            for side in (*SIDES, "client")
        },
        _side,
        SIDES | {"client"},
    ),
    "advice, trust": (words.names("trusting"), _trust, TRUSTS),
    "advice, adversaries": (words.names("protects-from"), _trust, TRUSTS),
    "contestants": ({trust: name for trust, (name, _) in plan.TRUSTS.items()}, _trust, TRUSTS),
}


@pytest.mark.parametrize("name", TABLES)
def test_each_row_is_about_its_own_key(name: str) -> None:
    table, meant, keys = TABLES[name]
    assert set(table) == keys
    assert {key: meant(told) for key, told in table.items()} == {key: key for key in keys}
