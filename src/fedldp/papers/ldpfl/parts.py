"""Features as bits: an encoder's output for an image, in fixed point.

Training on bits: every example's features, randomised once and kept on the client's disk.

Training on features, with gradients that are each randomised once in a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.accountants import coordinate_of, is_pure
from fedldp.accounting.events import (
    Event,
    InClear,
    Memoized,
    PerRecord,
    PureCoordinates,
    SelfComposed,
)
from fedldp.algorithms.composition import SUBSET, Algorithm, Local
from fedldp.algorithms.features import Features
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Kind, Unprotected
from fedldp.core.kinds import SCORES
from fedldp.data.image_features import check_images
from fedldp.mechanisms import Mechanism, MechanismSettings, mechanisms
from fedldp.mechanisms.k_rr import KRR
from fedldp.papers.ldpfl.architecture import Architecture
from fedldp.papers.ldpfl.bits import FixedPoint
from fedldp.papers.ldpfl.encoding import Codes, from_public, num_trained
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits
from fedldp.protocol.wire import Broadcast
from fedldp.training.portions import check_portions

if TYPE_CHECKING:
    import torch

    from fedldp.papers.ldpfl.training import RandomisedSgd, ScoreOnBits, TrainOnBits


@dataclass(frozen=True, kw_only=True)
class Bits(Features):
    """The features that an encoder computes from an image, as bits.

    Attributes:
        settings: the preset's settings.
        code: how a feature becomes bits.
    """

    settings: Settings
    code: FixedPoint

    def architecture(self, problem: Problem) -> Architecture:
        """Return the encoders' network.

        Raises:
            ConfigError: the examples are not images, or the network cannot take images of their
                shape.
        """
        settings = self.settings
        check_images(problem.input_shape, settings.dataset)
        return Architecture(
            problem.input_shape,
            problem.num_classes,
            tuple(settings.encoder_channels),
            settings.encoder_layers,
        )

    def num_bits(self, problem: Problem) -> int:
        """Return r_f l, the length of one example's vector of bits."""
        return self.architecture(problem).num_features * self.code.length

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of one example's vector of bits."""
        return (self.num_bits(problem),)

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return the bits from a public encoder; None if clients have their own encoders."""
        import torch

        if self.settings.encoder == "own":
            return None
        net = from_public(broadcast, self.architecture(problem))
        return self.code.encode(net.features(examples, torch.device("cpu"))).astype(np.float32)


LABELS = Kind("labels", Unprotected, {"bits_epsilon": float})
"""Labels in the clear, and what one example's bits alone cost, of a public encoder."""


