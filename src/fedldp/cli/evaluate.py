"""The command line: fedldp evaluate and predict."""

from __future__ import annotations

import csv
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedldp.cli.options import Answer, DataDir
from fedldp.core.formatting import with_class_name
from fedldp.reporting import words
from fedldp.reporting.text import Terminal, score_lines
from fedldp.reporting.words import answer, area, examples
from fedldp.simulation.evaluating import load_trained
from fedldp.training.answers import TWO_SIDED

Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="with two classes: predict class 1 if its probability is at least this number, for "
        "example the public share of class 1",
    ),
]


def evaluate(
    run_dir: Path,
    *,
    data: Path | None = None,
    threshold: Threshold = None,
    shift: float | None = None,
    data_dir: DataDir = None,
) -> Answer:
    """Measure how good a run's model is: accuracy, F1, AUC and scores per class, or R2.

    Help:
        run_dir (RUN_DIR): the folder of a simulated or deployed run
        data (FILE): labelled examples (.npz, .csv or .parquet) [default: the run's test set]
        shift (S): with two classes: a public number to add to the log odds of class 1
    """
    from fedldp.simulation.evaluating import evaluate as measure

    found = measure(run_dir, data, data_dir, threshold, shift=shift)
    return Answer(found, partial(_show, found))


def _show(found: dict[str, Any], console: Terminal) -> None:
    console.say("tested on", f"{found['data']}, {examples(found)}")
    if found.get("threshold") is not None:
        least = f"its probability is at least {found['threshold']}"
        console.say("threshold", f"{found['classes'][1]['class']} is predicted if {least}")
    if found.get("shift") is not None:
        console.say("shift", f"{found['shift']:g} is added to the log odds")
    for label, text in score_lines(found, found["data"]):
        console.say(label, text)
    if "classes" in found:
        console.say("F1", f"{found['f1_macro']:.4f}, the mean over the classes")
        figures = ("precision", "recall", "f1", "auc")
        rows = [
            [each["class"], f"{each['examples']:,}", *(area(each[name]) for name in figures)]
            for each in found["classes"]
        ]
        console.print_table(["class", "examples", "precision", "recall", "F1", "AUC"], rows)
    names = [each["class"] for each in found.get("classes", ())]
    last = {with_class_name(each["question"], names): each for each in found["answers"] or ()}
    told = (
        answer(q, each["value"], TWO_SIDED * each["deviation"], each["interval"])
        for q, each in last.items()
    )
    doubts = (doubt["text"] for doubt in found["doubts_of_answers"])
    console.say_answers(told, found["answered_by"], doubts)
    for warning in found["warnings"]:
        console.say("warning", warning["text"])


def predict(
    run_dir: Path,
    *,
    data: Path,
    out: Path | None = None,
    threshold: Threshold = None,
    shift: float | None = None,
    id_column: str | None = None,
) -> Answer:
    """Predict the class, or the number, of each example with a run's model.

    A row that the model cannot read is marked with what is wrong with it.

    Help:
        run_dir (RUN_DIR): the folder of a simulated or deployed run
        data (FILE): examples (.npz, .csv or .parquet); labels are not needed
        out (FILE): the .csv file to write, with a probability for each class, or the number
        shift (S): with two classes: a public number to add to the log odds of class 1
        id_column (--id COLUMN): a column that names the rows, to be kept
    """
    from fedldp.simulation.evaluating import predict as classify

    trained = load_trained(run_dir)
    rows = classify(trained, data, out, threshold, shift=shift, id_column=id_column)
    bad = sum(row["problem"] is not None for row in rows)
    if bad:
        typer.echo(
            f"warning    {bad:,} of {len(rows):,} rows have no prediction; the column problem "
            "says why",
            err=True,
        )
    if trained.so_far is not None:
        typer.echo(f"warning    {words.line(trained.so_far)}", err=True)

    def show(_: object) -> None:
        if out is not None:
            typer.echo(f"{len(rows) - bad:,} predictions in {out}")
            return
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["row", *rows[0]])
        for number, row in enumerate(rows, 1):
            told = (f"{each:.4f}" if isinstance(each, float) else each for each in row.values())
            writer.writerow([number, *told])

    return Answer(rows, show)
