"""Make the pages of audits: docs/results/audit_*.md and broken_claims.md.

    fedldp audit --quick --json > audit.json
    fedldp audit personalized-sound-digits-sums --json > audit-own-budgets.json
    python -m benchmarks.audit_table COMMIT audit.json audit-own-budgets.json

This keeps one or both audits in benchmarks/results, with the commit that made them, from which
benchmarks/site.py makes the pages. If attacks or settings are renamed in a kept audit, set
"renamed" to true in its file, and the pages say so.

One page has a line for each mechanism, another a line for each system. The rows themselves are on
additional pages, with few and short columns that fit a phone.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.blocks import from_template, table

Row = Mapping[str, Any]

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "results"
ALL, OWN_BUDGETS = "audit.json", "audit-own-budgets.json"
"""The names of the kept audits: the quick audit of everything, and one recipe in full."""

FAMILIES = {
    "weight": "Audit of mechanisms with a budget per weight",
    "report": "Audit of mechanisms with a budget per report",
}
FIGURES = ["claimed", "proven", "at least", "bug from"]
COLUMNS = """- *line*: the attacked line of the statement, named by its unit, its adversary unless
  that is the server, and its δ unless that is 0
- *at least*: the lower bound on epsilon that the attack gave; bold if it exceeds the claim; "exact"
  if it was computed rather than estimated from trials
