"""A network trained without private records, with which everyone encodes their examples.

Features of a client's examples as bits, randomised once and kept on its disk, for LDPFL.

Source: Chamikara et al. 2022, "Local Differential Privacy for Federated Learning", Algorithm 1.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.preset import Settings
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import Source, Stream, declare
from fedldp.data import load_dataset
from fedldp.data.examples import Examples
from fedldp.data.sources import SOURCES, PublishedDataset, find_source
from fedldp.mechanisms.k_rr import KRR
from fedldp.papers.ldpfl.architecture import Architecture
from fedldp.papers.ldpfl.bits import FixedPoint
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits
from fedldp.protocol.roles import Arrays, Client, Draw
from fedldp.protocol.wire import Broadcast

if TYPE_CHECKING:
    import torch

    from fedldp.papers.ldpfl.networks import Body, FeatureNet

declare(Source.KEPT, "bits", "labels", "split", "test bits", "encoder *")
declare(Source.RUN, "public encoder *")

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
        training: the preset's settings, which say how it is trained on that data set.
        data_dir: the data folder.

    Raises:
        ConfigError: the public examples differ in shape from the clients'.
    """

    architecture: Architecture
    dataset: str | None
    training: Settings
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

        from fedldp.papers.ldpfl.networks import build, train
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
                self.training,
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
    from fedldp.papers.ldpfl.networks import state_of

    return {_PREFIX + name: value for name, value in state_of(net).items()}


def public_among(arrays: Body) -> Body:
    """Return the arrays of a server's state that belong to a public network."""
    return {name: value for name, value in arrays.items() if name.startswith(_PREFIX)}


def from_public(broadcast: Broadcast, architecture: Architecture) -> FeatureNet:
    """Return the network that a broadcast carries.

    Raises:
        RunError: the broadcast carries no network, or one of another architecture.
    """
    from fedldp.papers.ldpfl.networks import restore

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


_OWN_RIGHT = "own right"

PIECE = 1000
"""The number of examples that are encoded, or tested, at a time."""


def num_trained(num_examples: int, test_share: float) -> int:
    """Return how many of a client's examples are not held out for its test; at least one."""
    return max(1, num_examples - math.ceil(test_share * num_examples))


@dataclass(frozen=True, kw_only=True, eq=False)
class Codes:
    """What a client keeps on its disk: its encoder, and randomised bits with their labels.

    Attributes:
        architecture: the architecture of encoders.
        code: how a feature becomes bits.
        mechanism: the randomiser of one example's bits.
        labels: the randomiser of labels, if there is one.
        settings: the preset's settings: whether a client trains its own encoder, and how, which
            of its examples it holds out, and on which examples it tests.
        device: where encoders are trained.
    """

    architecture: Architecture
    code: FixedPoint
    mechanism: RandomisedBits
    labels: KRR | None
    settings: Settings
    device: torch.device

    @property
    def num_bits(self) -> int:
        """The length of one example's vector of bits."""
        return self.architecture.num_features * self.code.length

    def for_training(self, broadcast: Broadcast, client: Client) -> Arrays:
        """Return "bits", packed, shape (n, ceil(num_bits/8)), and "labels", shape (n,)."""

        def make() -> Arrays:
            own = client.examples
            if not self.settings.trains_on_held_out:
                own = own.taken(self._indices(client)[0])
            labels = own.labels
            if self.labels is not None:
                stream = client.kept("labels").bound_to(partial(_digest, labels, self.labels))
                labels = self.labels.randomise(labels, stream)
            net = self._encoder(broadcast, client)
            return {"bits": self._bits(net, own, client.kept("bits")), "labels": labels}

        return client.store.arrays("training", make)

    def for_test(self, broadcast: Broadcast, client: Client, test: Examples) -> Arrays:
        """Return the same arrays for the client's test examples; labels are not randomised."""

        def make() -> Arrays:
            if self.settings.evaluation == "clients":
                chosen = client.examples.taken(self._indices(client)[1])
            else:
                chosen = test.taken(slice(client.index, None, self.settings.num_clients))
            net = self._encoder(broadcast, client)
            bits = self._bits(net, chosen, client.kept("test bits"))
            return {"bits": bits, "labels": chosen.labels}

        return client.store.arrays("test", make)

    def inputs(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Unpack bits into the global network's inputs, zeros and ones, shape (n, num_bits)."""
        return np.unpackbits(packed, axis=1, count=self.num_bits).astype(np.float32)

    def _indices(self, client: Client) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the client's examples are for training, and which are for its test."""
        order = client.kept("split").generator().permutation(len(client.examples))
        training = num_trained(len(order), self.settings.test_share)
        return np.sort(order[:training]), np.sort(order[training:])

    def _encoder(self, broadcast: Broadcast, client: Client) -> FeatureNet:
        from fedldp.papers.ldpfl.networks import restore

        if self.settings.encoder == "public":
            return from_public(broadcast, self.architecture)
        kept = dict(self._trained(client))
        kept.pop(_OWN_RIGHT, None)
        return restore(self.architecture, kept)

    def own_right(self, client: Client) -> int | None:
        """Return how many of its test examples the client's own network classifies correctly.

        None if the client has no such network, if no score was recorded when the network was
        trained, or if the client tests on examples that are not its own. In this last case, nothing
        has disclosed that scores depend on the head of the client's network, which was trained on
        the client's examples.
        """
        if self.settings.encoder == "public" or self.settings.evaluation == "common":
            return None
        kept = self._trained(client).get(_OWN_RIGHT)
        return None if kept is None else int(kept[0])

    def _trained(self, client: Client) -> Arrays:
        """Return the body of the client's own network, and the score of its head."""
        from fedldp.papers.ldpfl.networks import build, num_right, state_of, train

        def make() -> Arrays:
            net = build(self.architecture, client.kept("encoder weights"))
            training, held_out = (client.examples.taken(part) for part in self._indices(client))
            if not train(net, training, self.settings, draw=client.kept, device=self.device):
                net.blank()  # a refusal would reveal that training diverged
            kept = state_of(net)
            if self.settings.evaluation == "clients":
                kept[_OWN_RIGHT] = np.array([num_right(net, held_out, self.device)])
            return kept

        return client.store.arrays("encoder", make)

    def _bits(
        self, net: FeatureNet, examples: Examples, stream: Stream | None
    ) -> NDArray[np.uint8]:
        """Return the packed bits of examples, randomised with ``stream`` if one is given."""
        packed = np.empty((len(examples), -(-self.num_bits // 8)), np.uint8)
        for start in range(0, len(examples), PIECE):
            piece = slice(start, start + PIECE)
            bits = self.code.encode(net.features(examples.features[piece], self.device))
            packed[piece] = np.packbits(bits, axis=1)
        if stream is None:
            return packed
        # The digest covers the bits, not their inputs, because other machines may compute the
        # inputs differently.
        stream = stream.bound_to(partial(_digest, packed, self.mechanism))
        for start in range(0, len(examples), PIECE):
            piece = slice(start, start + PIECE)
            bits = np.unpackbits(packed[piece], axis=1, count=self.num_bits)
            packed[piece] = np.packbits(self.mechanism.randomise(bits, stream), axis=1)
        return packed


def _digest(true: NDArray[np.integer], mechanism: RandomisedBits | KRR) -> bytes:
    """Return a digest of the values to randomise and of the randomiser."""
    found = hashlib.sha256(f"{mechanism!r} {true.shape} {true.dtype}\n".encode())
    found.update(np.ascontiguousarray(true).data)
    return found.digest()
