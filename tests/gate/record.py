"""Updates the records, and prints how current results differ from them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gate import commands, golden, reports, statements

Found = Iterator[tuple[Path, dict[str, Any]]]
Changes = Callable[[dict[str, Any], dict[str, Any]], Iterator[str]]


def found_statements() -> Found:
    """Yield each file of statements with its current contents."""
    for system, names in statements.by_system().items():
        yield (
            statements.path_of(system),
            {
                "arithmetic": golden.arithmetic(),
                "recipes": {name: statements.of_recipe(name) for name in names},
            },
        )


def found_reports() -> Found:
    """Yield each file of runs with its current contents."""
    for system, names in reports.by_system().items():
        yield (
            reports.path_of(system),
            {
                "arithmetic": golden.training(),
                "runs": {name: reports.of_run(name) for name in names},
            },
        )


def found_commands() -> Found:
    """Yield each file of commands with its current contents."""
    for name in commands.ALL:
        yield (
            commands.path_of(name),
            {"arithmetic": golden.training(), **commands.of_command(name)},
        )


PARTS: dict[str, tuple[Callable[[], Found], Changes]] = {
    "statements": (found_statements, golden.changes),
    "reports": (found_reports, reports.changes),
    "commands": (found_commands, golden.changes),
}


def main(arguments: list[str] | None = None) -> int:
    """Show the differences, and record them unless only asked to check; return the exit status."""
    parser = argparse.ArgumentParser(prog="python tests/gate", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; else all of them")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument(
        "--anew",
        action="store_true",
        help="record what another arithmetic made, too, as of this one",
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}: give some of {', '.join(PARTS)}")
    differ = 0
    for part in given.parts or PARTS:
        differ += _record(*PARTS[part], write=not given.check, anew=given.anew)
    return 1 if differ and given.check else 0


def _record(found: Callable[[], Found], changes: Changes, *, write: bool, anew: bool) -> int:
    """Print the lines that differ, and return their number."""
    total, folders, paths = 0, set(), set()
    for path, document in found():
        folders.add(path.parent)
        paths.add(path)
        recorded = golden.read(path)
        lines = list(changes(recorded, document))
        other = recorded and recorded["arithmetic"] != document["arithmetic"]
        if other:
            print(f"{path.parent.name}/{path.name}: of another arithmetic, and compared nearly")
        for line in lines:
            print(f"{path.parent.name}/{path.name}: {line}")
        total += len(lines)
        if write and (lines or (other and anew)):
            golden.write(path, document)
    for path in sorted({each for folder in folders for each in folder.glob("*.json")} - paths):
        print(f"{path.parent.name}/{path.name}: gone")
        total += 1
        if write:
            path.unlink()
    print(f"{total} differences" + (" recorded" if write and total else ""))
    return total
