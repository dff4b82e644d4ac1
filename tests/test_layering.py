"""No module imports from a layer above its own."""

from __future__ import annotations

import ast
import inspect
from fnmatch import fnmatch
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import fedldp

SOURCE = Path(inspect.getfile(fedldp)).parent
MODULES = sorted(SOURCE.rglob("*.py"))

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
    {"api", "audit", "comparing", "deployment", "reproduction"},
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
def parsed(source: str) -> ast.Module:
    """Return a module's syntax tree, which several tests walk."""
    return ast.parse(source)


@cache
def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, anywhere in it, and those it imports names from."""
    found: set[str] = set()
    for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the arrow"
            assert node.module is not None
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & NAMES or {node.module}
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
    assert imported(sample) == {"fedldp.simulation.engine", "flwr.client"}
    assert HEIGHT[part("fedldp.simulation.engine")] > HEIGHT["protocol"]


def test_only_the_mod_imports_flower() -> None:
    for path in MODULES:
        knows = any(name.split(".")[0] == "flwr" for name in imported(path))
        assert not knows or dotted(path) == "fedldp.integrations.flower", path


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
    "fedldp.audit.content_linkage",
    "fedldp.audit.byzantine_run",
    "fedldp.audit.forged_reports",
    "fedldp.protocol.updates",
    "fedldp.simulation.population",
    "fedldp.testing.boundary",
    "fedldp.testing.clients",
}


def opens(source: str) -> bool:
    """Return whether a module calls ``.open()`` without arguments, so on something other than a
    file."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "open"
        and not (node.args or node.keywords)
        for node in ast.walk(parsed(source))
    )


def test_a_sensitive_value_is_opened_in_few_places() -> None:
    found = {dotted(path) for path in MODULES if opens(path.read_text(encoding="utf-8"))}
    assert found == OPENERS
    assert not opens("path.open('w')\nopen(path)\nupdate.close()")


# Clients and servers answer, and statements are made, without loading torch: only training needs
# it.
WITHOUT_TORCH = ("accounting", "algorithms", "core", "ledgers", "mechanisms", "protocol")
# A paper's modules that are found by the scan, and what they need for a statement.
LIGHT_IN_PAPERS = (
    "preset*",
    "parts",
    "mechanism*",
    "numerics",
    "encoding",
    "architecture",
    "bits",
    "importance",
)


def at_import(tree: ast.AST) -> set[str]:
    """Return what a module imports when it is imported, so not inside functions or for types
    only."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module} | whole & NAMES
        else:
            found |= at_import(node)
    return found


@cache
def graph_at_import() -> dict[str, set[str]]:
    """Return what each of the package's modules imports when it is imported."""
    return {dotted(path): at_import(parsed(path.read_text("utf-8"))) for path in MODULES}


def loaded_with(modules: set[str]) -> set[str]:
    """Return everything that is imported together with some of the package's modules."""
    graph = graph_at_import()
    found, new = set(modules), set(modules)
    while new:
        new = {name for module in new for name in graph.get(module, ())} - found
        found |= new
    return found


def test_both_roles_and_a_statement_do_without_torch() -> None:
    light = {name for name in NAMES if part(name) in WITHOUT_TORCH}
    papers = [f"fedldp.papers.*.{name}" for name in LIGHT_IN_PAPERS]
    light |= {name for name in NAMES if any(fnmatch(name, each) for each in papers)}
    light |= {
        "fedldp.simulation.plan",
        "fedldp.simulation.participation",
        "fedldp.simulation.settings",
    }
    assert "torch" not in {name.split(".")[0] for name in loaded_with(light)}
    assert "torch" in loaded_with({"fedldp.simulation.engine"})  # this check would notice torch
