"""Apply the model in a run folder to other examples, to measure it or to predict classes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataMissing
from fedldp.core.kinds import HELD_OUT
from fedldp.data import Dataset, Examples, load_examples, load_unlabelled
from fedldp.data.examples import Rows, checked_rows
from fedldp.data.sources import SOURCES
from fedldp.reporting import words
from fedldp.reporting.record import RunFolder, check_replaceable, replace_file
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


def _check_two(
    trained: Trained, name: str, value: float | None, *, low: float, high: float
) -> None:
    """Refuse a setting of models with two classes for another model, or outside its range."""
    if value is None:
        return
    if not low < value < high:
        raise ConfigError(f"{name} = {value:g}: give a number above {low:g} and below {high:g}")
    classes = trained.schema.num_classes
    if classes != 2:
        raise ConfigError(
            f"{name} = {value:g}: the model of {trained.folder} has {classes} classes, and a "
            f"{name} needs two; leave {name} out"
        )


def _check_threshold(threshold: float | None, trained: Trained) -> None:
    _check_two(trained, "threshold", threshold, low=0, high=1)


def predict(
    trained: Trained,
    data: Path,
    out: Path | None = None,
    threshold: float | None = None,
    *,
    shift: float | None = None,
    id_column: str | None = None,
) -> list[dict[str, Any]]:
    """Return the predictions of a run's model for each example, in order.

    Args:
        trained: the model of the run.
        data: examples: a .npz file (features), or a table with the run's columns; labels and
            clients are not needed.
        out: a .csv file to which the predictions are also written; an existing file is replaced
            only if it holds earlier predictions.
        threshold: see ``evaluate``.
        shift: for a model with two classes, what is added to the log odds of class 1, between -50
            and 50; it must not be chosen on private rows.
        id_column: a column of the table that names its rows; it need not be one of the model's.

    Returns:
        For each example: "class", the predicted class's name or number, "probability", the
            probability that the model assigns to this class, and "problem", None; or for a row that
            the model cannot read, None, None, and what is wrong with it. With ``id_column``, also
            "id", the row's text there.

    Raises:
        FedldpError: the data, or all of their rows, cannot be used, ``out`` cannot be written, or a
            setting is refused.
    """
    if out is not None:
        check_replaceable(out, _BEGINS)
    _check_threshold(threshold, trained)
    _check_two(trained, "shift", shift, low=-50, high=50)
    schema = trained.schema
    read = load_unlabelled(
        data, columns=trained.columns, names=schema.features, id_column=id_column
    )
    found = _shifted(trained.probabilities(trained.prepared(read.features)), shift)
    made = zip(named(found, threshold).tolist(), found, strict=True)
    rows: list[dict[str, Any]] = []
    lines: list[list[Any]] = []
    for number in range(len(read)):
        problem = read.problems.get(number)
        label, share, told = None, None, [""] * schema.num_classes
        if problem is None:
            place, shares = next(made)
            label, share = schema.class_name(place), float(shares[place])
            told = [f"{value:.6g}" for value in shares]
        row = {"class": label, "probability": share, "problem": problem}
        line = [number + 1, label, *told, problem]
        if read.ids is not None:
            row["id"] = read.ids[number]
            line.append(read.ids[number])
        rows.append(row)
        lines.append(line)
    if out is not None:
        names = [f"probability of {schema.class_name(k)}" for k in range(schema.num_classes)]
        ids = [] if id_column is None else [id_column]
        replace_file(out, _as_csv([["row", "class", *names, "problem", *ids], *lines]))
    return rows


def _shifted(shares: NDArray[np.float64], shift: float | None) -> NDArray[np.float64]:
    """Return the probabilities of two classes, with the log odds of class 1 shifted."""
    if shift is None:
        return shares
    with np.errstate(divide="ignore", over="ignore"):
        positive = 1 / (1 + np.exp(np.log(shares[:, 0]) - np.log(shares[:, 1]) - shift))
    return np.stack([1 - positive, positive], axis=1)


def _as_csv(lines: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
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