@dataclass(frozen=True, kw_only=True)
class OnBits(Local):
    """SGD or Adam on randomised bits and labels, which are drawn once.

    Attributes:
        settings: the preset's settings.
        bits: how an example becomes bits.
        mechanism: what randomises one example's bits.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights"})
    drawn_once: ClassVar[bool] = True

    settings: Settings
    bits: Bits
    mechanism: RandomisedBits

    def labels(self, problem: Problem) -> KRR | None:
        """Return the mechanism that randomises labels, if there is one."""
        epsilon = self.settings.label_epsilon
        return None if epsilon is None else KRR(epsilon, problem.num_classes)

    def codes(self, problem: Problem, device: torch.device) -> Codes:
        """Return how a client turns its examples into bits."""
        return Codes(
            architecture=self.bits.architecture(problem),
            code=self.bits.code,
            mechanism=self.mechanism,
            labels=self.labels(problem),
            settings=self.settings,
            device=device,
        )

    def __call__(self, algorithm: Algorithm, device: torch.device) -> TrainOnBits:
        """Return the training on bits."""
        from fedldp.papers.ldpfl.training import TrainOnBits

        codes, sgd = self.codes(algorithm.problem, device), algorithm.sgd(device)
        return TrainOnBits(codes=codes, sgd=sgd, optimizer=self.settings.optimizer)

    def tester(self, algorithm: Algorithm, device: torch.device) -> ScoreOnBits:
        """Return the test on bits."""
        from fedldp.papers.ldpfl.training import ScoreOnBits

        return ScoreOnBits(self.codes(algorithm.problem, device), algorithm.sgd(device))

    def event(self, algorithm: Algorithm, size: int) -> PerRecord:
        """Return the event for a client's bits and labels; its reports are post-processing of them.

        The bits and labels are drawn once. If the encoder is public, one record changes only its
        own bits and label. Scores are a release too if they are computed on a client's own test
        examples, or use an encoder trained on its examples, because nothing randomises what such
        scores reveal.

        Raises:
            ConfigError: no client can keep an example for testing.
        """
        settings, problem = self.settings, algorithm.problem
        examples = problem.num_examples
        if examples <= settings.num_clients and settings.evaluation == "clients":
            raise ConfigError(
                f"num_clients = {settings.num_clients}: with {examples} examples, no client can "
                "keep one for testing; give fewer clients, or set evaluation = common"
            )
        bits = self.mechanism.event(self.bits.num_bits(problem))
        labels = self.labels(problem)
        clear = self.private_scores
        if labels is None:
            alone = math.fsum(e * n for e, n in bits.groups)
            clear = [LABELS(bits_epsilon=alone), *clear]
        if labels is None or clear:
            event = InClear(what=tuple(clear))
            return PerRecord(record=event, client=event)
        label, most = labels.event(1), self.most_examples(algorithm)

        def drawn(examples: int) -> Memoized:
            each = PureCoordinates.together(examples, bits, label)
            return Memoized(drawn=each, identity="features-and-labels")

        trained = most
        if most is not None and not settings.trains_on_held_out:
            trained = num_trained(most, settings.test_share)
        client = InClear(what="number-of-examples") if trained is None else drawn(trained)
        return PerRecord(record=drawn(1), client=client)

    @property
    def private_scores(self) -> list[Unprotected]:
        """Scores that reveal the examples that they or an encoder were computed from."""
        on = "own" if self.settings.evaluation == "clients" else "common"
        encoder = self.settings.encoder
        return [] if (on, encoder) == ("common", "public") else [SCORES(on=on, encoder=encoder)]

    def most_examples(self, algorithm: Algorithm) -> int | None:
        """Return the size of an equal share, if public and nothing is sent in the clear."""
        settings = self.settings
        if settings.label_epsilon is None or self.private_scores:
            return None
        return settings.equal_share(algorithm.problem, settings.num_clients)


SUITABLE = "k_closest, nearest_direction, privunit, privunit_scalar, piecewise or laplace"


@dataclass(frozen=True, kw_only=True)
class RandomisedGradients(Local):
    """SGD with randomised gradients, which uses each example in one round only.

    Attributes:
        settings: the preset's settings.

    Raises:
        ConfigError: an example would be used twice, or there is no such mechanism.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", *SUBSET})
    drawn_once: ClassVar[bool] = True
    alone: ClassVar[Literal["row"]] = "row"
    uses_rounds: ClassVar[bool] = True  # the number of rounds decides each example's round

    settings: Settings

    def __post_init__(self) -> None:
        epochs, name = self.settings.local_epochs, self.settings.mechanism
        if epochs != 1:
            raise ConfigError(
                f"local_epochs = {epochs}: an example is randomised once and used once; set it to 1"
            )
        if name not in mechanisms():
            raise ConfigError(f"mechanism = {name}: choose {SUITABLE}")

    def mechanism(self, size: int) -> Mechanism:
        """Return the mechanism for ``size`` coordinates of a gradient, divided by ``clip``."""
        settings = self.settings
        return _mechanism(settings.mechanism, settings.epsilon, settings.delta, size)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> RandomisedSgd:
        """Return the training, which uses each example once."""
        from fedldp.papers.ldpfl.training import RandomisedSgd

        return RandomisedSgd(
            mechanism=self.mechanism(algorithm.layout.size),
            clip=self.settings.clip,
            rounds=self.settings.rounds,
            sgd=algorithm.sgd(device),
        )

    def event(self, algorithm: Algorithm, size: int) -> PerRecord:
        """Return what all gradients of a client release, one gradient for each example.

        Raises:
            ConfigError: there are more rounds than examples; or the mechanism has no pure epsilon
                for the gradient as a whole.
        """
        settings, most = self.settings, self.most_examples(algorithm)
        check_portions(algorithm.problem.num_examples, settings.num_clients, settings.rounds)
        record = self.mechanism(size).event(size)
        if not is_pure(record) or coordinate_of(record) is not None:
            raise ConfigError(
                f"mechanism = {settings.mechanism}: with this mechanism, epsilon is not a pure "
                f"budget for a whole vector; choose {SUITABLE}"
            )
        whole = (
            InClear(what="number-of-examples")
            if most is None
            else self._drawn(SelfComposed(each=record, count=most))
        )
        return PerRecord(record=self._drawn(record), client=whole)

    def _drawn(self, event: Event) -> Memoized:
        # The identity names the number of rounds, because it decides each example's round.
        return Memoized(drawn=event, identity=f"gradients-in-{self.settings.rounds}-rounds")

    def most_examples(self, algorithm: Algorithm) -> int | None:
        """Return the size of an equal share, if the number of a client's examples is public."""
        return self.settings.equal_share(algorithm.problem, self.settings.num_clients)


@lru_cache(maxsize=256)
def _mechanism(name: str, epsilon: float, delta: float, size: int) -> Mechanism:
    settings = MechanismSettings(epsilon=epsilon, delta=delta, clip=1.0, size=size)
    return mechanisms()[name].from_settings(settings)
