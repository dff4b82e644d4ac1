"""Which of many cases are tried by default: the rest are slow.

``conftest.py`` says whether slow tests run, before any of them is collected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

thorough = False
"""Whether slow tests run too."""


def some(examples: int) -> int:
    """Return of how many drawn examples a property is tried: by default, of a quarter."""
    return examples if thorough else examples // 4


def first_of_each(cases: Mapping[str, Any], kind: Callable[[Any], object]) -> list[Any]:
    """Return all cases as parameters; those that are not the first of their kind are slow."""
    seen: set[object] = set()
    found = []
    for name, case in cases.items():
        marks = [pytest.mark.slow] if kind(case) in seen else []
        seen.add(kind(case))
        found.append(pytest.param(case, id=name, marks=marks))
    return found
