"""A network trained without private records, with which everyone encodes their examples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, RunError
from fedldp.data import load_dataset
from fedldp.data.sources import SOURCES, PublishedDataset, find_source
from fedldp.protocol.roles import Draw
from fedldp.protocol.wire import Broadcast
from fedldp.training.architecture import Architecture

if TYPE_CHECKING:
    from fedldp.training.feature_net import Body, FeatureNet

_PREFIX = "encoder."
_NOISE_IMAGES = 256


def check_is_public(public_dataset: str, dataset: str) -> None:
    """Refuse a public data set that shares records with the clients' data.

    Raises:
        ConfigError: both come from the same files, or one is not a built-in data set.
    """
    public = _source(public_dataset)
    try:
        private = find_source(dataset)
    except ConfigError:
        return  # the user's own data: a file, or arrays
    if public.name == private.name or (public.folder and public.folder == private.folder):
        raise ConfigError(
            f"public_dataset = {public_dataset}: the clients hold records of {dataset}, so it is "
            "not public here; choose another data set"
        )


def _source(public_dataset: str) -> PublishedDataset:
    try:
        return find_source(public_dataset)
    except ConfigError as error:
        known = ", ".join(SOURCES)
        raise ConfigError(f"public_dataset = {public_dataset}: choose one of {known}") from error


@dataclass(frozen=True)
class PublicEncoder:
    """How the server makes the network before the run, without any client.

    Attributes:
        architecture: the network's architecture, for the clients' examples.
        dataset: the public data set for its training; None leaves the network random, and gives its
            batch norms the statistics of random pixels.
        epochs: passes over that data set.
        data_dir: the data folder.

    Raises:
        ConfigError: the public examples differ in shape from the clients'.
    """

    architecture: Architecture
    dataset: str | None
    epochs: int
    data_dir: Path | None

    def __post_init__(self) -> None:
        if self.dataset is None:
            return
        found, needed = _source(self.dataset).input_shape, self.architecture.input_shape
        if found != needed:
            raise ConfigError(
                f"public_dataset = {self.dataset}: its examples have shape {found}, but the "
                f"clients' have {needed}; choose a data set with the same shape"
            )

    def build(self, draw: Draw) -> FeatureNet:
        """Return the network, whose weights and training follow from ``draw``.

        Raises:
            DataError: the public data set cannot be read.
            RunError: training diverged.
        """
        import torch

        from fedldp.training.feature_net import build, train
        from fedldp.training.tensors import one_thread

        if self.dataset is None:
            net = build(self.architecture, draw("public encoder weights"))
            shape = (_NOISE_IMAGES, *self.architecture.input_shape)
            noise = draw("public encoder noise").generator().random(shape, np.float32)
            with one_thread():
                _fit_norms_to_noise(net, noise)
            return net
        public = load_dataset(self.dataset, data_dir=self.data_dir)
        trained = replace(self.architecture, num_classes=public.num_classes)
        net = build(trained, draw("public encoder weights"))
        with one_thread():
            finite = train(
                net,
                public.train,
                epochs=self.epochs,
                draw=lambda purpose: draw(f"public {purpose}"),
                device=torch.device("cpu"),  # the server trains on its CPU, wherever clients train
            )
        if not finite:
            raise RunError(
                "the encoder's weights became NaN or infinite; scale the features down, or set "
                "fewer encoder_epochs"
            )
        return net


def to_public(net: FeatureNet) -> Body:
    """Return a network's arrays under the names that they have in a broadcast."""
    from fedldp.training.feature_net import state_of

    return {_PREFIX + name: value for name, value in state_of(net).items()}


def public_among(arrays: Body) -> Body:
    """Return the arrays of a server's state that belong to a public network."""
    return {name: value for name, value in arrays.items() if name.startswith(_PREFIX)}


def from_public(broadcast: Broadcast, architecture: Architecture) -> FeatureNet:
    """Return the network that a broadcast carries.

    Raises:
        RunError: the broadcast carries no network, or one of another architecture.
    """
    from fedldp.training.feature_net import restore

    names = [name for name in broadcast.public if name.startswith(_PREFIX)]
    body = {name.removeprefix(_PREFIX): broadcast.public[name].copy() for name in names}
    return restore(architecture, body)


def _fit_norms_to_noise(net: FeatureNet, noise: NDArray[np.float32]) -> None:
    """Give the batch norms the statistics of ``noise``, shape (n, channels, height, width)."""
    import torch
    from torch import nn

    net.eval()
    for layer in net.body:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.train()
            layer.momentum = None  # a cumulative average, not a moving one
    with torch.no_grad():
        net.body(torch.from_numpy(noise))
