"""Selects the cases that run by default; the others are slow.

``conftest.py`` decides whether slow tests run, before any of them is collected.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

thorough = False
"""Whether slow tests run, too."""


def some(examples: int) -> int:
    """Return the number of examples to draw for a property: by default, an eighth of ``count``."""
    return examples if thorough else max(1, examples // 8)


def first_of_each(cases: Mapping[str, Any], kind: Callable[[Any], object]) -> list[Any]:
    """Return all cases as parameters; all but the first of each kind are slow."""
    seen: set[object] = set()
    found = []
    for name, case in cases.items():
        marks = [pytest.mark.slow] if kind(case) in seen else []
        seen.add(kind(case))
        found.append(pytest.param(case, id=name, marks=marks))
    return found


def one_of_a_kind(cases: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first of each kind. Other numbers make no new kind, but 0 and 1 do: they turn
    things off."""
    kinds = {
        repr({key: _kind(value) for key, value in config.model_dump().items()}): name
        for name, config in reversed(cases.items())
    }
    kept = set(kinds.values())
    return {name: config for name, config in cases.items() if name in kept}


def _kind(value: object) -> object:
    if isinstance(value, list):
        return sorted({repr(_kind(each)) for each in value})
    plain = isinstance(value, int | float) and value not in (0, 1)
    return type(value).__name__ if plain else value


CASES = 1
"""The number of cases that run by default, for a test that sets no number."""

TURNS = 8
"""The number of commits after which every slow test has run."""

ALWAYS = ("tests/gate/", "tests/golden/")
"""Folders whose slow tests all run with every commit, which must not change their results."""


def out_of_turn(items: Sequence[pytest.Item], turn: int) -> list[pytest.Item]:
    """Return the slow tests whose turn comes with another commit; spare cases, which are cheap,
    have none.

    Turns rotate within each file, so every turn has its share of each file.
    """
    so_far: Counter[str] = Counter()
    found = []
    for item in items:
        file = item.nodeid.partition("::")[0]
        if item.get_closest_marker("slow") is None or item.get_closest_marker("spare"):
            continue
        if file.startswith(ALWAYS):
            continue
        so_far[file] += 1
        if (zlib.crc32(file.encode()) + so_far[file] - turn) % TURNS:
            found.append(item)
    return found


def leave_out(items: Sequence[pytest.Item]) -> None:
    """Mark as slow all but some cases of each test; the choice is always the same.

    A test marked ``sampled(N)`` keeps N cases. Any other test keeps ``CASES``, and its other cases
    are spare as well. Cases are drawn by name, so that cases of a grid differ along every axis.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("slow"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        sampled = found[0].get_closest_marker("sampled")
        found.sort(key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
        for item in found[sampled.args[0] if sampled else CASES :]:
            item.add_marker("slow")
            if not sampled:
                item.add_marker("spare")
