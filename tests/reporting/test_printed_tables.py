"""Tables keep units, adversaries and numbers whole, in terminals of any width."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.cli import _common
from fedldp.reporting.text import Terminal

WIDTHS = (56, 80, 120)


def printed(width: int, *given: Any) -> str:
    text = io.StringIO()
    Terminal(file=text, width=width, color_system=None).print_table(*given)
    return text.getvalue()


def assert_whole(text: str, width: int, cells: list[str]) -> None:
    """Check that no line is longer than the terminal, nothing is cut, and all words are there."""
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    words = set(text.replace("│", " ").replace(";", " ").split())
    assert {word for cell in cells for word in cell.split()} <= words


@pytest.mark.parametrize("width", WIDTHS)
def test_every_unit_against_every_adversary_is_whole(width: int) -> None:
    head = ("protected", "against", "epsilon", "delta", "true epsilon is at least")
    rows = [
        (f"{unit} (idealised)", adversary, "18,129,858.4075", "1e-05", "0.9999")
        for unit in get_args(Unit)
        for adversary in get_args(Adversary)
    ]
    found = printed(width, head, rows, "Against whom")
    assert_whole(found, width, ["Against whom", *(cell for row in rows for cell in row)])
    assert found.count("client-round") == found.count("client-run") == len(get_args(Adversary))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sweep_or_comparison_is_whole(width: int) -> None:
    text = io.StringIO()
    console = Terminal(file=text, width=width, color_system=None, force_terminal=True)
    head = ["clip_[norm]", "rounds", "accuracy", "seeds", "loss", "proven epsilon"]
    epsilon = "1.1714 (delta 1e-05) per client-round, against the summing-server"
    rows = [["0.5", "3", "81.50 ± 0.30 %", "24", "0.5123", epsilon], ["1"] * 5 + ["none"]]
    result: Any = SimpleNamespace(shown=lambda: (head, rows), notes=list, out="x")
    _common.print_rows(result, (), console)
    assert_whole(text.getvalue(), width, [cell.replace(";", "") for row in rows for cell in row])
    assert "clip_[norm]" in text.getvalue()


def test_a_long_address_is_broken_but_not_cut() -> None:
    address = "package.of.somebody.with.a.long.name:System"
    found = printed(30, ("stated by",), [(address,)])
    assert address in "".join(found.replace("│", " ").split())


@pytest.mark.slow
def test_a_run_in_a_terminal_prints_its_statement_and_its_rounds_once(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["run", "quickstart", "--rounds", "2", "--set", "num_examples=100"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedldp", *arguments, "--out", str(tmp_path / "run")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    found = b""
    try:
        while part := os.read(ours, 1 << 16):
            found += part
    except OSError:  # the end of a terminal
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    told = found.decode()
    assert told.count("protected") == 1
    assert told.count("as stated above") == 1
    # The bar's last line is erased before the table of rounds is printed.
    bar, table = told.rindex("\x1b[2K"), told.index("uplink bits per")
    assert bar < table
    assert "round 2/2" not in told[bar:]
