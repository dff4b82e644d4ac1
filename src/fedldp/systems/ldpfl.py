"""LDPFL: features of every example as bits, randomised once, and a federated network over them.

    Broadcast: weights of the global network; a public encoder, where `encoder` is public
        |
        v
    client_step   once in the run, kept on the client's disk:
        |           own CNN, trained on the client's examples           (Algorithm 1, lines 2-4)
        |           features -> fixed-point bits, joined to one vector  (line 8, eq. 10)
        |           every bit randomised, as one report of r_f l bits   (lines 9-10, eq. 13)
        |           label randomised too, where `label_epsilon` is set
        |         each round: training of the global network on these bits   (line 19)
        |         Sensitive weights
        v
    encoder       float32 weights as they are (line 20): post-processing of the bits and labels
        |         Report: 32 d bits
        v
    server_step   uniform mean over the participants -> weights of the next Broadcast (line 21)
        |
        v
    tester        the client's CNN and bits for test examples, then the global network

Source: M.A.P. Chamikara, D. Liu, S. Camtepe, S. Nepal, M. Grobler, P. Bertok, I. Khalil, "Local
Differential Privacy for Federated Learning", 2022. Its global network's hidden layers and its image
augmentation are not described: the first is the setting `model`, and there is none of the second.

What leaves besides the bits: labels, in clear in the paper; nothing of the CNN, of its batch norms
or of the tests; no number of examples, although how far a client trains depends on it. A bit of any
example depends on all of the client's, through the CNN, unless the encoder is public.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import nn

from fedldp.accounting.events import DrawnOnce, Event, InClear, PerRecord, PureCoordinates
from fedldp.accounting.statement import Claim
from fedldp.data import Examples
from fedldp.errors import ConfigError
from fedldp.mechanisms._categories import LARGEST_EPSILON, SMALLEST_EPSILON
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.randomised_bits import RandomisedBits, Variant
from fedldp.parts import Client, Score
from fedldp.parts.averaging import SendPlain, WeightedMean
from fedldp.parts.feature_net import Architecture, FeatureNet, state_of, train
from fedldp.parts.fixed_point import FixedPoint
from fedldp.parts.images import check_images
from fedldp.parts.local_sgd import (
    batches,
    evaluate,
    gradients,
    layout_of,
    load_weights,
    read_weights,
)
from fedldp.parts.public_encoder import PublicEncoder, check_is_public, from_public, to_public
from fedldp.parts.store import Arrays
from fedldp.randomness import Stream, torch_seeded
from fedldp.systems import Count, Positive, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Sensitive, Vector

LabelEpsilon = Annotated[float, Field(ge=SMALLEST_EPSILON, le=LARGEST_EPSILON)]
Channels = Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, max_length=8)]

PIECE = 1000
"""Examples encoded, or tested, at a time."""

_THEOREMS = {
    "theorem_2": "Theorem 2 (eq. 13)",
    "theorem_1": "Theorem 1",
    "symmetric": "eq. 11",
}


class LdpflConfig(SystemConfig):
    """Settings of LDPFL."""

    system: Literal["ldpfl"] = "ldpfl"
    epsilon: Positive = Field(0.5, description="the paper's budget of one example's features")
    randomisation: Variant = Field(
        "theorem_2", description="theorem_2 (the paper), theorem_1, or symmetric: eq. 11"
    )
    alpha: Positive = Field(10.0, description="the privacy budget coefficient of both theorems")
    whole_bits: Annotated[int, Field(ge=0)] = Field(
        4, description="binary digits of a feature before the point"
    )
    fraction_bits: Annotated[int, Field(ge=0)] = Field(
        5, description="binary digits of a feature after the point"
    )
    label_epsilon: LabelEpsilon | None = Field(
        None, description="budget of one label; labels are in clear where it is not set (the paper)"
    )
    encoder: Literal["own", "public"] = Field(
        "own", description="own: every client trains its own (the paper); public: one for all"
    )
    public_dataset: str | None = Field(
        None, description="what a public encoder is trained on; it stays random where it is not set"
    )
    encoder_channels: Channels = Field(
        [32, 64], description="channels of the encoder's blocks of two convolutions"
    )
    encoder_padding: bool = Field(
        False, description="whether the encoder's convolutions keep an image's size"
    )
    encoder_epochs: Count = Field(
        50, le=100_000, description="passes that an encoder is trained for"
    )
    test_share: float = Field(
        0.1, gt=0, lt=1, description="share of a client's examples that it keeps for its own test"
    )
    evaluation: Literal["clients", "common"] = Field(
        "clients",
        description="clients: on every client's own test examples (the paper), without a guarantee "
        "for them; common: on the test set, of which every client encodes a part",
    )
    randomise_tests: bool = Field(
        True, description="whether test examples are randomised like those for training"
    )
    optimizer: Literal["sgd", "adam"] = Field(
        "sgd", description="of the global network, on the clients; adam starts afresh every round"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.code, self.mechanism  # noqa: B018 (they check their settings)
        if self.encoder == "own" and self.public_dataset is not None:
            raise ConfigError(
                f"public_dataset = {self.public_dataset}: every client trains its own encoder; set "
                "encoder = public"
            )
        if self.public_dataset is not None:
            check_is_public(self.public_dataset, self.dataset)
        return self

    @property
    def code(self) -> FixedPoint:
        """How a feature becomes l bits."""
        return FixedPoint(self.whole_bits, self.fraction_bits)

    @property
    def mechanism(self) -> RandomisedBits:
        """What randomises the bits of one example's features."""
        return RandomisedBits(self.epsilon, self.randomisation, self.alpha)

    def label_mechanism(self, num_classes: int) -> KRR | None:
        """Return what randomises labels, if anything does."""
        return None if self.label_epsilon is None else KRR(self.label_epsilon, num_classes)

    def architecture(self, problem: Problem) -> Architecture:
        """Return the encoders' network."""
        check_images(problem.input_shape, self.dataset)
        return Architecture(
            problem.input_shape,
            problem.num_classes,
            tuple(self.encoder_channels),
            self.encoder_padding,
        )

    def num_bits(self, problem: Problem) -> int:
        """Return the length of one example's vector of bits, r_f l."""
        return self.architecture(problem).num_features * self.code.length

    def num_trained(self, num_examples: int) -> int:
        """Return how many of a client's examples are not kept for its test; one at least."""
        return max(1, num_examples - math.ceil(self.test_share * num_examples))

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put LDPFL together; see the module's diagram."""
        if problem.num_examples <= self.num_clients and self.evaluation == "clients":
            raise ConfigError(
                f"num_clients = {self.num_clients}: with {problem.num_examples} examples no client "
                "can keep one for its test; give fewer, or set evaluation = common"
            )
        codes = Codes(self, problem, device)
        model, layout, weights, _ = self.build_training(
            replace(problem, input_shape=(codes.num_bits,)), device
        )

        encoder = self._public_encoder(problem) if self.encoder == "public" else None

        def initial() -> Broadcast:
            public = {} if encoder is None else to_public(encoder.build(device))
            return Broadcast(round=1, weights=weights, public=public)

        return System(
            initial=initial,
            client_step=TrainOnBits(self, codes, model, device),
            encoder=SendPlain(by_examples=False),
            server_step=WeightedMean(),
            model=model,
            layout=layout,
            tester=ScoreOnBits(self, codes, model, device),
        )

    def _public_encoder(self, problem: Problem) -> PublicEncoder:
        network, epochs = self.architecture(problem), self.encoder_epochs
        return PublicEncoder(network, self.public_dataset, epochs, self.seed, problem.data_dir)

    def release(self, client: int, size: int, problem: Problem) -> Event:
        """Return what all reports of ``client`` follow from: its examples' bits and labels.

        They are drawn once. One record changes its own bits where the encoder is public, but the
        bits of all the client's records where they trained the encoder. Its label is one of them.
        Scores on a client's own test examples are computed from these as they are.
        """
        bits = self.mechanism.event(self.num_bits(problem))
        labels = self.label_mechanism(problem.num_classes)
        if labels is None or self.evaluation == "clients":
            alone = math.ceil(1000 * math.fsum(e * n for e, n in bits.groups)) / 1000
            bits_alone = f"one example's bits alone, of a public encoder: pure epsilon {alone:,.3f}"
            what = f"labels ({bits_alone})" if labels is None else "scores on own test examples"
            return PerRecord(record=InClear(what=what), client=InClear(what=what))
        label = labels.event(1)
        iid = self.partition == "iid"  # then it is public how many examples a client has
        share = -(-problem.num_examples // self.num_clients)
        most = self.num_trained(share if iid else problem.num_examples)
        record = _sum((bits, most if self.encoder == "own" else 1), (label, 1))
        everything = _sum((bits, most), (label, most))
        return PerRecord(
            record=DrawnOnce(drawn=record),
            client=DrawnOnce(drawn=everything) if iid else InClear(what="number of examples"),
        )

    def tested_on(self) -> str:
        if self.evaluation == "common":
            return "the test set, of which every client encodes a part"
        return "the clients' own held-out examples, each through its client's encoder"

    def claim(self) -> Claim | None:
        """Return the paper's claim, for one example."""
        return Claim(
            epsilon=self.epsilon,
            delta=0.0,
            unit="record",
            source=f"Chamikara et al. 2022, {_THEOREMS[self.randomisation]} and Section 3.3",
        )


def _sum(*parts: tuple[PureCoordinates, int]) -> PureCoordinates:
    """Return the event of some events, each with how often it happens."""
    groups: Counter[float] = Counter()
    for event, times in parts:
        for epsilon, count in event.groups:
            groups[epsilon] += times * count
    return PureCoordinates(groups=tuple(groups.items()))


@dataclass(frozen=True, eq=False)
class Codes:
    """What a client has on its disk: its encoder, and randomised bits with their labels.

    Attributes:
        config: the system's.
        problem: the shape of the data.
        device: where encoders are trained.
    """

    config: LdpflConfig
    problem: Problem
    device: torch.device

    @cached_property
    def num_bits(self) -> int:
        """The length of one example's vector."""
        return self.config.num_bits(self.problem)

    def for_training(self, broadcast: Broadcast, client: Client) -> Arrays:
        """Return "bits", packed, shape (n, ceil(num_bits/8)), and "labels", shape (n,)."""

        def make() -> Arrays:
            own = _take(client.examples, self._places(client)[0])
            mechanism = self.config.label_mechanism(self.problem.num_classes)
            labels = own.labels
            if mechanism is not None:
                labels = mechanism.randomise(labels, client.setup("labels"))
            net = self._encoder(broadcast, client)
            return {"bits": self._bits(net, own, client.setup("bits")), "labels": labels}

        return client.store.arrays("training", make)

    def for_test(self, broadcast: Broadcast, client: Client, test: Examples) -> Arrays:
        """Return the same of the examples that the client tests on; their labels stay true."""

        def make() -> Arrays:
            if self.config.evaluation == "clients":
                chosen = _take(client.examples, self._places(client)[1])
            else:
                chosen = _take(test, slice(client.index, None, self.config.num_clients))
            stream = client.setup("test bits") if self.config.randomise_tests else None
            net = self._encoder(broadcast, client)
            return {"bits": self._bits(net, chosen, stream), "labels": chosen.labels}

        return client.store.arrays("test", make)

    def _places(self, client: Client) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the client's examples are for training, and which for its test."""
        order = client.setup("split").generator().permutation(len(client.examples))
        training = self.config.num_trained(len(order))
        return np.sort(order[:training]), np.sort(order[training:])

    def _encoder(self, broadcast: Broadcast, client: Client) -> FeatureNet:
        architecture = self.config.architecture(self.problem)
        if self.config.encoder == "public":
            return from_public(broadcast, architecture)

        def make() -> Arrays:
            net = architecture.build(client.setup("encoder weights"))
            own = _take(client.examples, self._places(client)[0])
            epochs = self.config.encoder_epochs
            train(net, own, epochs=epochs, draw=client.setup, device=self.device)
            return state_of(net)

        return architecture.restore(client.store.arrays("encoder", make))

    def _bits(
        self, net: FeatureNet, examples: Examples, stream: Stream | None
    ) -> NDArray[np.uint8]:
        """Return the packed bits of examples, randomised with ``stream`` where there is one."""
        packed = np.empty((len(examples), -(-self.num_bits // 8)), np.uint8)
        for start in range(0, len(examples), PIECE):
            piece = slice(start, start + PIECE)
            bits = self.config.code.encode(net.features(examples.features[piece], self.device))
            if stream is not None:
                bits = self.config.mechanism.randomise(bits, stream)
            packed[piece] = np.packbits(bits, axis=1)
        return packed

    def inputs(self, packed: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return packed bits as the global network's inputs, 0 and 1, shape (n, num_bits)."""
        return np.unpackbits(packed, axis=1, count=self.num_bits).astype(np.float32)


@dataclass(frozen=True, eq=False)
class TrainOnBits:
    """The client step: some epochs on the client's randomised bits, unpacked batch by batch."""

    config: LdpflConfig
    codes: Codes
    model: nn.Module
    device: torch.device

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[Vector]:
        """Return the client's weights after training, float32, shape (d,)."""
        kept = self.codes.for_training(broadcast, client)
        config, model = self.config, self.model
        load_weights(model, layout_of(model), broadcast.weights)
        model.train()
        parameters = list(model.parameters())
        method = torch.optim.Adam if config.optimizer == "adam" else torch.optim.SGD
        optimizer = method(parameters, lr=config.learning_rate)
        labels = torch.from_numpy(kept["labels"])
        order = client.stream("batches")
        with torch_seeded(client.stream("model")):
            for places in batches(len(labels), config.local_epochs, config.batch_size, order):
                inputs = torch.from_numpy(self.codes.inputs(kept["bits"][places])).to(self.device)
                answers = labels[torch.from_numpy(places)].to(self.device)
                found = gradients(model, inputs, answers, parameters)
                for parameter, gradient in zip(parameters, found, strict=True):
                    parameter.grad = gradient
                optimizer.step()
        return Sensitive(read_weights(model))


@dataclass(frozen=True, eq=False)
class ScoreOnBits:
    """The tester: the global network on the bits of a client's test examples."""

    config: LdpflConfig
    codes: Codes
    model: nn.Module
    device: torch.device

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score:
        """Return how the broadcast's weights do."""
        kept = self.codes.for_test(broadcast, client, test)
        bits, labels = kept["bits"], kept["labels"]
        load_weights(self.model, layout_of(self.model), broadcast.weights)
        pieces = [slice(start, start + PIECE) for start in range(0, len(labels), PIECE)]
        scores = [
            evaluate(self.model, Examples(self.codes.inputs(bits[p]), labels[p]), self.device)
            for p in pieces
        ]
        return Score(
            right=sum(score.right for score in scores),
            loss=sum(score.loss for score in scores),
            total=len(labels),
        )


def _take(examples: Examples, places: NDArray[np.int64] | slice) -> Examples:
    return Examples(examples.features[places], examples.labels[places])
