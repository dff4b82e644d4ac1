"""No module imports from a layer above its own, and rooms take only public names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fedldp

ROOT = Path(__file__).parents[1]
SOURCE = Path(inspect.getfile(fedldp)).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
USES = re.compile(r"It may use ([\w, ]+)\.$")

# From the bottom up. Rooms on one line do not import each other.
LAYERS = [
    {"core"},
    {"accounting", "data"},
    {"ledgers"},
    {"protocol"},
    {"mechanisms", "models"},
    {"secure_sum", "training"},
    {"algorithms"},
    {"papers"},
    {"reporting"},
    {"simulation"},
    {"api", "audit", "deployment", "experiments"},
    {"papers.attacks"},
    {"estimator", "integrations", "testing"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def dotted(path: Path) -> str:
    """Return a module's name from its path: fedldp.data.datasets."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted(path) for path in MODULES}


@cache
def parsed(path: Path) -> ast.Module:
    """Return a module's syntax tree, which several tests walk."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(tree: ast.Module) -> list[ast.Import | ast.ImportFrom | ast.Call]:
    """Return a tree's imports and calls, in order."""
    wanted = ast.Import | ast.ImportFrom | ast.Call
    return [node for node in ast.walk(tree) if isinstance(node, wanted)]


@cache
def imports(tree: ast.Module) -> list[tuple[str, ...]]:
    """Return what a module imports, anywhere in it: ("fedldp", "accounting", "events", "Event")."""
    found = []
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            found += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{ast.unparse(node)}: relative imports hide the arrow"
            way = str(node.module).split(".")
            found += [(*way, alias.name) for alias in node.names]
    return found


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, and those it imports names from."""
    found = set()
    for way in imports(parsed(path)):
        whole = ".".join(way)
        found.add(whole if whole in NAMES else ".".join(way[:-1]) or whole)
    return found


def part(module: str) -> str:
    """Return the part of the package to which a module belongs; the package itself is the top."""
    if fnmatch(module, "fedldp.papers.*.attacks"):  # only the audit loads it, by the scan
        return "papers.attacks"
    return module.split(".")[1] if "." in module else "fedldp"


def own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "fedldp"}


def test_every_room_has_a_layer() -> None:
    assert {part(name) for name in NAMES} - {"fedldp"} <= set(HEIGHT)


def test_no_module_imports_from_a_higher_layer() -> None:
    for path in MODULES:
        here = part(dotted(path))
        for name in own(imported(path)):
            there = part(name)
            if here == "fedldp":
                assert there != "cli"  # the package works without its command line
            elif there != here:
                assert there != "fedldp", f"{dotted(path)} imports the package as a whole"
                assert HEIGHT[there] < HEIGHT[here], f"{dotted(path)} imports {name}"


def test_no_circular_imports() -> None:
    graph = {dotted(path): own(imported(path)) - {dotted(path)} for path in MODULES}
    list(TopologicalSorter(graph).static_order())  # raises if there is a circle


def test_a_wrong_import_is_noticed(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text("def f():\n    from fedldp.simulation import engine\nimport flwr.client\n")
    assert imported(sample) == {"fedldp.simulation.engine", "flwr"}
    assert HEIGHT[part("fedldp.simulation.engine")] > HEIGHT["protocol"]


def test_no_file_names_a_machine() -> None:
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        for place in ("/home/", "/root/", "/tmp/", "/Users/"):
            assert place not in text, path


def test_a_server_imports_no_data_and_a_record_no_page() -> None:
    for path in MODULES:
        if dotted(path).startswith("fedldp.protocol.server_"):
            assert not {part(name) for name in own(imported(path))} & {"data", "models"}
            assert "torch" not in {name.split(".")[0] for name in imported(path)}


def test_a_mechanism_imports_neither_model_nor_system_nor_torch() -> None:
    for path in MODULES:
        name = dotted(path)
        plain = part(name) in ("accounting", "ledgers", "mechanisms")
        if plain or name.startswith(("fedldp.core.bounding", "fedldp.protocol.wire")):
            assert not {name.split(".")[0] for name in imported(path)} & {"torch", "sklearn"}


# The modules that open a sensitive value: encoders, the simulator, which looks for NaN, the audit,
# which runs its own clients, the trials of own code, which use public rows, and toys for tests.
OPENERS = {
    "fedldp.algorithms.own_code",
    "fedldp.algorithms.release",
    "fedldp.audit.harness",
    "fedldp.audit.poisoning",
    "fedldp.papers.ldp_fl.attacks",
    "fedldp.protocol.updates",
    "fedldp.simulation.population",
    "fedldp.testing.boundary",
    "fedldp.testing.clients",
}


def opens(tree: ast.Module) -> bool:
    """Return whether a module calls ``.open()`` without arguments, so on something other than a
    file."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "open"
        and not (node.args or node.keywords)
        for node in nodes(tree)
    )


def test_a_sensitive_value_is_opened_in_few_places() -> None:
    found = {dotted(path) for path in MODULES if opens(parsed(path))}
    assert found == OPENERS
    assert not opens(ast.parse("path.open('w')\nopen(path)\nupdate.close()"))


# Faces


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
    return (way[1:] for way in imports(tree) if way[0] == "fedldp")


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
UNDESCRIBED = {"audit", "papers"}


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
    assert refused(("papers", "nbafl", "preset", "nbafl")) == "not in __all__ of papers.nbafl"


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
    assert len(offered) > 15
    assert offered <= public, offered - public


def test_an_import_of_a_private_name_is_noticed() -> None:
    assert refused(("mechanisms", "_bits", "count")) == "an underscore"
    assert refused(("accounting", "numerics", "gaussian", "_ROUNDING")) == "an underscore"
    assert refused(("audit", "canaries", "anything")) == "not in __all__ of audit"
    assert refused(("core", "errors", "ConfigError")) is None


def test_every_room_that_others_may_use_has_a_reference_page() -> None:
    labels = (ROOT / "docs" / "stability.md").read_text()
    usable = {
        room for room in ROOMS if re.search(rf"^\| `{room}` \| (stable|settling) \|", labels, re.M)
    }
    pages = {page.stem: page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")}
    assert pages.keys() == usable
    assert all(f"\n::: fedldp.{room}\n" in pages[room] for room in usable)
