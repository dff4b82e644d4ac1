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
                  beside it, with evaluation = clients: how the client's whole CNN does on them
                  (the metric local_accuracy; Figs. 2, 4, 6a, 8)

Source: M.A.P. Chamikara, D. Liu, S. Camtepe, S. Nepal, M. Grobler, P. Bertok, I. Khalil, "Local
Differential Privacy for Federated Learning", 2022. Its global network's hidden layers and its image
augmentation are not described: the first is the setting `model`, and there is none of the second.

What leaves besides the bits: labels, in clear in the paper; nothing of the CNN, of its batch norms
or of the tests; no number of examples, although how far a client trains depends on it. A bit of any
example depends on all of the client's, through the CNN, unless the encoder is public; so does the
score of any test, which nothing randomises.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.events import DrawnOnce, InClear, PerRecord, PureCoordinates
from fedldp.accounting.statement import Claim
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Encoder, in_clear
from fedldp.algorithms.server_update import Weighted, read_plain
from fedldp.algorithms.settings import Count, Positive
from fedldp.core.errors import ConfigError
from fedldp.mechanisms._categories import LARGEST_EPSILON, SMALLEST_EPSILON
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.randomised_bits import RandomisedBits, Variant
from fedldp.parts.architecture import Architecture, Layers
from fedldp.parts.codes import Codes, num_trained
from fedldp.parts.fixed_point import FixedPoint
from fedldp.parts.images import check_images
from fedldp.parts.public_encoder import (
    PublicEncoder,
    check_is_public,
    from_public,
    public_among,
    to_public,
)
from fedldp.protocol.roles import Draw, ServerSide, State
from fedldp.protocol.wire import Broadcast
from fedldp.systems._old import MeanServerConfig

if TYPE_CHECKING:
    import torch

    from fedldp.parts.bit_training import ScoreOnBits, TrainOnBits

LabelEpsilon = Annotated[float, Field(ge=SMALLEST_EPSILON, le=LARGEST_EPSILON)]
Channels = Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, max_length=8)]

_THEOREMS = {
    "theorem_2": "Theorem 2 (eq. 13)",
    "theorem_1": "Theorem 1",
    "symmetric": "eq. 11",
}
_SCORES: dict[tuple[str, str], list[str]] = {
    ("common", "public"): [],
    ("common", "own"): ["scores through an encoder trained on own examples"],
    ("clients", "public"): ["scores on own test examples"],
    ("clients", "own"): ["scores on own test examples, through an encoder trained on the others"],
}
"""What scores tell of private examples, by ``evaluation`` and ``encoder``."""


