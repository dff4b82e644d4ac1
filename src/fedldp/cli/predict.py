"""The command line: fedldp predict."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedldp.cli._common import Json, file, print_json
from fedldp.cli.evaluate import RunDir, Threshold


def predict(
    run_dir: RunDir,
    data: Annotated[
        Path,
        typer.Option(
            parser=file,
            metavar="FILE",
            help="examples (.npz, .csv or .parquet); labels are not needed",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            parser=file,
            metavar="FILE",
            help="the .csv file to write, with a probability for each class",
        ),
    ] = None,
    threshold: Threshold = None,
    as_json: Json = False,
) -> None:
    """Predict the class of each example with a run's model."""
    from fedldp.simulation.evaluating import predict as classify
    from fedldp.simulation.evaluating import unfinished
    from fedldp.simulation.recorded import load_trained

    trained = load_trained(run_dir)
    rows = classify(trained, data, out, threshold)
    if trained.after is not None:
        typer.echo(f"warning    {unfinished(trained.after)}", err=True)
    if as_json:
        print_json(rows)
    elif out is not None:
        typer.echo(f"{len(rows):,} predictions in {out}")
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["row", "class", "probability"])
        for number, row in enumerate(rows, 1):
            writer.writerow([number, row["class"], f"{row['probability']:.4f}"])
