"""Which of many cases are tried by default: the rest are slow.

``conftest.py`` says whether slow tests run, before any of them is collected.
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
"""Whether slow tests run too."""


def some(examples: int) -> int:
    """Return of how many drawn examples a property is tried: by default, of an eighth."""
    return examples if thorough else max(1, examples // 8)


def part_of(cases: list[T]) -> list[T]:
    """Return the cases of a long walk that a test takes: by default, every fourth."""
    return cases if thorough else cases[::4]


def first_of_each(cases: Mapping[str, Any], kind: Callable[[Any], object]) -> list[Any]:
    """Return all cases as parameters; those that are not the first of their kind are slow."""
    seen: set[object] = set()
    found = []
    for name, case in cases.items():
        marks = [pytest.mark.slow] if kind(case) in seen else []
        seen.add(kind(case))
        found.append(pytest.param(case, id=name, marks=marks))
    return found


def one_of_a_kind(cases: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first of each kind: numbers make none, but for 0 and 1, which turn things off."""
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


CASES = 2
"""Of a test that says nothing else, so many cases run by default."""

TURNS = 8
"""Commits after which every slow test has run."""

ALWAYS = ("tests/gate/", "tests/golden/")
"""What a commit must not move: slow tests in these folders run with each of them."""


def out_of_turn(items: Sequence[pytest.Item], turn: int) -> list[pytest.Item]:
    """Return the slow tests that have their turn with another commit; spare cases are cheap.

    Those of a file follow one another, so that each turn has its share of every file.
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
    """Mark as slow all but some cases of each test: always the same.

    N of a test that is marked ``sampled(N)``, else ``CASES``; the others of the latter are spare,
    too. They are drawn by their names, so that those of a grid differ in all of its axes.
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
