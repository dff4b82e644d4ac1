"""The command line: fedldp reproduce."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import typer

from fedldp.cli._common import shown_progress
from fedldp.cli.options import Answer, DataDir
from fedldp.core.kinds import SHOWN_WITHOUT_SHUFFLER
from fedldp.data import resolve_data_dir
from fedldp.experiments.engine import end_of
from fedldp.experiments.reproduction.comparison import Row, compare
from fedldp.experiments.reproduction.pages import table, totals
from fedldp.experiments.reproduction.results import Measurements, default_cache, missing
from fedldp.experiments.reproduction.targets import PaperTarget, find_target, targets
from fedldp.reporting import words
from fedldp.reporting.text import Terminal


def reproduce(
    target: str | None = None,
    *,
    run: bool = False,
    seeds: Annotated[int | None, typer.Option(min=1)] = None,
    budget: str | None = None,
    check: bool = False,
    device: Literal["cpu", "cuda"] = "cpu",
    workers: Annotated[int | None, typer.Option(min=1)] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Show the papers' tables and figures next to ours; only --run starts runs.

    Help:
        target: a table or figure, by its name, or one of its recipes; without one, all of them
        run: measure what is missing
        seeds: number of seeds, from 0 [default: 3] [only with --run]
        budget (TIME): stop after this much time, such as 90s, 30m or 2h [only with --run]
        check: exit with status 1 if a measured cell differs and no reason is noted
        device: where the measurements that count were made
        workers: number of processes [default: one per core] [only with --run]
    """
    found = targets()
    chosen = [find_target(target, found)] if target is not None else list(found.values())
    measurements = Measurements(default_cache(), resolve_data_dir(data_dir), device)
    if run:
        cells = [recipe for each in chosen for recipe in each.cells]
        todo, end = missing(cells, range(seeds or 3), measurements), end_of(budget)
        typer.echo(
            f"{len(todo.runs)} runs are missing, which take about {todo.seconds / 60:.0f} minutes",
            err=True,
        )
        with shown_progress(workers, end=end) as means:
            todo.make(means)
    made = [(each, compare(each, measurements, prove=target is not None)) for each in chosen]
    wrong = [row for _, rows in made for row in rows if row.verdict == "differs" and not row.why]
    for row in wrong if check else ():
        typer.echo(f"differs: {row.row}, {row.column} ({row.recipe})", err=True)
    answer = _of_all(made, measurements) if target is None else _of_target(*made[0])
    return replace(answer, status=int(check and bool(wrong)))


def _of_all(made: list[tuple[PaperTarget, list[Row]]], measurements: Measurements) -> Answer:
    """Return how much of each target is measured, and the verdicts by paper."""
    documents = []
    of_papers: dict[str, list[Row]] = {}
    for target, rows in made:
        cells = zip(target.cells, rows, strict=True)
        left = [recipe for recipe, row in cells if row.ours is None]
        documents.append(
            {
                "target": target.name,
                "paper": f"{target.paper}, {target.place}",
                "cells": len(rows),
                "measured": len(rows) - len(left),
                "minutes": round(missing(left, range(1), measurements).seconds / 60, 1),
            }
        )
        of_papers.setdefault(target.paper, []).extend(rows)
    counted = totals(of_papers)

    def show(console: Terminal) -> None:
        head = ["target", "paper", "cells", "measured", "minutes for the rest, one seed each"]
        console.print_table(head, [list(map(str, row.values())) for row in documents])
        if counted:
            console.put("claims and cells with each verdict")
            console.print_table(list(counted[0]), [[*map(str, row.values())] for row in counted])

    return Answer({"targets": documents, "totals": counted}, show)


def _of_target(target: PaperTarget, rows: list[Row]) -> Answer:
    """Return a target's cells."""
    source = f"{target.paper}, {target.place}"

    def show(console: Terminal) -> None:
        console.put(source)
        head, told = table(rows)
        console.print_table(head, [[cell.replace("`", "") for cell in row] for row in told])
        console.put(words.line(SHOWN_WITHOUT_SHUFFLER))
        for row in rows:
            if row.why:
                console.put(f"why {row.row} differs: {row.why}")

    cells = [row.as_json() for row in rows]
    return Answer({"target": target.name, "source": source, "cells": cells}, show)
