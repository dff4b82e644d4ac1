"""A run's model, ready to use."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.facts import Note
from fedldp.core.kinds import OWN_HEADS
from fedldp.data import Columns, Examples, standardised
from fedldp.data.image_features import ExampleMap
from fedldp.models import fill_model, frozen_of
from fedldp.reporting.record import RunFolder, Schema

_PIECE = 4096


@dataclass(frozen=True, eq=False)
class Trained:
    """A run's model, ready to use.

    Attributes:
        folder: the folder of the run, simulated or deployed; None if nothing was written.
        config: the configuration of the run.
        schema: what the model takes and returns.
        model: the model with the run's final weights, in eval mode.
        map: the public function whose output the model reads instead of an example, if any.
        so_far: for the model of an unfinished run, how many of the rounds are complete.
    """

    folder: Path | None
    config: RunConfig
    schema: Schema
    model: nn.Module
    map: ExampleMap | None = None
    so_far: Note | None = None

    @property
    def named(self) -> str:
        """The name of the model in messages."""
        return "the model" if self.folder is None else f"the model of {self.folder}"

    @property
    def columns(self) -> Columns:
        """The meaning of a table's columns, as in training."""
        return replace(self.config.columns, classes=self.schema.classes)

    def prepared(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return examples prepared as in training, with the same constants if it used any."""
        return _standardised(self.config, features)

    def probabilities(
        self, features: NDArray[np.float32], *, double: bool = False
    ) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, num_classes).

        Args:
            features: shape (n, *input_shape), ``prepared``.
            double: compute in double precision if the model can.

        Raises:
            ConfigError: the features have the wrong shape, or the model predicts numbers.
        """
        if self.schema.num_classes == 1:
            raise ConfigError(f"{self.named} predicts numbers, not classes; ask it for these")
        return self._outputs(features, double)

    def numbers(
        self, features: NDArray[np.float32], *, double: bool = False
    ) -> NDArray[np.float64]:
        """Return the predicted numbers in the labels' unit, shape (n,); see ``probabilities``.

        Raises:
            ConfigError: the features have the wrong shape, or the model predicts classes.
        """
        within = self.columns.label_range
        if within is None:
            raise ConfigError(f"{self.named} predicts classes, not numbers; ask it for these")
        return within.restored(self._outputs(features, double)[:, 0])

    def _outputs(self, features: NDArray[np.float32], double: bool) -> NDArray[np.float64]:
        """Return the probability of each class, or the one output of a model for numbers."""
        if features.shape[1:] != self.schema.input_shape:
            raise ConfigError(
                f"data: an example has the shape {features.shape[1:]}, but {self.named} takes "
                f"{self.schema.input_shape}; reshape the data"
            )
        if double:
            try:
                return self._shares(copy.deepcopy(self.model).double(), features, torch.float64)
            except RuntimeError:  # a user's own model that forces single precision
                pass
        return self._shares(self.model, features, torch.float32)

    def _shares(
        self, model: nn.Module, features: NDArray[np.float32], kind: torch.dtype
    ) -> NDArray[np.float64]:
        found = [np.zeros((0, self.schema.num_classes))]
        with torch.no_grad():
            for start in range(0, len(features), _PIECE):
                piece = np.ascontiguousarray(features[start : start + _PIECE])
                piece = piece if self.map is None else self.map(piece)
                logits = model(torch.from_numpy(piece).clone().to(kind))
                logits = logits.double()
                one = self.schema.num_classes == 1
                found.append((logits if one else torch.softmax(logits, 1)).numpy())
        return np.concatenate(found)

    def module(self) -> nn.Module:
        """Return the model as a torch module that takes unprepared examples."""
        if self.map is None and not self.config.standardise:
            return self.model
        return nn.Sequential(PublicInput(self), self.model).eval()


class PublicInput(nn.Module):
    """Turns an example into the model's input; no gradient passes through.

    Args:
        trained: has the standardising constants and the public features.
    """

    def __init__(self, trained: Trained) -> None:
        super().__init__()
        self.config, self.map = trained.config, trained.map

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        """Return the model's input for examples of shape (n, *input_shape)."""
        found = _standardised(self.config, examples.detach().cpu().numpy().astype(np.float32))
        found = found if self.map is None else self.map(found)
        return torch.from_numpy(np.ascontiguousarray(found)).to(examples.device)


def trained(
    config: RunConfig,
    schema: Schema,
    weights: Mapping[str, NDArray[np.float32]],
    folder: Path | None,
    so_far: Note | None = None,
) -> Trained:
    """Return the model of a run, filled with its weights.

    Args:
        config: the configuration of the run.
        schema: what the model takes and returns.
        weights: the weights by parameter name.
        folder: the folder of the run, if any.
        so_far: see ``Trained``.

    Raises:
        ConfigError: the model cannot be used without its clients.
        RunError: the weights belong to a different model.
    """
    check_usable(config, schema, folder)
    algorithm = config.algorithm(schema.problem)
    model = algorithm.untrained(begun=False)
    expected = {name for name, _ in model.named_parameters()} | set(frozen_of(model))
    try:
        fill_model(model, weights, "model.safetensors")
    except ConfigError:
        expected = set()
    if set(weights) != expected:
        raise RunError(
            f"{_of(folder)}model.safetensors does not hold the model {config.model} that "
            "config.json names"
        )
    return Trained(folder, config, schema, model.eval(), algorithm.prepared().map, so_far)


def check_public(folder: RunFolder, features: object, frozen: object) -> None:
    """Refuse to continue a run, or to use its model, if its public parts differ here.

    Args:
        folder: the folder of the run.
        features: the name and digest of the features that are computed here, if any.
        frozen: the digest of the model's frozen weights here, if any.

    Raises:
        RunError: the features or the weights differ.
    """
    noted = folder.read_config()
    for name, here in (("features", features), ("frozen", frozen)):
        if noted.get(name) != here:
            raise RunError(
                f"{folder.path}: {name} = {noted.get(name)} in the run, but {here} here; use the "
                "same files, model and version of fedldp"
            )


def _standardised(config: RunConfig, features: NDArray[np.float32]) -> NDArray[np.float32]:
    if not config.standardise:
        return features
    nothing = np.zeros(len(features), np.int64)
    return standardised(Examples(features, nothing), config.dataset).features


def _of(folder: Path | None) -> str:
    return "" if folder is None else f"{folder}: "


def check_usable(config: RunConfig, schema: Schema, folder: Path | None) -> None:
    """Refuse a model that cannot be used without its clients.

    Raises:
        ConfigError: it reads the output of each client's own encoder, or lacks their last layers.
    """
    if OWN_HEADS in config.composition.notes:
        raise ConfigError(
            f"{_of(folder)}its last layers never left their clients, so it cannot be used without "
            "them; its weights are those of the other layers, with the initial last one"
        )
    algorithm = config.algorithm(schema.problem)
    if algorithm.prepared().map is None and algorithm.input_shape != schema.input_shape:
        raise ConfigError(
            f"{_of(folder)}the model of {config.name()} reads the output of each client's own "
            "encoder instead of the example itself, so it cannot be used without its clients"
        )