class LdpflConfig(MeanServerConfig):
    """Settings of LDPFL."""

    simulation_only: ClassVar[frozenset[str]] = MeanServerConfig.simulation_only | {
        "randomise_tests"
    }
    rounds_only_add: ClassVar[bool] = True

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
    encoder_layers: Layers = Field(
        "deep",
        description="where the encoder's batch norms stand: deep (the paper's network for "
        "CIFAR-10, Fashion-MNIST, SVHN): after every convolution; mnist (its other one): after "
        "the first convolution of a block and after its pool",
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
            self.encoder_layers,
        )

    def num_bits(self, problem: Problem) -> int:
        """Return the length of one example's vector of bits, r_f l."""
        return self.architecture(problem).num_features * self.code.length

    def codes(self, problem: Problem, device: torch.device) -> Codes:
        """Return how a client makes bits of its examples."""
        return Codes(
            architecture=self.architecture(problem),
            code=self.code,
            mechanism=self.mechanism,
            labels=self.label_mechanism(problem.num_classes),
            epochs=self.encoder_epochs if self.encoder == "own" else None,
            test_share=self.test_share,
            num_clients=self.num_clients if self.evaluation == "common" else None,
            randomise_tests=self.randomise_tests,
            device=device,
        )

    def public_inputs(
        self, problem: Problem, broadcast: Broadcast, features: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return what the global network is given of examples, by a public encoder; else None."""
        import torch

        if self.encoder == "own":
            return None
        net = from_public(broadcast, self.architecture(problem))
        bits = self.code.encode(net.features(features, torch.device("cpu")))
        return bits.astype(np.float32)

    def idle_settings(self) -> Mapping[str, str]:
        """Name also what the encoder, or the randomisation, makes no use of."""
        idle = dict(super().idle_settings())
        if self.encoder == "own":
            idle["public_dataset"] = "with encoder = own every client trains its own encoder"
        if self.randomisation == "symmetric":
            idle["alpha"] = "with randomisation = symmetric no probability depends on it"
        return idle

    def model_input(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of one example's vector of bits."""
        return (self.num_bits(problem),)

    def work_before_training(self, problem: Problem) -> int:
        """Return what training the clients' own encoders takes."""
        if self.encoder == "public":
            return 0
        visits = self.encoder_epochs * num_trained(problem.num_examples, self.test_share)
        return visits * self.architecture(problem).multiplications

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what sends the weights, which follow from bits and labels that are drawn once."""
        if problem.num_examples <= self.num_clients and self.evaluation == "clients":
            raise ConfigError(
                f"num_clients = {self.num_clients}: with {problem.num_examples} examples no client "
                "can keep one for its test; give fewer, or set evaluation = common"
            )
        size = self.layout(problem).size
        return Encoder(release=in_clear(size), inner=self.releases(problem))

    def client_step(self, problem: Problem, device: torch.device) -> TrainOnBits:
        """Return the training on bits."""
        from fedldp.parts.bit_training import TrainOnBits

        return TrainOnBits(
            codes=self.codes(problem, device),
            model=self.sgd(problem, device).model,
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            device=device,
        )

    def tester(self, problem: Problem, device: torch.device) -> ScoreOnBits:
        """Return the test on bits."""
        from fedldp.parts.bit_training import ScoreOnBits

        model = self.sgd(problem, device).model
        return ScoreOnBits(self.codes(problem, device), model, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the averaging server, which tells everyone the encoder if that is public."""
        public = None
        if self.encoder == "public":
            network, epochs = self.architecture(problem), self.encoder_epochs
            public = PublicEncoder(network, self.public_dataset, epochs, problem.data_dir)

        def initial(draw: Draw) -> State:
            arrays = {} if public is None else to_public(public.build(draw))
            return State(weights=self.first_weights(problem, draw), arrays=arrays)

        return self.server_update(Weighted(read=read_plain, gives="weights")).side(
            initial,
            publish=lambda state: Broadcast(
                round=state.round, weights=state.weights, public=public_among(state.arrays)
            ),
        )

    def releases(self, problem: Problem) -> PerRecord:
        """Return what all reports of a client follow from: its examples' bits and labels.

        They are drawn once. Where the encoder is public, one record changes its own alone. Scores
        are a release too, where they are of a client's own test examples, or pass through an
        encoder that its training examples made: then nothing randomises what they show.
        """
        bits = self.mechanism.event(self.num_bits(problem))
        labels = self.label_mechanism(problem.num_classes)
        alone = math.ceil(1000 * math.fsum(e * n for e, n in bits.groups)) / 1000
        clear = _SCORES[self.evaluation, self.encoder]
        if labels is None:
            what = (
                f"labels (one example's bits alone, of a public encoder: pure epsilon {alone:,.3f})"
            )
            clear = [what, *clear]
        if labels is None or clear:
            event = InClear(what=" and ".join(clear))
            return PerRecord(record=event, client=event)
        label = labels.event(1)
        most = self.most_examples(problem)
        if most is None:
            client: DrawnOnce | InClear = InClear(what="number of examples")
        else:
            client = _drawn(num_trained(most, self.test_share), bits, label)
        return PerRecord(record=_drawn(1, bits, label), client=client)

    def most_examples(self, problem: Problem) -> int | None:
        """Return an equal share, where that is public, and nothing of a client goes in clear."""
        if self.label_epsilon is None or _SCORES[self.evaluation, self.encoder]:
            return None
        return self.equal_share(problem, self.num_clients)

    @property
    def data_may_refuse(self) -> bool:
        """Whether the data may refuse a run: the public data set may not be there."""
        return self.public_dataset is not None

    def tested_on(self) -> str:
        if self.evaluation == "common":
            return "the test set, of which every client encodes a part"
        return "the clients' own held-out examples, each through its client's encoder"

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """One example; claimed."""
        return EpsilonMeaning("record", "claimed")

    def claim(self) -> Claim | None:
        """Return the paper's claim, for one example."""
        return Claim(
            epsilon=self.epsilon,
            delta=0.0,
            unit="record",
            source=f"Chamikara et al. 2022, {_THEOREMS[self.randomisation]} and Section 3.3",
        )


def _drawn(examples: int, *events: PureCoordinates) -> DrawnOnce:
    """Return the event of all ``events`` for each of so many examples, drawn once."""
    groups: Counter[float] = Counter()
    for event in events:
        for epsilon, count in event.groups:
            groups[epsilon] += examples * count
    drawn = PureCoordinates(groups=tuple(groups.items()))
    return DrawnOnce(drawn=drawn, identity="features and labels")
