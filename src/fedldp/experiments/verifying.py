"""Compares an experiment's folder with its settings, code, data and versions; trains nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedldp.core.errors import FedldpError, one_line
from fedldp.core.locks import scratch
from fedldp.experiments.making import Maker, summary_of
from fedldp.experiments.own import code_digest
from fedldp.experiments.runs import PlannedRun, Row
from fedldp.experiments.store import RESULTS, Own, RunStore, read_document
from fedldp.reporting.record import environment


@dataclass(frozen=True)
class Reading:
    """How to read the rows of an experiment.

    Attributes:
        planned: returns the run of a row as it would be planned now; None if there is none.
        check: raises an error if a row's run proves less than its label.
        own: what is the user's own now.
        maker: makes runs again.
    """

    planned: Callable[[Row], PlannedRun | None]
    check: Callable[[Row], None]
    own: Own
    maker: Maker


def with_own_code(folder: Path) -> None:
    """Let copies of own code in a folder be imported, where the user's own files are missing."""
    sys.path += [str(place) for place in sorted(folder.glob("own/*"))]


def verify(folder: Path, kind: str, reading: Reading, again: int = 0) -> Iterator[str]:
    """Yield what is missing or differs in an experiment's folder, one line each.

    Args:
        folder: the folder.
        kind: "sweep", "compare" or "advise".
        reading: how to read its rows.
        again: how many runs to make again, in a temporary folder, to compare their numbers.

    Raises:
        RunError: there is no such experiment.
    """
    document, store = read_document(folder, kind), RunStore(folder / RESULTS)
    yield from _about_code(folder, document, reading.own)
    if problem := reading.own.problem(document.get("data")):
        yield f"data: {problem}"
    here = environment()["packages"]
    for versions in {json.dumps(row["versions"], sort_keys=True) for row in store.rows.values()}:
        then = json.loads(versions)
        other = [f"{name} {then.get(name)}" for name in here if then.get(name) != here[name]]
        if other:
            now = ", ".join(f"{each.partition(' ')[0]} {here[each.split()[0]]}" for each in other)
            yield f"versions: rows were made with {', '.join(other)}; here is {now}"
    known: list[tuple[PlannedRun, Row]] = []
    for row in store.rows.values():
        run = reading.planned(row)
        if run is None:
            yield f"run {row['digest']}: it was made with other settings, code or data"
            continue
        known.append((run, row))
        try:
            reading.check(row)
        except FedldpError as error:
            yield one_line(error)
    yield from _made_again(store, reading.maker, known, again)


def _about_code(folder: Path, document: dict[str, Any], own: Own) -> Iterator[str]:
    for code in document.get("own", ()):
        place = folder / "own" / code
        files = {each.relative_to(place).as_posix(): each for each in place.rglob("*")}
        if code_digest({name: each for name, each in files.items() if each.is_file()}) != code:
            yield f"own code {code}: its copy is missing or was changed"
        if code not in own.code:
            yield f"own code {code}: the user's own files differ from it now, or are missing"


def _made_again(
    store: RunStore, maker: Maker, known: list[tuple[PlannedRun, Row]], again: int
) -> Iterator[str]:
    """Make some runs again, spread evenly, and yield the largest difference, if there is one."""
    scored = [(run, row) for run, row in known if _accuracy(store.folder, row) is not None]
    some = scored[:: max(1, len(scored) // again)][:again] if again else []
    largest, which = 0.0, None
    for run, row in some:
        with scratch() as folder:
            place = None if run.place is None else folder / run.place
            made = _accuracy(folder, maker.make(run, place))
        difference = abs((made or 0.0) - (_accuracy(store.folder, row) or 0.0))
        if made is None or difference > largest:
            largest, which = difference, row
    if which is not None:
        yield (
            f"run {which['digest']}: made again, its accuracy differs by {largest:.2g}, the most "
            f"of {len(some)} runs"
        )


def _accuracy(folder: Path, row: Row) -> float | None:
    if "folder" in row:
        summary = summary_of(folder / row["folder"])
        return None if summary is None else summary["final"]["accuracy"]
    found: float | None = row["accuracy"]
    return found
