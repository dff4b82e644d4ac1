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
from scipy.special import expit

from fedldp.algorithms.systems import noted_features
from fedldp.core.errors import ConfigError, DataMissing, RunError
from fedldp.core.kinds import HELD_OUT, TRAINED_ON
from fedldp.data import Dataset, Examples, load_examples
from fedldp.data.custom import load_unlabelled
from fedldp.data.examples import Rows, checked_rows
from fedldp.data.label_range import centred
from fedldp.data.sources import SOURCES
from fedldp.models import frozen_digest
from fedldp.reporting import words
from fedldp.reporting.record import RunFolder, check_replaceable, read_schema, replace_file
from fedldp.reporting.runs import read_answers
from fedldp.reporting.scores import (
    TestSet,
    answers_in,
    doubts,
    figures,
    named,
    of_numbers,
    scores,
    told_count,
    told_matrix,
)
from fedldp.simulation.inputs import load
from fedldp.simulation.result import Result, read_weights
from fedldp.simulation.settings import from_mapping
from fedldp.simulation.trained import Trained, check_public, check_usable
from fedldp.simulation.trained import trained as filled

_BEGINS = b"row,class,probability of ", b"row,number,problem"


def evaluate(
    run: Result | Path,
    data: Dataset | Rows | Path | None = None,
    data_dir: Path | None = None,
    threshold: float | None = None,
    *,
    shift: float | None = None,
) -> dict[str, Any]:
    """Return the metrics of a run's model: what ``fedldp evaluate --json`` prints.

    ``examples`` is ``rounded`` up if the run's test set is of the user's own rows, and so are the
    numbers in ``classes``; then ``confusion`` has shares of each true class. ``answers`` are the
    figures that people were asked for privately in the run, which say nothing about other ``data``:
    then there are none. They are None if the folder has the model alone. ``answered_by`` says whose
    line of the run's statement covers them ("person" or "row"), and ``doubts_of_answers`` what
    makes them doubtful.

    Args:
        run: a run's result, or its folder.
        data: features and labels, or another source of them; a data set, whose test set is used; or
            a file of examples, either .npz (features, labels) or a table with the run's columns.
            None uses the run's own test set.
        data_dir: the data folder.
        threshold: for a model with two classes, the lowest probability at which it predicts class
            1, above 0 and below 1; None predicts the more probable class.
        shift: for a model with two classes, what is added to the log odds of class 1 before.

    Raises:
        FedldpError: the run, the data, the threshold or the shift cannot be used.
    """
    trained = run.trained() if isinstance(run, Result) else load_trained(run)
    _check_of_two(trained, threshold, shift)
    asked = _asked(None if data is not None else run, trained)
    told, examples, is_private = _tested(trained, data, data_dir)
    if data is not None:  # which its user may count
        trained = replace(trained, schema=replace(trained.schema, rounded=False))
    if not len(examples):
        raise ConfigError(f"data = {told}: it has no examples; give some")
    schema, within = trained.schema, trained.columns.label_range
    confusion = None
    if within is not None:
        said = within.steps(trained.numbers(examples.features))
        found = of_numbers(examples.labels, centred(said), within)
        counts = np.array([len(examples)])
        on = TestSet(len(examples), is_private=is_private)
        shown = {**told_count(len(examples), schema.rounded), **found}
    elif examples.labels.max() >= schema.num_classes:
        raise ConfigError(
            f"data = {told}: it has the label {examples.labels.max()}, but the model knows only 0 "
            f"to {schema.num_classes - 1}"
        )
    else:
        shares = _shifted(trained.probabilities(examples.features), shift)
        found = scores(examples.labels, shares, schema, threshold)
        confusion = np.array(found["confusion"])
        counts = confusion.sum(1)
        on = TestSet.of(counts, is_private)
        matrix = told_matrix(confusion, schema.rounded)
        shown = {"threshold": threshold, "shift": shift, **found, "confusion": matrix}
    doubtful = doubts(found, confusion, counts, schema)
    so_far = [] if trained.so_far is None else [trained.so_far]
    return {
        "run_dir": None if trained.folder is None else str(trained.folder),
        "data": told,
        **shown,
        "warnings": words.facts([*so_far, *doubtful, *([HELD_OUT] if is_private else [])]),
        "figures": list(map(words.figure, figures(shown, on, doubtful))),
        **asked,
    }


