"""Rooms import from each other only what ``__all__`` lists."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import fedldp

ROOT = Path(__file__).parents[1]
SOURCE = Path(inspect.getfile(fedldp)).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
USES = re.compile(r"It may use ([\w, ]+)\.$")


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def exported(tree: ast.Module) -> list[str]:
    """Return the names that a package lists in ``__all__``, in order."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(each) for each in ast.literal_eval(node.value)]
    return []


def public_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines, except those that begin with an underscore."""
    for node in tree.body:
        found: list[str] = []
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = [node.name]
        elif isinstance(node, ast.Assign):
            found = [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found = [node.target.id]
        yield from (name for name in found if not name.startswith("_") and name != "log")


def file_of(module: Path) -> Path | None:
    """Return the file of a module or package from its path without a suffix."""
    places = (module.with_suffix(".py"), module / "__init__.py")
    return next((place for place in places if place.exists()), None)


def room_of(path: Path) -> str:
    """Return the room to which a file belongs; for a file at the top, its name."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def taken(tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Yield what a module imports from the package: ("accounting", "events", "Event")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            start, *way = node.module.split(".")
            if start == "fedldp":
                for alias in node.names:
                    yield (*way, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                start, *way = alias.name.split(".")
                if start == "fedldp":
                    yield tuple(way)


def refused(way: tuple[str, ...]) -> str | None:
    """Return why another room may not import ``way``; None if it may."""
    if any(name.startswith("_") for name in way):
        return "an underscore"
    for length in range(1, len(way)):
        face = SOURCE.joinpath(*way[:length], "__init__.py")
        if face.exists() and way[length] not in exported(parsed(face)):
            return f"not in __all__ of {'.'.join(way[:length])}"
    return None


def may_use(room: str) -> set[str]:
    """Return the rooms that a room says it may use."""
    found = USES.search(
        " ".join((ast.get_docstring(parsed(SOURCE / room / "__init__.py")) or "").split())
    )
    assert found is not None, f"{room}: its docstring does not end with: It may use ..."
    return {name for name in re.split(r", | and ", found[1]) if name != "nothing"}


# Rooms whose modules are about to become other ones, and the papers, which are found by a scan.
UNDESCRIBED = {"audit", "comparing", "papers", "reproduction"}


@pytest.mark.parametrize("room", sorted(set(ROOMS) - UNDESCRIBED))
def test_a_room_says_what_each_module_of_its_face_is_for(room: str) -> None:
    init = SOURCE / room / "__init__.py"
    said = ast.get_docstring(parsed(init)) or ""
    modules = [name for name in exported(parsed(init)) if file_of(SOURCE / room / name)]
    assert [name for name in modules if f"``{name}``" not in said] == []


def test_rooms_import_only_public_names_from_each_other() -> None:
    for path in MODULES:
        here = room_of(path)
        for way in taken(parsed(path)):
            if way and way[0] != here and here != "__init__":
                assert refused(way) is None, f"{path} imports {'.'.join(way)}: {refused(way)}"


def test_papers_import_only_public_names_from_each_other() -> None:
    folders = {path.parent.name for path in (SOURCE / "papers").glob("*/__init__.py")}
    found = set()
    for path in (SOURCE / "papers").glob("*/*.py"):
        for way in taken(parsed(path)):
            if way[0] == "papers" and way[1] in folders - {path.parent.name}:
                assert refused(way) is None, f"{path} imports {'.'.join(way)}: {refused(way)}"
                found.add((path.parent.name, way[1]))
    assert found == {("priority", "nbafl")}
    assert refused(("papers", "ldpfl", "attacks", "of_codes")) == "not in __all__ of papers.ldpfl"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_lists_existing_names_and_uses_only_the_rooms_it_names(room: str) -> None:
    for init in sorted((SOURCE / room).rglob("__init__.py")):
        tree = parsed(init)
        listed = exported(tree)
        own = {*public_names(tree), *(way[-1] for way in taken(tree))}
        for name in listed:
            assert file_of(init.parent / name) is not None or name in own, f"{init}: {name}"
    used = {
        way[0]
        for path in (SOURCE / room).rglob("*.py")
        for way in taken(parsed(path))
        if way and way[0] in ROOMS and way[0] != room
    }
    assert used == may_use(room)


def test_parts_that_the_guide_offers_are_public() -> None:
    guide = (ROOT / "docs" / "adding_a_system.md").read_text(encoding="utf-8")
    table = guide[guide.index("| slot of `Composition`") : guide.index("These parts are in `src")]
    offered = set(re.findall(r"`([A-Z]\w+)(?:\([^`]*\))?`", table)) - {"Composition"}
    room = SOURCE / "algorithms"
    public = {
        name
        for module in exported(parsed(room / "__init__.py"))
        if (file := room / f"{module}.py").exists()
        for name in public_names(parsed(file))
    }
    assert len(offered) > 20
    assert offered <= public, offered - public


def test_an_import_of_a_private_name_is_noticed() -> None:
    assert refused(("mechanisms", "_bits", "count")) == "an underscore"
    assert refused(("accounting", "numerics", "gaussian", "_ROUNDING")) == "an underscore"
    assert refused(("audit", "canaries", "anything")) == "not in __all__ of audit"
    assert refused(("core", "errors", "ConfigError")) is None


def test_every_room_has_a_reference_page() -> None:
    pages = {page.stem: page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")}
    assert sorted(pages) == sorted([*ROOMS, "fedldp"])
    assert all(f"\n::: fedldp.{room}\n" in pages[room] for room in ROOMS)
