"""Apply the model in a run folder to other examples, to measure it or to predict classes."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataMissing
from fedldp.core.kinds import HELD_OUT
from fedldp.data import Dataset, Examples, load_examples, load_features
from fedldp.data.examples import Rows, checked_rows
from fedldp.data.sources import SOURCES
from fedldp.reporting import words
from fedldp.reporting.record import RunFolder, Schema, check_replaceable, replace_file
from fedldp.reporting.scores import TestSet, doubts, figures, named, scores
from fedldp.simulation.inputs import load
from fedldp.simulation.recorded import load_trained
from fedldp.simulation.result import Result
from fedldp.simulation.trained import Trained

_BEGINS = b"row,class,probability of "


def evaluate(
    run: Result | Path,
    data: Dataset | Rows | Path | None = None,
    data_dir: Path | None = None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return the metrics of a run's model: what ``fedldp evaluate --json`` prints.

    Args:
        run: a run's result, or its folder.
        data: features and labels, or another source of them; a data set, whose test set is used; or
            a file of examples, either .npz (features, labels) or a table with the run's columns.
            None uses the run's own test set.
        data_dir: the data folder.
        threshold: for a model with two classes, the lowest probability at which it predicts class
            1, above 0 and below 1; None predicts the more probable class.

    Raises:
        FedldpError: the run, the data or the threshold cannot be used.
    """
    trained = run.trained() if isinstance(run, Result) else load_trained(run)
    _check_threshold(threshold, trained)
    told, examples, is_private = _tested(trained, data, data_dir)
    if not len(examples):
        raise ConfigError(f"data = {told}: it has no examples; give some")
    if examples.labels.max() >= trained.schema.num_classes:
        raise ConfigError(
            f"data = {told}: it has the label {examples.labels.max()}, but the model knows only 0 "
            f"to {trained.schema.num_classes - 1}"
        )
    schema = trained.schema
    shares = trained.probabilities(examples.features)
    found = scores(examples.labels, shares, schema, threshold)
    confusion = np.array(found["confusion"])
    doubtful = doubts(found, confusion, confusion.sum(1), schema)
    on = TestSet.of(confusion.sum(1), is_private)
    return {
        "run_dir": None if trained.folder is None else str(trained.folder),
        "data": told,
        "threshold": threshold,
        **found,
        "warnings": words.facts(
            [
                *([] if trained.so_far is None else [trained.so_far]),
                *doubtful,
                *([HELD_OUT] if is_private else []),
            ]
        ),
        "figures": list(map(words.figure, figures(found, on, doubtful))),
    }


def _tested(
    trained: Trained, data: Dataset | Rows | Path | None, data_dir: Path | None
) -> tuple[str, Examples, bool]:
    """Return the name of the test set, its prepared examples, and whether they are private."""
    if data is None:
        dataset = _own_data(trained, data_dir)  # standardised as it was for the run
        return "the run's test set", dataset.test, dataset.scores_are_private
    if isinstance(data, Dataset):
        found, name, is_private = data.test, data.name, data.scores_are_private
    elif isinstance(data, Path):
        columns, features = trained.columns, trained.schema.features
        found, name = load_examples(data, columns=columns, names=features), str(data)
        is_private = False
    else:
        found = checked_rows(data, "dataset:", trained.schema.classes)
        name, is_private = "custom", False
    return name, replace(found, features=trained.prepared(found.features)), is_private


def _check_threshold(threshold: float | None, trained: Trained) -> None:
    if threshold is None:
        return
    if not 0 < threshold < 1:
        raise ConfigError(f"threshold = {threshold:g}: give a probability above 0 and below 1")
    classes = trained.schema.num_classes
    if classes != 2:
        raise ConfigError(
            f"threshold = {threshold:g}: the model of {trained.folder} has {classes} classes, and "
            "a threshold needs two; leave threshold out"
        )


def predict(
    trained: Trained, data: Path, out: Path | None = None, threshold: float | None = None
) -> list[dict[str, Any]]:
    """Return the predictions of a run's model for each example, in order.

    Args:
        trained: the model of the run.
        data: examples: a .npz file (features), or a table with the run's columns; labels and
            clients are not needed.
        out: a .csv file to which the predictions are also written; an existing file is replaced
            only if it holds earlier predictions.
        threshold: see ``evaluate``.

    Returns:
        For each example: "class", the predicted class's name or number, and "probability", the
            probability that the model assigns to this class.

    Raises:
        FedldpError: the data or the threshold cannot be used, or ``out`` cannot be written.
    """
    if out is not None:
        check_replaceable(out, _BEGINS)
    _check_threshold(threshold, trained)
    features = load_features(data, columns=trained.columns, names=trained.schema.features)
    found = trained.probabilities(trained.prepared(features))
    rows = [
        {"class": trained.schema.class_name(int(label)), "probability": float(row[label])}
        for label, row in zip(named(found, threshold), found, strict=True)
    ]
    if out is not None:
        replace_file(out, _as_csv(rows, found, trained.schema))
    return rows


def _as_csv(
    rows: list[dict[str, Any]], probabilities: NDArray[np.float64], schema: Schema
) -> bytes:
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [schema.class_name(label) for label in range(schema.num_classes)]
    writer.writerow(["row", "class", *(f"probability of {name}" for name in names)])
    for number, (row, each) in enumerate(zip(rows, probabilities, strict=True), 1):
        writer.writerow([number, row["class"], *(f"{value:.6g}" for value in each)])
    return text.getvalue().encode()


def _own_data(trained: Trained, data_dir: Path | None) -> Dataset:
    """Return the run's data, loaded from the place from which the run loaded them."""
    config, folder = trained.config, None if trained.folder is None else RunFolder(trained.folder)
    own = None if folder is None else folder.read_config()["own_data"]
    dataset, where = None, "" if folder is None else f"{folder.path}: "
    remedy = "give --data FILE with labelled examples (Python: dataset=)"
    if Path(config.dataset).suffix or config.dataset in SOURCES:
        try:
            dataset = load(config, None, data_dir, None if folder is None else folder.started_in())
        except DataMissing as error:
            if own is None:
                raise
            raise ConfigError(f"{where}{error.what}; {remedy}") from error
    if dataset is None or (own is not None and not own.startswith(f"{dataset.name}: ")):
        raise ConfigError(
            f"{where}its run was given data from Python, which are not stored; {remedy}"
        )
    return dataset
