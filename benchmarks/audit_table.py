"""Make the pages of the quick audit of everything, docs/results/audit_*.md and broken_claims.md.

    fedldp audit --quick --json > audit.json
    python -m benchmarks.audit_table audit.json COMMIT

It keeps the rows in benchmarks/results/audit.json, with the commit that they are of. Without
arguments it makes the pages of these again.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.blocks import table, with_blocks

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "results" / "audit.json"
RESULTS = ROOT / "docs" / "results"
BROKEN = RESULTS / "broken_claims.md"

COMMON = ["unit", "d", "δ", "claimed", "proven", "at least", "trials", "bound", "verdict"]
OF_SYSTEMS = ["system", "setting", "against", *COMMON, "swapped; seen by"]
TITLES = {"mechanism": "Audit of all mechanisms", "system": "Audit of all systems"}
READ = """The columns: *claimed* and *proven* are for the row's unit at δ; *at least* is the epsilon
that the attack reached, *trials* what it counted, and *bound* how near that came to what is proven.
[Audit](../audit.md#reading-a-verdict) says how to read them."""


def kept() -> dict[str, Any]:
    """Return the committed audit: the document of ``fedldp audit --json``, and its commit."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def pages(audit: dict[str, Any]) -> dict[Path, str]:
    """Return the text of each page that is made of an audit."""
    made = {}
    for kind, title in TITLES.items():
        rows = [row for row in audit["rows"] if kind in row]
        head = [kind, *COMMON] if kind == "mechanism" else OF_SYSTEMS
        lines = table(head, [cells(row) for row in rows])
        text = f"# {title}\n\n{said(audit, len(rows))}\n\n{READ}\n\n{lines}"
        made[RESULTS / f"audit_{kind}s.md"] = text
    return made | {
        BROKEN: with_blocks(BROKEN.read_text(encoding="utf-8"), {"broken": broken(audit)})
    }


def said(audit: dict[str, Any], number: int) -> str:
    """Return where an audit's rows come from, and what came of them."""
    verdicts = Counter(row["verdict"] for row in audit["rows"])
    told = ", ".join(f"{count} `{name}`" for name, count in verdicts.most_common())
    return (
        f"{number} of the {len(audit['rows'])} rows of `fedldp audit --quick --json` at commit "
        f"{audit['commit']}, seed {audit['seed']}; with\nprobability {audit['confidence']} all "
        f"bounds of all rows hold together. Verdicts of all rows: {told}."
    )


def broken(audit: dict[str, Any]) -> str:
    """Return the table of the claims that the audit broke."""
    rows = [row for row in audit["rows"] if row["verdict"] == "claim-broken"]
    subjects = [name_of(row) if "mechanism" in row else f"`{row['system']}`" for row in rows]
    settings = [row.get("setting", "") for row in rows]
    figures = [common(row)[:6] for row in rows]
    shown = [
        [subject, setting, *cells]
        for subject, setting, cells in zip(subjects, settings, figures, strict=True)
    ]
    return said(audit, len(rows)) + "\n\n" + table(["of", "setting", *COMMON[:6]], shown)


def cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row."""
    if "mechanism" in row:
        return [name_of(row), *common(row)]
    return [f"`{row['system']}`", row["setting"], row["adversary"], *common(row), row["attack"]]


def name_of(row: dict[str, Any]) -> str:
    """Return a mechanism with its parameters, to four digits."""
    short = re.sub(r"\d+\.\d{4,}", lambda match: f"{float(match[0]):.4g}", row["mechanism"])
    return f"`{short}`"


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
        row["note"].split()[0].rstrip(":"),
        row["verdict"] if row["verdict"] == "ok" else f"**{row['verdict']}**",
    ]


def main() -> None:
    """Keep an audit, where one is given, and make the pages."""
    if sys.argv[1:]:
        audit, commit = sys.argv[1:]
        found = json.loads(Path(audit).read_text(encoding="utf-8")) | {"commit": commit}
        KEPT.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    for page, text in pages(kept()).items():
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
