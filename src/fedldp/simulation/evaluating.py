"""The model of a run folder on other examples: how good it is there, and what it says of them."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.statement import HELD_OUT
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import noted_features
from fedldp.core.errors import ConfigError, DataMissing, RunError
from fedldp.data import Columns, Dataset, Examples, load_examples, load_features, standardised
from fedldp.data.image_features import ExampleMap
from fedldp.data.sources import SOURCES
from fedldp.models import fill_model, frozen_digest, frozen_of
from fedldp.reporting.record import RunFolder, check_replaceable, replace_file
from fedldp.reporting.schema import Schema, read_schema
from fedldp.reporting.scores import doubts, named, scores
from fedldp.simulation.result import Result, check_features, check_frozen
from fedldp.simulation.settings import from_mapping

if TYPE_CHECKING:
    from torch import nn

_PIECE = 4096
_BEGINS = b"row,class,probability of "


@dataclass(frozen=True, eq=False)
class Trained:
    """A run's model, ready to be used.

    Attributes:
        folder: of the run, simulated or deployed.
        config: of the run.
        schema: what goes in and comes out.
        model: with the run's final weights.
        map: the public function of each example that the model is given in its place, if any.
    """

    folder: Path
    config: RunConfig
    schema: Schema
    model: nn.Module
    map: ExampleMap | None = None

    @property
    def columns(self) -> Columns:
        """What the columns of a table are, as they were in training."""
        return replace(self.config.columns, classes=self.schema.classes)

    def probabilities(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, num_classes).

        Args:
            features: shape (n, *input_shape), as they were in training.

        Raises:
            ConfigError: they have another shape.
        """
        import torch

        if features.shape[1:] != self.schema.input_shape:
            raise ConfigError(
                f"data: an example has the shape {features.shape[1:]}, and the model of "
                f"{self.folder} takes {self.schema.input_shape}; bring the data into that shape"
            )
        self.model.eval()
        found = []
        with torch.no_grad():
            for start in range(0, len(features), _PIECE):
                piece = np.ascontiguousarray(features[start : start + _PIECE])
                piece = piece if self.map is None else self.map(piece)
                logits = self.model(torch.from_numpy(piece).clone())
                found.append(torch.softmax(logits.double(), 1).numpy())
        return np.concatenate(found)


def load_trained(folder: Path) -> Trained:
    """Return the model of a run folder.

    Raises:
        FedldpError: the folder is none, its run is not at its end, or its model cannot be used
            without its clients.
    """
    from safetensors.numpy import load_file

    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder; give the folder of a run")
    config = from_mapping(RunFolder(folder).read_config()["config"])
    schema = read_schema(folder)
    problem = Problem(schema.input_shape, schema.num_classes, schema.num_examples)
    algorithm = config.algorithm(problem)
    prepared = algorithm.prepared()
    check_features(RunFolder(folder), noted_features(config, problem))
    if prepared.map is None and algorithm.input_shape != schema.input_shape:
        raise ConfigError(
            f"{folder}: the model of {config.name()} reads what each client's own encoder makes of "
            "an example, and not the example; it cannot be used without its clients"
        )
    model = algorithm.untrained(begun=False)
    try:
        weights = load_file(folder / "model.safetensors")
    except OSError as error:
        raise RunError(
            f"{folder}: it has no model.safetensors; give the folder of a run that came to its end"
        ) from error
    except Exception as error:  # a damaged file raises nearly anything
        raise RunError(f"{folder / 'model.safetensors'} is damaged: run it again") from error
    expected = {name for name, _ in model.named_parameters()} | set(frozen_of(model))
    try:
        fill_model(model, weights, "model.safetensors")
    except ConfigError:
        expected = set()
    if set(weights) != expected:
        raise RunError(
            f"{folder}: model.safetensors is not of the model {config.model} of config.json"
        )
    check_frozen(RunFolder(folder), None if config.trainable == "all" else frozen_digest(model))
    return Trained(folder, config, schema, model, prepared.map)


def trained_of(result: Result, dataset: Dataset) -> Trained:
    """Return the model that a run on ``dataset`` gave, ready to be used.

    Not of a system whose clients have encoders of their own.
    """
    config = result.config
    problem = Problem(dataset.input_shape, dataset.num_classes, len(dataset.train))
    algorithm = config.algorithm(problem)
    schema = Schema(
        input_shape=dataset.input_shape,
        num_classes=dataset.num_classes,
        num_examples=len(dataset.train),
        classes=dataset.classes,
        features=dataset.features,
    )
    model = algorithm.untrained(begun=False)
    fill_model(model, result.weights, "weights")
    folder = Path() if result.run_dir is None else result.run_dir
    return Trained(folder, config, schema, model, algorithm.prepared().map)


