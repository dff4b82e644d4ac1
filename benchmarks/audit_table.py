"""Print the table of docs/audit.md.

fedldp audit --quick --json | python benchmarks/audit_table.py
"""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    """Read the audit's JSON from stdin, and print one Markdown row for each of its rows."""
    found = json.load(sys.stdin)
    print("| mechanism | unit | d | δ | claimed | proven | at least | trials | bound | verdict |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in found["rows"]:
        mechanism = re.sub(r"\d+\.\d{4,}", lambda match: f"{float(match[0]):.4g}", row["mechanism"])
        cells = [
            f"`{mechanism}`",
            row["unit"],
            f"{row['size']:,}",
            f"{row['delta']:g}",
            "-" if row["claimed"] is None else f"{row['claimed']:,g}",
            "none" if row["proven"] is None else f"{row['proven']:,.4f}",
            f"{row['lower']:.4f}",
            f"{row['trials']:,}",
            row["note"].split()[0],
            row["verdict"] if row["verdict"] == "ok" else f"**{row['verdict']}**",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
