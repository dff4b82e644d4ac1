"""The command line: fedldp report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from fedldp.cli.options import Answer, Json
from fedldp.reporting.export import to_tensorboard
from fedldp.reporting.html import BEGINS, page
from fedldp.reporting.record import check_replaceable, replace_file
from fedldp.reporting.runs import FinishedRun, differing, twin_of
from fedldp.simulation.recorded import read_run


def report(
    folders: list[Path],
    *,
    out: Path | None = None,
    tensorboard: Path | None = None,
    as_json: Json = False,
) -> Answer | None:
    """Make one HTML page about a run, or about several runs side by side.

    Help:
        folders (DIR...): folders of runs
        out (FILE): the page to write [default: report.html]
        tensorboard (LOGDIR): write the runs into this folder for TensorBoard
    """
    runs = [read_run(folder) for folder in folders]
    if out is not None or (tensorboard is None and not as_json):
        place = out or Path("report.html")
        _write(place, runs)
        typer.echo(f"report     {place}", err=as_json)
    if tensorboard is not None:
        to_tensorboard(runs, tensorboard)
        typer.echo(f"written    tensorboard --logdir {tensorboard}", err=as_json)
    return Answer(_document(runs)) if as_json else None


def _write(place: Path, runs: list[FinishedRun]) -> None:

    check_replaceable(place, BEGINS.encode())
    replace_file(place, page(runs).encode())


def _document(runs: list[FinishedRun]) -> dict[str, Any]:

    twins = [twin_of(run, runs) for run in runs]
    return {
        "runs": [
            run.to_record() | {"noise_free_twin": None if twin is None else str(twin.path)}
            for run, twin in zip(runs, twins, strict=True)
        ],
        "differing": differing(runs),
    }
