"""No room outgrows its ceiling without a line in the changelog that says who gains by it."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import fedldp

ROOT = Path(__file__).parents[1]
SOURCE = Path(inspect.getfile(fedldp)).parent
GIVEN = tomllib.loads((ROOT / "tests" / "ceilings.toml").read_text(encoding="utf-8"))
MARGIN = 1.05


def code_lines(source: str) -> int:
    """Return the number of lines that hold more than a comment or a part of a docstring."""
    prose, text = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            prose.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if isinstance(node, ast.Constant | ast.JoinedStr):
            text.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    code = {number for number, line in lines if line and line[0] != "#"}
    return len((code | text) - prose)


def sizes() -> dict[str, int]:
    """Return the code lines of every room; those of the files beside the rooms are "top", and all
    of ``tests`` are one room."""
    found: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        way = path.relative_to(SOURCE).parts
        found[way[0] if len(way) > 1 else "top"] += code_lines(path.read_text(encoding="utf-8"))
    tests = (ROOT / "tests").rglob("*.py")
    found["tests"] = sum(code_lines(path.read_text(encoding="utf-8")) for path in tests)
    return dict(found)


@pytest.mark.slow
def test_no_room_outgrows_its_ceiling() -> None:
    raised = {room: each["lines"] for room, each in GIVEN["raised"].items()}
    ceilings = {**GIVEN["lines"], **raised}
    found = sizes()
    assert found.keys() == ceilings.keys()
    grown = {room: size for room, size in found.items() if size > MARGIN * ceilings[room]}
    assert not grown, f"over the ceilings of {ceilings}: {grown}"


def test_a_raised_ceiling_has_its_words_in_the_changelog() -> None:
    changelog = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    for room, each in GIVEN["raised"].items():
        assert each["lines"] > GIVEN["lines"][room]
        assert len(each["changelog"].split()) > 4, room
        assert each["changelog"] in changelog, room


def test_prose_is_not_counted() -> None:
    source = '''"""Two lines
of prose."""

# a comment
def f(a, b=(
    1,
)):
    """Prose."""
    return """text
that is code"""
'''
    assert code_lines(source) == 5
