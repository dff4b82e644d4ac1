"""Every row of the table of failures names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "deployment_failures.md"
FILES = {
    "F": "test_real_failures.py",
    "R": "test_real_flower.py",
    "D": "test_real_demo.py",
    "H": "test_https_processes.py",
}


def test_every_row_says_which_tests_show_it_over_which_link() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.count("|") == 6][2:]
    assert len(rows) > 15
    for row in rows:
        over_flower, over_https = (cell.strip() for cell in row.split("|")[4:6])
        for cell, files in ((over_flower, "FRD"), (over_https, "HD")):
            if cell == "-":
                assert cell == over_https
                continue
            found = re.fullmatch(rf"([{files}]) `(\w+)`", cell)
            assert found is not None, row
            text = (HERE / FILES[found[1]]).read_text()
            assert f"\ndef test_{found[2]}(" in text, row
