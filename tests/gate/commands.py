"""What commands answer, as a user types them: exit status, JSON, and the rows behind it.

A comparison and an advice are recorded with the rows of all their runs. A test takes most of these
rows as they are, makes the other runs again, and expects the recorded rows and answer.

The words of facts are not recorded, since they may change in any release: pages and notes show a
fact's kind and values.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from environments import make_environment

from fedldp import cli
from fedldp.reporting import words
from gate.golden import FOLDER, as_read, one_core

COMMANDS = FOLDER / "commands"

MACHINE = {"seconds", "cpu_seconds", "date", "python", "versions", "hardware", "begun"}
"""Keys whose values differ from run to run, wherever they stand."""

FRESH = {"last_seen", "last_release", "run", "digest"}
"""Keys in the status of sites with keys of their own."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:+]+")

CONTESTANTS = """
guarantee = "client-run:server"
epsilon = [16, 64]
tries = 2
seeds = "0-1"

[set]
num_clients = 100
standardise = true

[contestants."one bit"]
recipe = "quickstart"
grid = { rounds = [1], learning_rate = [0.3, 1.2] }

[contestants."PrivUnit"]
recipe = "privunit-fl-digits"
grid = { rounds = [1], learning_rate = [0.3, 1.2] }

[contestants."no noise"]
recipe = "fedavg-digits"
reference = true
"""

DECLARED = """
dataset = "visits.csv"
client_column = "clinic"
person_column = "patient"
label_column = "readmitted"
scale_columns = { age = [0, 120], pressure = [40, 240] }
categories = { ward = ["a", "b"] }
"""


def visits() -> str:
    """Return a made-up table: 180 people of three clinics, with one or two visits each."""
    draw = np.random.Generator(np.random.PCG64(5))
    lines = ["clinic,patient,age,pressure,ward,readmitted"]
    for person in range(180):
        age = int(draw.integers(20, 90))
        for _ in range(int(draw.integers(1, 3))):
            pressure = int(np.clip(draw.normal(110 + age / 3, 10), 60, 220))
            ward = "ab"[int(draw.random() < 0.4)]
            chance = 1 / (1 + np.exp(-(age - 60) / 8 - (ward == "b")))
            ill = int(draw.random() < chance)
            lines.append(f"clinic{person % 3},p{person},{age},{pressure},{ward},{ill}")
    return "\n".join(lines) + "\n"


FILES = {"compare.toml": lambda: CONTESTANTS, "visits.toml": lambda: DECLARED, "visits.csv": visits}

SWEEP = "sweep quickstart fedavg-digits --grid rounds=1,2 --seeds 0-1 --workers 1 --out out"
SETS = {
    "compare": "compare compare.toml --workers 1 --out out",
    "advise": "advise visits.toml --person patient --workers 1 --out out",
}
"""Commands whose view can be made from their rows alone."""

AUDITS = ["person_dp_sgd", "--mechanism two_point"]
SINGLE = {
    "sweep": [SWEEP],
    "audit": [f"audit {subject} --brief --workers 1" for subject in AUDITS],
    "card": ["run quickstart --set rounds=2 --out out", "card out"],
    "card_of_people": ["run person-dp-sgd-digits --set rounds=2 --out out", "card out"],
    "deploy_demo": ["deploy demo --rounds 2"],
}
"""Commands of each record, in their order."""

ALL = [*SINGLE, *SETS, "deploy_status"]


def path_of(name: str) -> Path:
    """Return the file of a record."""
    return COMMANDS / f"{name}.json"


def of_command(name: str) -> dict[str, Any]:
    """Make a record by running its commands."""
    with _folder() as folder, one_core():
        if name == "deploy_status":
            return _status(folder)
        if name in SETS:
            found = {SETS[name]: _answer(SETS[name])}
            return {"answers": found, "rows": rows_of(folder / "out")}
        found = {line: _answer(line) for line in SINGLE[name]}
        if name == "deploy_demo":  # its sites draw fresh noise
            for key in ("accuracy", "final", "equal_to_simulation", "largest_difference"):
                found[SINGLE[name][0]]["json"].pop(key)
        if name.startswith("card"):
            page = (folder / "out" / "card" / "README.md").read_text(encoding="utf-8")
            return {"answers": found, "README.md": TIME.sub("TIME", page).splitlines()}
        return {"answers": found}


def of_rows(name: str, rows: Sequence[dict[str, Any]], step: int) -> dict[str, Any]:
    """Make the answer of a set of runs from recorded rows, but for every ``step``-th, which is run.

    The first run of a cell is kept if another try was chosen for that cell: with all tries known,
    it is not due again. The rows that are returned are in the order of ``rows``.
    """
    line = SETS[name]
    seeds = Counter(map(_try_of, rows))
    with _folder() as folder, one_core():
        begun = folder / "out"
        _answer(f"{line} --budget 1s")  # it makes the folder
        kept = [
            row
            for place, row in enumerate(rows, 1)
            if place % step or (row["purpose"] == "measured" and seeds[_try_of(row)] == 1)
        ]
        lines = [json.dumps({**row, "seconds": 1.0, "cpu_seconds": 1.0}) for row in kept]
        (begun / "results.jsonl").write_text("".join(f"{each}\n" for each in lines))
        found = _answer(line)
        order = [_run_of(row) for row in rows]
        made = sorted(rows_of(begun), key=lambda row: order.index(_run_of(row)))
        return {"answers": {line: found}, "rows": made}


def _run_of(row: dict[str, Any]) -> str:
    """Return what tells the run of a row from the others of its folder."""
    return json.dumps([_try_of(row), row["seed"]])


def _try_of(row: dict[str, Any]) -> str:
    """Return what the runs of a row have in common that differ in their seeds alone."""
    return json.dumps([row[key] for key in ("cell", "purpose", "try")], sort_keys=True)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a folder without what differs from run to run, and without statements.

    A row without a statement gets it from the plan of its configuration.
    """
    lines = (folder / "results.jsonl").read_text().splitlines()
    rows = [as_read(_plain(json.loads(line))) for line in lines]
    return [{key: each for key, each in row.items() if key != "privacy"} for row in rows]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Work in a new folder that has the input files."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        for file, content in FILES.items():
            (Path(name) / file).write_text(content(), encoding="utf-8")
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def _answer(line: str) -> dict[str, Any]:
    out, call = io.StringIO(), ["fedldp", *line.split(), "--json"]
    status = 0
    with (
        mock.patch.object(sys, "argv", call),
        mock.patch.object(words, "templates", dict),  # shows kinds and values
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
    if not out.getvalue():
        return {"status": status, "error": err.getvalue().splitlines()[-1:]}
    return {"status": status, "json": as_read(_plain(json.loads(out.getvalue())))}


def _status(folder: Path) -> dict[str, Any]:
    env = make_environment(folder / "env", seeded=False)
    env.serve()
    answers = {
        line: _plain(_answer(line), FRESH)
        for line in ("deploy status env/server", "deploy status env/site-0/site.toml")
    }
    # A reason may name a file of the folder, which is new each time.
    told = json.dumps(answers).replace(str(Path.cwd()), "FOLDER").replace(str(folder), "FOLDER")
    return {"answers": json.loads(told)}


def _plain(value: Any, varying: Set[str] = MACHINE) -> Any:
    """Return a document without what differs from run to run, and without words."""
    if isinstance(value, dict):
        left = varying | {"text"} if "kind" in value else varying  # of a fact or a line
        return {key: _plain(each, varying) for key, each in value.items() if key not in left}
    return [_plain(each, varying) for each in value] if isinstance(value, list) else value
