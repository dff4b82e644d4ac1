"""Every row of the table of failures names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "benchmarks" / "pages" / "failures.md"
FILES = {
    "C": "test_power_cuts.py",
    "L": "test_https_link.py",
    "P": "test_failures_in_process.py",
    "S": "test_status_processes.py",
    "D": "test_real_demo.py",
    "O": "test_outdated_ledgers.py",
    "T": "test_two_studies.py",
}


def test_every_row_says_which_test_shows_it() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.count("|") == 5][2:]
    assert len(rows) > 15
    for row in rows:
        found = re.fullmatch(r"([CLPSDOT]) `(\w+)`", row.split("|")[4].strip())
        assert found is not None, row
        text = (HERE / FILES[found[1]]).read_text()
        assert f"\ndef test_{found[2]}(" in text, row