- *bug from*: the smallest epsilon at which the row would have shown a bug, with this many trials; a
  dash if there is no such epsilon"""
BY = "- *by*: the number of the attack in the [list of attacks](#attacks) at the end"
OVERVIEW = """Each line shows the row whose bound comes closest to the proven epsilon or, where
nothing is proven, the row with the largest bound. *broken* is the number of rows that break a
claim. [Audit](../audit.md#reading-a-verdict) explains the verdicts."""


def kept(name: str = ALL) -> dict[str, Any]:
    """Return a committed audit: the document of ``fedldp audit --json``, and its commit."""
    found: dict[str, Any] = json.loads((KEPT / name).read_text(encoding="utf-8"))
    return found


def page_of_own_budgets(audit: Mapping[str, Any]) -> str:
    """Return the page of budgets that stay at their sites."""
    rows = audit["rows"]
    source = "`fedldp audit personalized-sound-digits-sums --json`"
    made = f"{_made_by(audit, len(rows), source)}\n\n{COLUMNS}\n{BY}\n\n{_settings(rows)}"
    return from_template("audit_own_budgets", {"own": made})


def pages(audit: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each page that is made from the audit of everything, by file name."""
    mechanisms: dict[str, list[Row]] = {}
    systems: dict[str, list[Row]] = {}
    for row in audit["rows"]:
        if "mechanism" in row:
            mechanisms.setdefault(_name(row), []).append(row)
        else:
            systems.setdefault(row["system"], []).append(row)
    families = {name: f"audit_{_family(rows)}_mechanisms.md" for name, rows in mechanisms.items()}
    of_mechanism = {name: f"{page}#{name.lower()}" for name, page in families.items()}
    of_system = {name: f"audit_{name}.md" for name in systems}
    found = {
        "audit_mechanisms.md": _overview("mechanism", audit, mechanisms, of_mechanism),
        "audit_systems.md": _overview("system", audit, systems, of_system),
        **{of_system[name]: _system(name, rows) for name, rows in systems.items()},
    }
    for family, title in FAMILIES.items():
        page = f"audit_{family}_mechanisms.md"
        own = [
            _mechanism(name, rows) for name, rows in mechanisms.items() if families[name] == page
        ]
        where = "[Audit of all mechanisms](audit_mechanisms.md) names the command, commit and seed."
        found[page] = "\n".join([f"# {title}\n\n{where}\n\n{COLUMNS}\n", *own])
    broken = {"broken": _broken(audit, of_mechanism | of_system)}
    return found | {"broken_claims.md": from_template("broken_claims", broken)}


def all_pages() -> dict[str, str]:
    """Return the text of each page that is made from the kept audits, by file name."""
    return pages(kept()) | {"audit_own_budgets.md": page_of_own_budgets(kept(OWN_BUDGETS))}


def _made_by(
    audit: Mapping[str, Any], number: int, source: str = "`fedldp audit --quick --json`"
) -> str:
    """Return where an audit's rows come from, and their verdicts."""
    verdicts = Counter(row["verdict"] for row in audit["rows"])
    told = ", ".join(f"{count} `{name or '-'}`" for name, count in verdicts.most_common())
    count = len(audit["rows"])
    renamed = (
        "Since then, some attacks and settings have been renamed; the figures are unchanged.\n"
        if audit.get("renamed")
        else ""
    )
    which = f"All {count} rows" if number == count else f"{number} of the {count} rows"
    return (
        f"{which} of {source} at commit\n{audit['commit']}, seed {audit['seed']}. With probability "
        f"at least {audit['confidence']}, the bounds of all rows hold together.\n"
        f"{renamed}Verdicts over all rows: {told}."
    )


def _overview(
    kind: str,
    audit: Mapping[str, Any],
    subjects: Mapping[str, Sequence[Row]],
    places: Mapping[str, str],
) -> str:
    """Return the page with one line for each mechanism or system."""
    lines = []
    for name, rows in subjects.items():
        nearest = max(rows, key=_nearness)
        broken = sum(row["verdict"] == "claim-broken" for row in rows)
        lines.append([
            f"[`{name}`]({places[name]})", str(len(rows)), _lower(nearest), _proven(nearest),
            str(broken or "-"),
        ])  # fmt: skip
    head = [kind, "rows", "at least", "proven", "broken"]
    number = sum(map(len, subjects.values()))
    return (
        f"# Audit of all {kind}s\n\n{_made_by(audit, number)}\n\n{OVERVIEW}\n\n{table(head, lines)}"
    )


def _mechanism(name: str, rows: Sequence[Row]) -> str:
    """Return the section of a mechanism: the parameters that all rows share, and one table."""
    given = [_parameters(row) for row in rows]
    shared = {key: value for key, value in given[0].items() if all(g[key] == value for g in given)}
    lines = []
    for row, all_ in zip(rows, given, strict=True):
        own = {key: value for key, value in all_.items() if key not in shared}
        own["d"] = f"{row['size']:,}"
        lines.append([_listed(own), _line(row), *_figures(row)])
    intro = f"In all rows: {_listed(shared)}.\n\n" if shared else ""
    return f"## {name}\n\n{intro}{table(['with', 'line', *FIGURES], lines)}"


def _system(name: str, rows: Sequence[Row]) -> str:
    """Return the page of a system."""
    where = "[Audit of all systems](audit_systems.md) names the command, commit and seed."
    return f"# Audit of {name}\n\n{where}\n\n{COLUMNS}\n{BY}\n\n{_settings(rows)}"


def _settings(rows: Sequence[Row]) -> str:
    """Return a table for each setting of a system, and beneath them the list of the attacks.

    The column of claims is left out if the system claims nothing.
    """
    first = 0 if any(row["claimed"] is not None for row in rows) else 1
    attacks = list(dict.fromkeys(_attack(row) for row in rows))
    parts = []
    titles: Counter[str] = Counter()
    for (setting, size), some in groupby(rows, key=lambda row: (row["setting"], row["size"])):
        title = f"{setting[0].upper()}{setting[1:]}; d = {size:,}"
        titles[title] += 1
        if titles[title] > 1:
            title += f"; recipe {titles[title]}"
        lines = [
            [_line(row), *_figures(row)[first:], str(attacks.index(_attack(row)) + 1)]
            for row in some
        ]
        parts.append(f"## {title}\n\n{table(['line', *FIGURES[first:], 'by'], lines)}".rstrip())
    listed = "\n".join(f"{at}. {attack}" for at, attack in enumerate(attacks, 1))
    return "\n\n".join([*parts, f"## Attacks\n\n{listed}\n"])


def _broken(audit: Mapping[str, Any], places: Mapping[str, str]) -> str:
    """Return the table of the claims that the audit broke."""
    rows = [row for row in audit["rows"] if row["verdict"] == "claim-broken"]
    lines = []
    for row in rows:
        if "mechanism" in row:
            name, where = _name(row), _listed(_parameters(row))
        else:
            name, where = row["system"], row["setting"].partition(", but ")[0]
        lines.append([f"[`{name}`]({places[name]}), {where}", _line(row), *_figures(row)[:3]])
    return f"{_made_by(audit, len(rows))}\n\n{table(['subject', 'line', *FIGURES[:3]], lines)}"


def _nearness(row: Row) -> tuple[bool, float]:
    """Return what orders rows by how much they show: first those with a proven figure."""
    if row["proven"] is None:
        return False, row["lower"]
    return True, row["lower"] / row["proven"] if row["proven"] else 0.0


def _family(rows: Sequence[Row]) -> str:
    """Return which page a mechanism's rows are on."""
    return "weight" if any(row["unit"] == "weight" for row in rows) else "report"


def _name(row: Row) -> str:
    return str(row["mechanism"]).partition("(")[0]


def _parameters(row: Row) -> dict[str, str]:
    """Return a mechanism's parameters, numbers to four digits."""
    listed = re.findall(r"(\w+)=('[^']*'|[^,)]*)", row["mechanism"])
    return {key: _short(value.strip("'")) for key, value in listed}


def _short(value: str) -> str:
    return f"{float(value):.4g}" if re.fullmatch(r"\d+\.\d+(e-?\d+)?", value) else value


def _listed(parameters: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in parameters.items())


def _line(row: Row) -> str:
    """Return the unit, delta, and the adversary if it is not the server."""
    other = f", {row['adversary']}" if row["adversary"] != "server" else ""
    return str(row["unit"]) + other + (f", δ {row['delta']:g}" if row["delta"] else "")


def _figures(row: Row) -> list[str]:
    """Return the cells of a row under ``FIGURES``."""
    claimed = "-" if row["claimed"] is None else f"{row['claimed']:,.4g}"
    if row.get("claim_unit") not in (None, row["unit"]):
        claimed += f" per {row['claim_unit']}"
    finds = re.search(r"would show a bug from epsilon (\d+\.\d+)", row["note"])
    return [claimed, _proven(row), _lower(row), _figure(float(finds[1])) if finds else "-"]


def _lower(row: Row) -> str:
    """Return the bound, rounded down so that no more is shown than was reached; "-" if none is."""
    if row["verdict"] is None:
        return "-"
    shown = _figure(math.floor(row["lower"] * 1000) / 1000)
    if row["note"].startswith("exact"):
        shown += " exact"
    if row["verdict"] == "ok":
        return shown
    return f"**{shown}**" if row["verdict"] == "claim-broken" else f"**{shown} {row['verdict']}**"


def _proven(row: Row) -> str:
    return "none" if row["proven"] is None else _figure(row["proven"])


def _figure(value: float) -> str:
    """Return a figure in at most seven characters, if it is below 100,000."""
    return f"{value:,.{3 if value < 10 else 2 if value < 100 else 0}f}"


def _attack(row: Row) -> str:
    """Return a row's attack and its number of trials, as an item of a list."""
    return str(row["attack"]) + (f" ({row['trials']:,} trials)" if row["trials"] else "")


def main() -> None:
    """Keep the given audits."""
    commit, *files = sys.argv[1:]
    for file in map(Path, files):
        if file.name not in (ALL, OWN_BUDGETS):
            raise SystemExit(f"{file}: give a file named {ALL} or {OWN_BUDGETS}")
        found = json.loads(file.read_text(encoding="utf-8")) | {"commit": commit}
        text = json.dumps(found, indent=0, ensure_ascii=False) + "\n"
        (KEPT / file.name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
