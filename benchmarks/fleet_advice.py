"""Writes what `fedldp advise --fleet` knows, from the study's tables of many clients.

    python -m benchmarks.fleet_advice

For each data set, number of clients, adversary and epsilon, the file has the contestant with the
best mean accuracy among those that can be deployed, on the data as they are and on public features.
"""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.study import STUDY, Table, tables
from fedldp.accounting.proven import Proven
from fedldp.algorithms import fleet
from fedldp.data.sources import find_source
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping

PLACE = Path(fleet.__file__).with_name(fleet.FILE)


def made() -> str:
    """Return the content of the file."""
    cells = [cell for table in tables() for cell in _cells(table)]
    return "[\n" + ",\n".join(json.dumps(cell, sort_keys=True) for cell in cells) + "\n]\n"


def _cells(table: Table) -> list[dict[str, Any]]:
    if table.name.startswith("people-") or "shards" in table.name or "dirichlet" in table.name:
        return []
    text = tomllib.loads((STUDY / f"{table.name}.toml").read_text(encoding="utf-8"))
    design, shared = table.design, text["set"]
    chosen = {
        (row["name"], float(row["epsilon"])): row
        for row in _rows(table)
        if row["epsilon"] and row["proven_epsilon"] and row["idealised"] == "False"
    }
    best: dict[tuple[float, bool], dict[str, Any]] = {}
    for (name, epsilon), row in chosen.items():
        given = text["contestants"][name]
        if (name, epsilon) not in table.lines or "set" not in given or "system" not in given:
            continue
        # The budget follows from the target, so it is not copied.
        tried = json.loads(row["settings"])
        solved = {key: tried.pop(key, None) for key in ("epsilon", "noise_multiplier")}
        tried.pop("range_radius", None)
        settings = {"system": given["system"], **given["set"], **tried}
        cell: dict[str, Any] = {
            "data": shared["dataset"],
            "clients": shared["num_clients"],
            "examples": _examples(shared) // shared["num_clients"],
            "adversary": design.guarantee.adversary,
            "epsilon": epsilon,
            "accuracy": round(float(row["accuracy"]), 4),
            "seeds": int(row["seeds"]),
            "settings": settings,
            "budget": {key: each for key, each in solved.items() if each is not None},
        }
        place = epsilon, "features" in settings
        if place not in best or cell["accuracy"] > best[place]["accuracy"]:
            best[place] = cell
    return [_with_conditions(best[place]) for place in sorted(best)]


def _with_conditions(cell: dict[str, Any]) -> dict[str, Any]:
    """Return a cell with what its epsilon rests on, as the statement of its run says it."""
    budget, data = cell.pop("budget"), {"dataset": cell["data"], "num_clients": cell["clients"]}
    config = from_mapping({**cell["settings"], **budget, **data})
    privacy = plan(config, problem_of(config, None)).privacy
    found = Proven.of(privacy, "client-run", cell["adversary"])
    assert found.size <= cell["epsilon"], cell
    return {**cell, "conditions": [each.to_json() for each in found.conditions]}


def _examples(shared: dict[str, Any]) -> int:
    found: int = shared.get("num_examples") or find_source(shared["dataset"]).num_train
    return found


def _rows(table: Table) -> list[dict[str, str]]:
    path = STUDY / "results" / table.name / "table.csv"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


if __name__ == "__main__":
    PLACE.write_text(made(), encoding="utf-8")
