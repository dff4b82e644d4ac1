"""The command line: fedldp report."""

from __future__ import annotations

from pathlib import Path

import typer

from fedldp.reporting.export import to_tensorboard
from fedldp.reporting.html import BEGINS, page
from fedldp.reporting.record import check_replaceable, replace_file
from fedldp.simulation.result import read_run


def report(
    folders: list[Path],
    *,
    out: Path | None = None,
    tensorboard: Path | None = None,
) -> None:
    """Make one HTML page about a run, or about several runs side by side.

    Help:
        folders (DIR...): folders of runs
        out (FILE): the page to write [default: report.html]
        tensorboard (LOGDIR): write the runs into this folder for TensorBoard
    """
    runs = [read_run(folder) for folder in folders]
    if out is not None or tensorboard is None:
        place = out or Path("report.html")
        check_replaceable(place, BEGINS.encode())
        replace_file(place, page(runs).encode())
        typer.echo(f"report     {place}")
    if tensorboard is not None:
        to_tensorboard(runs, tensorboard)
        typer.echo(f"written    tensorboard --logdir {tensorboard}")
