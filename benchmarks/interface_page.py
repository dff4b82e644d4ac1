"""Writes the page of the public interface: each room's public modules and their names.

    python -m benchmarks.interface_page docs/reference/interface.md

``__all__`` in a room's ``__init__`` lists what other rooms may use: modules, and names of its own.
Everything is read as text; nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fedldp"

HEAD = """# Public interface

Made by `python -m benchmarks.interface_page docs/reference/interface.md`, from the docstrings.
A room is a package of `fedldp`. Each lists in `__all__` the modules that other rooms, and you, may
import. What is not listed may change without notice. [Architecture](../architecture.md) shows how
the rooms stand on each other.
"""


def parsed(path: Path) -> ast.Module:
    """Return the tree of a module's text."""
    return ast.parse(path.read_text(encoding="utf-8"))


def exported(tree: ast.Module) -> list[str]:
    """Return what a package lists in ``__all__``, in its order."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(each) for each in ast.literal_eval(node.value)]
    return []


def first_line(node: ast.AST) -> str:
    """Return the first paragraph of a docstring on one line, as Markdown."""
    text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


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
    """Return the file of a module or package whose path is given without an ending."""
    places = (module.with_suffix(".py"), module / "__init__.py")
    return next((place for place in places if place.exists()), None)


def lines_of(package: Path, name: str) -> Iterator[str]:
    """Yield the lines of one package: its table, and the tables of the packages that it lists."""
    tree = parsed(package / "__init__.py")
    listed = exported(tree)
    modules = [each for each in listed if file_of(package / each) is not None]
    yield f"## `{name}`" if name.count(".") == 1 else f"### `{name}`"
    yield ""
    yield first_line(tree)
    own = [each for each in listed if each not in modules]
    if own:
        yield ""
        yield "Of the package itself: " + ", ".join(f"`{each}`" for each in own) + "."
    if modules:
        yield ""
        yield "| module | what it is | names |"
        yield "|---|---|---|"
    for each in modules:
        path = file_of(package / each)
        assert path is not None
        found = parsed(path)
        names = exported(found) if path.name == "__init__.py" else list(public_names(found))
        shown = ", ".join(f"`{name}`" for name in names)
        yield f"| `{each}` | {first_line(found)} | {shown} |"
    yield ""
    for each in modules:
        if (package / each / "__init__.py").exists():
            yield from lines_of(package / each, f"{name}.{each}")


def page() -> str:
    """Return the page."""
    rooms = sorted(path.parent for path in SOURCE.glob("*/__init__.py"))
    lines = [line for room in rooms for line in lines_of(room, f"fedldp.{room.name}")]
    return HEAD + "\n" + "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