def load_trained(folder: Path) -> Trained:
    """Return the model of a run folder; of an unfinished run, the model after its last round.

    Raises:
        FedldpError: it is not a run folder, no round of its run is complete, or its model cannot be
            used without its clients.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the folder of a run")
    config = from_mapping(RunFolder(folder).read_config()["config"])
    schema = read_schema(folder)
    check_usable(config, schema, folder)
    weights, so_far = read_weights(RunFolder(folder), config, schema)
    found = filled(config, schema, weights, folder, so_far)
    frozen = None if config.trainable == "all" else frozen_digest(found.model)
    check_public(RunFolder(folder), noted_features(config, schema.problem), frozen)
    return found


def _asked(run: Result | Path | None, trained: Trained) -> dict[str, Any]:
    """Return what people were asked for privately in a run; see ``evaluate``."""
    found: list[dict[str, Any]] | None = []
    if isinstance(run, Result):
        found = answers_in(record.metrics for record in run.rounds)
    elif run is not None:
        found = read_answers(run)
    config = trained.config.model_dump()
    doubts = [TRAINED_ON] if found and not config.get("ask") else []
    return {
        "answers": found,
        "answered_by": words.unit_asked(config) if found else None,
        "doubts_of_answers": words.facts(doubts),
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
        columns = trained.columns
        found = checked_rows(data, "dataset:", columns.classes, columns.label_range)
        name, is_private = "custom", False
    return name, replace(found, features=trained.prepared(found.features)), is_private


def _check_of_two(trained: Trained, threshold: float | None, shift: float | None) -> None:
    """Refuse settings of models with two classes for another model, or outside their range."""
    of_two = ("threshold", threshold, "probability", 0, 1), ("shift", shift, "number", -50, 50)
    classes = trained.schema.num_classes
    for name, value, what, low, high in of_two:
        if value is None:
            continue
        if not low < value < high:
            raise ConfigError(f"{name} = {value:g}: give a {what} above {low} and below {high}")
        if classes != 2:
            has = "predicts numbers" if classes == 1 else f"has {classes} classes"
            raise ConfigError(
                f"{name} = {value:g}: the model of {trained.folder} {has}, and a {name} needs two "
                f"classes; leave {name} out"
            )


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
        For each example: "class", the predicted class's name or number, and "probability", the
            probability that the model assigns to this class, or else "number", the predicted
            number; and "problem": what is wrong with a row that the model cannot read, whose other
            values are then None. With ``id_column``, also "id", the row's text there.

    Raises:
        FedldpError: the data, or all of their rows, cannot be used, ``out`` cannot be written, or a
            setting is refused.
    """
    if out is not None:
        check_replaceable(out, *_BEGINS)
    _check_of_two(trained, threshold, shift)
    schema = trained.schema
    read = load_unlabelled(
        data, columns=trained.columns, names=schema.features, id_column=id_column
    )
    features = trained.prepared(read.features)
    heads, of_row = ["number"], ["number"]
    found: list[dict[str, Any]]
    if schema.num_classes == 1:
        found = [{"number": float(each)} for each in trained.numbers(features)]
        cells = [[f"{row['number']:.6g}"] for row in found]
    else:
        of_row = ["class", "probability"]
        heads = ["class", *(f"probability of {name}" for name in schema.class_names)]
        shares = _shifted(trained.probabilities(features), shift)
        labels = named(shares, threshold).tolist()
        made = list(zip(labels, shares, strict=True))
        found = [{"class": schema.class_name(k), "probability": float(each[k])} for k, each in made]
        cells = [[schema.class_name(k), *(f"{share:.6g}" for share in each)] for k, each in made]
    good = iter(zip(found, cells, strict=True))
    bad = dict.fromkeys(of_row), [""] * len(heads)
    rows: list[dict[str, Any]] = []
    lines: list[list[Any]] = [["row", *heads, "problem", *([id_column] if id_column else [])]]
    for number in range(len(read)):
        problem = read.problems.get(number)
        row, told = bad if problem is not None else next(good)
        name = {} if read.ids is None else {"id": read.ids[number]}
        rows.append({**row, "problem": problem, **name})
        lines.append([number + 1, *told, problem, *name.values()])
    if out is not None:
        replace_file(out, _as_csv(lines))
    return rows


def _shifted(shares: NDArray[np.float64], shift: float | None) -> NDArray[np.float64]:
    """Return the probabilities of two classes, with the log odds of class 1 shifted."""
    if shift is None:
        return shares
    with np.errstate(divide="ignore"):
        positive = expit(np.log(shares[:, 1]) - np.log(shares[:, 0]) + shift)
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
