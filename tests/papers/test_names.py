"""Nothing outside ``papers/`` names what is inside: no class, preset, mechanism or recipe of a
paper, in code or in strings.

``quickstart``, the default of ``fedldp run``, is the one exception. Two mechanisms are called by
plain words, ``sign`` and ``unary``; these are not looked for.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fedldp

SOURCE = Path(inspect.getfile(fedldp)).parent
PAPERS = SOURCE / "papers"
EXCEPTION = SOURCE / "algorithms" / "recipes" / "quickstart.toml"
WORDS = {"sign", "unary"}


def classes_of(path: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def mechanisms() -> set[str]:
    """Return the values of ``name`` in the classes of the papers' mechanisms."""
    return {
        str(ast.literal_eval(line.value))
        for path in PAPERS.glob("*/mechanism*.py")
        for each in classes_of(path)
        for line in each.body
        if isinstance(line, ast.AnnAssign) and line.value is not None
        if ast.unparse(line.target) == "name"
    }


def presets() -> set[str]:
    """Return the names of the papers' folders and of their presets."""
    functions = (
        node.name
        for path in PAPERS.glob("*/preset*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    )
    folders = (path.name for path in PAPERS.iterdir() if (path / "__init__.py").exists())
    return {*functions, *folders}


def recipes() -> set[str]:
    """Return what the names of the papers' recipes begin with, up to what varies in them."""
    return {
        recipe["name"].partition("{")[0].rstrip("-")
        for path in PAPERS.glob("*/recipes/*.toml")
        for recipe in tomllib.loads(path.read_text(encoding="utf-8"))["recipe"]
    }


@cache
def inside() -> tuple[set[str], re.Pattern[str]]:
    """Return the papers' public classes, and a pattern of all other names."""
    classes = {each.name for path in PAPERS.rglob("*.py") for each in classes_of(path)}
    names = (mechanisms() | presets() | recipes()) - WORDS
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return (
        {name for name in classes if not name.startswith("_")},
        re.compile(rf"(?<![\w-])({longest_first})(?![\w])"),
    )


def named_in(path: Path) -> Iterator[str]:
    """Yield each place of a file that names what is inside ``papers/``."""
    classes, names = inside()
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            if found := names.search(line):
                yield f"{path.name}:{number}: {found[0]}"
        return
    strings = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        found = names.search(token.string) if token.type in strings else None
        if found or (token.type == tokenize.NAME and token.string in classes):
            yield f"{path.name}:{token.start[0]}: {found[0] if found else token.string}"


def outside() -> list[Path]:
    kinds = {".py", ".toml", ".json", ".html", ".md"}
    return [
        path
        for path in sorted(SOURCE.rglob("*"))
        if path.suffix in kinds and PAPERS not in path.parents and path != EXCEPTION
    ]


@pytest.mark.slow
def test_nothing_outside_names_what_is_inside() -> None:
    assert [place for path in outside() for place in named_in(path)] == []


def test_a_name_is_found_in_code_strings_and_data(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('x = TrainOnBits\n"""As in ldp-fl-mnist."""\nsign = "ldpfl"\n')
    (tmp_path / "a.toml").write_text('system = "fedavg"\ntwin_of = "nbafl-mnist"\n')
    found = [place for path in sorted(tmp_path.iterdir()) for place in named_in(path)]
    assert [place.partition(": ")[0] for place in found] == [
        "a.py:1",
        "a.py:2",
        "a.py:3",
        "a.toml:2",
    ]


# Tests of rooms

TESTS = Path(__file__).parents[1]
OF_PAPERS = {"gate", "golden", "papers", "reproduction", "refusals"}
"""Folders of tests whose subject papers are."""
BORROW = {
    "audit/test_attacks.py": "a paper's attack beside those for every system, with few shadows",
    "mechanisms/test_categories.py": "one law of categories, of which a mechanism is a paper's",
    "test_installed_papers.py": "the scan of papers",
    "test_own_word.py": "an own system that derives from a published one",
    "test_pitfalls.py": "what a published mechanism costs, as a page says",
    "test_rooms.py": "the layer of papers' attacks",
}
"""Tests of rooms that name a module of a paper, and why."""


def borrowed(path: Path) -> bool:
    """Return whether a test names a module inside ``papers/``, in code or in a string."""
    return "fedldp.papers." in path.read_text(encoding="utf-8")


def test_tests_of_rooms_use_toys_and_plain_presets() -> None:
    found = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.relative_to(TESTS).parts[0] not in OF_PAPERS and borrowed(path)
    }
    assert found == set(BORROW)
    assert borrowed(TESTS / "mechanisms" / "test_categories.py"), "else this finds nothing"
