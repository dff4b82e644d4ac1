"""Plant small mistakes in the package, and see whether the tests of their room notice.

    python tests/gate/mutants.py RESULTS --plant       before a change of the house
    python tests/gate/mutants.py RESULTS --again       after it

Ten places a room are drawn with a fixed seed, at most one in a function. Each is changed (a
comparison, a sign, a number, a condition), and those of the room's default tests that reach the
line run on a copy of the tree; which ones reach it is measured once for each room.
The results file keeps the text of each line, by which ``--again`` finds it wherever it has moved,
and has one line for each mutant: killed, alive, or gone. Both continue where they were interrupted.
The status is 1 if a mutant that was killed before lives now.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
ROOMS = (
    "accounting", "ledgers", "protocol", "mechanisms", "algorithms", "deployment", "reporting",
)  # fmt: skip
EACH = 10
SEED = 7
LONGEST = 600.0
"""Seconds after which a run of tests counts as having noticed: a mutant may never end."""

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
SIGNS = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "/", "**": "*"}
WORDS = {"and": "or", "or": "and", "min": "max", "max": "min", "is not": "is", "not ": ""}


@dataclass(frozen=True)
class Mutant:
    """One changed line.

    Attributes:
        room: the room.
        file: the file, below ``src/fedldp``, where the line was when it was drawn.
        function: the function that has the line.
        line: the line without its indentation.
        changed: what takes its place.
    """

    room: str
    file: str
    function: str
    line: str
    changed: str

    @property
    def key(self) -> str:
        """What identifies it in a results file."""
        return f"{self.room}: {self.line} -> {self.changed}"


def drawn(room: str) -> list[Mutant]:
    """Draw the room's mutants; the same tree always gives the same."""
    found: list[Mutant] = []
    for path in sorted((ROOT / "src/fedldp" / room).rglob("*.py")):
        found += _of_file(room, path)
    draw = random.Random(f"{SEED}-{room}")
    draw.shuffle(found)
    chosen: dict[tuple[str, str], Mutant] = {}
    for each in found:
        chosen.setdefault((each.file, each.function), each)
    return list(chosen.values())[:EACH]


def _of_file(room: str, path: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (each for line in function.body for each in ast.walk(line)):
            for line, changed in _changes(node, lines):
                if lines.count(lines[node.lineno - 1]) == 1:  # type: ignore[attr-defined]
                    name = str(path.relative_to(ROOT / "src/fedldp"))
                    yield Mutant(room, name, function.name, line.strip(), changed.strip())


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the line of a node and the same line with the node changed, if it can be."""
    parts: list[tuple[int, int, int, dict[str, str]]] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        parts.append((*_between(node.left, node.comparators[0]), COMPARISONS | WORDS))
    elif isinstance(node, ast.BinOp) and not _is_path(node):
        parts.append((*_between(node.left, node.right), SIGNS))
    elif isinstance(node, ast.BoolOp):
        parts.append((*_between(node.values[0], node.values[1]), WORDS))
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.end_col_offset:
        old = ast.unparse(node)
        parts.append(
            (node.lineno, node.col_offset, node.end_col_offset, {old: str(node.value + 1)})
        )
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        at = node.func
        parts.append((at.lineno, at.col_offset, at.end_col_offset or 0, WORDS))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        at_ = node.operand
        parts.append((node.lineno, node.col_offset, at_.col_offset, WORDS))
    for number, begin, end, table in parts:
        line = lines[number - 1]
        piece = line[begin:end]
        for old, new in sorted(table.items(), key=lambda each: -len(each[0])):
            if piece.strip(" ()") == old.strip():
                yield line, line[:begin] + piece.replace(old, new, 1) + line[end:]
                break


def _is_path(node: ast.BinOp) -> bool:
    return isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant | ast.JoinedStr)


def _between(left: ast.expr, right: ast.expr) -> tuple[int, int, int]:
    if left.end_lineno != right.lineno:
        return left.lineno, 0, 0
    return right.lineno, left.end_col_offset or 0, right.col_offset


def tried(mutant: Mutant, tree: Path, tests: Callable[[Path, int], set[str]]) -> str:
    """Plant a mutant in a copy of the tree; return "killed", "alive" or "gone"."""
    places = [
        path
        for path in sorted((tree / "src/fedldp").rglob("*.py"))
        if mutant.line in map(str.strip, path.read_text(encoding="utf-8").splitlines())
    ]
    places.sort(key=lambda path: path != tree / "src/fedldp" / mutant.file)
    if not places:
        return "gone"
    path, before = places[0], places[0].read_text(encoding="utf-8")
    number = 1 + [line.strip() for line in before.splitlines()].index(mutant.line)
    planted = [
        line.replace(mutant.line, mutant.changed) if line.strip() == mutant.line else line
        for line in before.splitlines()
    ]
    path.write_text("\n".join(planted) + "\n", encoding="utf-8")
    try:
        return "killed" if _tests_fail(mutant, tree, tests(path, number)) else "alive"
    finally:
        path.write_text(before, encoding="utf-8")


def _tests_fail(mutant: Mutant, tree: Path, tests: set[str]) -> bool:
    if not tests:
        return False
    try:
        run = _pytest(tree, "-x", *sorted(tests), timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return True
    return run.returncode != 0


def _pytest(tree: Path, *words: str, timeout: float | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    return subprocess.run(
        [*command, *words], cwd=tree, env=environment, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip


def reached(room: str, tree: Path) -> Callable[[Path, int], set[str]]:
    """Run a room's default tests once; return a function from a line to the tests that reach it.

    Processes that a test starts are not seen.
    """
    folders = [f"tests/{room}", "tests/refusals"]
    folders += ["tests/papers"] if room in ("mechanisms", "algorithms") else []
    there = [each for each in folders if (tree / each).exists()]
    _pytest(tree, "--cov=fedldp", "--cov-context=test", "--cov-report=", *there, timeout=None)
    data = coverage.CoverageData(str(tree / ".coverage"))
    data.read()

    def of(path: Path, number: int) -> set[str]:
        found = data.contexts_by_lineno(str(path)).get(number, [])
        return {context.split("|")[0].split("[")[0] for context in found if context}

    return of


def main() -> int:
    """Try all mutants that the results file lacks; return the status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--plant", dest="when", action="store_const", const="before")
    when.add_argument("--again", dest="when", action="store_const", const="after")
    given = parser.parse_args()
    known = json.loads(given.results.read_text()) if given.results.exists() else {}
    if given.when == "before":
        for mutant in (each for room in ROOMS for each in drawn(room)):
            known.setdefault(mutant.key, asdict(mutant))
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", "site"))
        tests = {}
        for key, row in known.items():
            if given.when not in row:
                fields = {name: row[name] for name in Mutant.__dataclass_fields__}
                begun, room = time.monotonic(), row["room"]
                if room not in tests:
                    tests[room] = reached(room, tree)
                row[given.when] = tried(Mutant(**fields), tree, tests[room])
                print(f"{row[given.when]:6} {time.monotonic() - begun:5.0f} s  {key}", flush=True)
                given.results.write_text(json.dumps(known, indent=1) + "\n")
    revived = [
        k for k, row in known.items() if row["before"] == "killed" and row.get("after") == "alive"
    ]
    for key in revived:
        print(f"lives now: {key}")
    return 1 if revived else 0


if __name__ == "__main__":
    sys.exit(main())