def evaluate(
    folder: Path,
    data: Path | None = None,
    data_dir: Path | None = None,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return how good the model of a run folder is: what ``fedldp evaluate --json`` prints.

    Args:
        folder: of the run.
        data: labelled examples: a .npz file (features, labels), or a table with the run's columns;
            else the run's own test set.
        data_dir: the data folder.
        threshold: of a model of two classes, the probability from which it names class 1, above 0
            and below 1; None: it names the more probable class.

    Raises:
        FedldpError: the folder or the data cannot be used, or there is no such threshold.
    """
    trained = load_trained(folder)
    _check_threshold(threshold, trained)
    examples, warnings = (
        _test_set(trained, data_dir) if data is None else (_labelled(trained, data), [])
    )
    if not len(examples):
        raise ConfigError(f"data = {data}: it has no example; give some")
    if examples.labels.max() >= trained.schema.num_classes:
        raise ConfigError(
            f"data = {data}: it has the label {examples.labels.max()}, and the model knows 0 to "
            f"{trained.schema.num_classes - 1}"
        )
    schema = trained.schema
    shares = trained.probabilities(examples.features)
    found = scores(examples.labels, shares, schema, threshold)
    confusion = np.array(found["confusion"])
    return {
        "run_dir": str(folder),
        "data": "the run's test set" if data is None else str(data),
        "threshold": threshold,
        **found,
        "warnings": [
            *doubts(found, confusion, confusion.sum(1), schema),
            *warnings,
        ],
    }


def _check_threshold(threshold: float | None, trained: Trained) -> None:
    if threshold is None:
        return
    if not 0 < threshold < 1:
        raise ConfigError(f"threshold = {threshold:g}: give a probability above 0 and below 1")
    classes = trained.schema.num_classes
    if classes != 2:
        raise ConfigError(
            f"threshold = {threshold:g}: the model of {trained.folder} has {classes} classes, and "
            "a threshold is between two; leave it out"
        )


def predict(
    folder: Path, data: Path, out: Path | None = None, threshold: float | None = None
) -> list[dict[str, Any]]:
    """Return what the model of a run folder says of each example, in their order.

    Args:
        folder: of the run.
        data: examples: a .npz file (features), or a table with the run's columns; labels and
            clients are not needed.
        out: a .csv file to write as well; older predictions there are replaced, and nothing else.
        threshold: see ``evaluate``.

    Returns:
        For each: "class", its name or number, and "probability", the model's of that class.

    Raises:
        FedldpError: the folder or the data cannot be used, there is no such threshold, or ``out``
            cannot be written.
    """
    if out is not None:
        check_replaceable(out, _BEGINS)
    trained = load_trained(folder)
    _check_threshold(threshold, trained)
    features = load_features(data, columns=trained.columns, names=trained.schema.features)
    found = trained.probabilities(_prepared(trained, features))
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


def _labelled(trained: Trained, data: Path) -> Examples:
    found = load_examples(data, columns=trained.columns, names=trained.schema.features)
    return replace(found, features=_prepared(trained, found.features))


def _prepared(trained: Trained, features: NDArray[np.float32]) -> NDArray[np.float32]:
    if not trained.config.standardise:
        return features
    nothing = np.zeros(len(features), np.int64)
    return standardised(Examples(features, nothing), trained.config.dataset).features


def _test_set(trained: Trained, data_dir: Path | None) -> tuple[Examples, list[str]]:
    """Return the run's test set, and what is to be said of figures that are measured on it."""
    from fedldp.simulation.inputs import load  # imports torch

    config, folder = trained.config, RunFolder(trained.folder)
    own = folder.read_config()["own_data"]
    dataset = None
    if Path(config.dataset).suffix or config.dataset in SOURCES:
        try:
            dataset = load(config, None, data_dir, folder.started_in())
        except DataMissing as error:
            if own is None:
                raise
            reason = str(error).partition(";")[0]
            raise ConfigError(
                f"{folder.path}: {reason}; give --data FILE with labelled examples"
            ) from error
    if dataset is None or (own is not None and not own.startswith(f"{dataset.name}: ")):
        raise ConfigError(
            f"{folder.path}: its run was given data from Python, which are not kept; give "
            "--data FILE with labelled examples"
        )
    return dataset.test, [HELD_OUT] if dataset.scores_are_private else []
