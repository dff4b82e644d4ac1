"""A network that no private record has touched, for everyone to encode their examples with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedldp.data import load_dataset
from fedldp.data.custom import SUFFIXES
from fedldp.data.sources import SOURCES, Source, find_source
from fedldp.errors import ConfigError
from fedldp.parts.feature_net import Architecture, FeatureNet, State, state_of, train
from fedldp.parts.local_sgd import one_thread
from fedldp.randomness import SERVER, Stream
from fedldp.wire import Broadcast

_PREFIX = "encoder."
_NOISE_IMAGES = 256


def check_is_public(public_dataset: str, dataset: str) -> None:
    """Refuse a public data set that shares records with the clients' own.

    Raises:
        ConfigError: the two are read from the same files, or one is no built-in data set.
    """
    public = _source(public_dataset)
    if dataset.lower().endswith(SUFFIXES):
        return  # a file of the user's own
    private = find_source(dataset)
    if public.name == private.name or (public.folder and public.folder == private.folder):
        raise ConfigError(
            f"public_dataset = {public_dataset}: the clients hold records of {dataset}, so it is "
            "not public here; choose another data set"
        )


def _source(public_dataset: str) -> Source:
    try:
        return find_source(public_dataset)
    except ConfigError as error:
        known = ", ".join(SOURCES)
        raise ConfigError(f"public_dataset = {public_dataset}: choose one of {known}") from error


@dataclass(frozen=True)
class PublicEncoder:
    """How the network comes about, before the run and without a client.

    Attributes:
        architecture: of the network, for the clients' examples.
        dataset: the public data set that it is trained on; where it is None it stays random, and
            its batch norms have the statistics of random pixels.
        epochs: passes over that data set.
        seed: of its weights and its training.
        data_dir: the data folder.

    Raises:
        ConfigError: the public examples have another shape than the clients'.
    """

    architecture: Architecture
    dataset: str | None
    epochs: int
    seed: int
    data_dir: Path | None

    def __post_init__(self) -> None:
        if self.dataset is None:
            return
        found, needed = _source(self.dataset).input_shape, self.architecture.input_shape
        if found != needed:
            raise ConfigError(
                f"public_dataset = {self.dataset}: its examples have shape {found}, the clients' "
                f"{needed}; choose one of the same shape"
            )

    def build(self, device: torch.device) -> FeatureNet:
        """Return the network.

        Raises:
            DataError: the public data set cannot be read.
        """
        if self.dataset is None:
            net = self.architecture.build(self._draw("encoder weights"))
            pixels = (
                self._draw("encoder noise")
                .generator()
                .random((_NOISE_IMAGES, *self.architecture.input_shape), np.float32)
            )
            with one_thread():
                _fit_norms_to_noise(net, torch.from_numpy(pixels))
            return net
        public = load_dataset(self.dataset, data_dir=self.data_dir)
        trained = replace(self.architecture, num_classes=public.num_classes)
        net = trained.build(self._draw("encoder weights"))
        with one_thread():
            train(net, public.train, epochs=self.epochs, draw=self._draw, device=device)
        return net

    def _draw(self, purpose: str) -> Stream:
        return Stream.simulation(
            seed=self.seed, round=0, client=SERVER, purpose=f"public {purpose}"
        )


def to_public(net: FeatureNet) -> State:
    """Return the arrays of a network, as a broadcast carries them."""
    return {_PREFIX + name: value for name, value in state_of(net).items()}


def from_public(broadcast: Broadcast, architecture: Architecture) -> FeatureNet:
    """Return the network that a broadcast carries.

    Raises:
        RunError: it carries none, or another.
    """
    names = [name for name in broadcast.public if name.startswith(_PREFIX)]
    return architecture.restore(
        {name.removeprefix(_PREFIX): broadcast.public[name].copy() for name in names}
    )


def _fit_norms_to_noise(net: FeatureNet, noise: Tensor) -> None:
    """Give the batch norms the statistics of ``noise``, shape (n, channels, height, width)."""
    net.eval()
    for layer in net.body:
        if isinstance(layer, nn.BatchNorm2d):
            layer.train()
            layer.momentum = None  # what comes now is all there is: no moving average
    with torch.no_grad():
        net.body(noise)
