"""Print the tables of docs/audit.md: of mechanisms, and of systems.

fedldp audit --quick --json | python benchmarks/audit_table.py
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

COMMON = ["unit", "d", "δ", "claimed", "proven", "at least", "trials", "bound", "verdict"]


def main() -> None:
    """Read the audit's JSON from stdin, and print one Markdown row for each of its rows."""
    rows = json.load(sys.stdin)["rows"]
    mechanisms = [row for row in rows if "mechanism" in row]
    systems = [row for row in rows if "system" in row]
    if mechanisms:
        table(["mechanism", *COMMON], [[name_of(row), *common(row)] for row in mechanisms])
    if systems:
        print()
        head = ["system", "setting", "against", *COMMON, "swapped; seen by"]
        table(head, [[*place(row), *common(row), row["attack"]] for row in systems])


def table(head: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    for cells in rows:
        print(f"| {' | '.join(cells)} |")


def name_of(row: dict[str, Any]) -> str:
    """Return a mechanism with its parameters, to four digits."""
    short = re.sub(r"\d+\.\d{4,}", lambda match: f"{float(match[0]):.4g}", row["mechanism"])
    return f"`{short}`"


def place(row: dict[str, Any]) -> list[str]:
    """Return the system of a row, its setting, and the adversary."""
    return [f"`{row['system']}`", row["setting"], row["adversary"]]


def common(row: dict[str, Any]) -> list[str]:
    """Return the cells that all rows have."""
    claimed = "-" if row["claimed"] is None else f"{row['claimed']:,.4g}"
    of = row.get("claim_unit")
    if of is not None and of != row["unit"]:
        claimed += f" (per {of})"
    return [
        row["unit"],
        f"{row['size']:,}",
        f"{row['delta']:g}",
        claimed,
        "none" if row["proven"] is None else f"{row['proven']:,.4f}",
        f"{row['lower']:.4f}",
        f"{row['trials']:,}",
        row["note"].split()[0],
        row["verdict"] if row["verdict"] == "ok" else f"**{row['verdict']}**",
    ]


if __name__ == "__main__":
    main()
