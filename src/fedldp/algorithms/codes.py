"""Training on bits: every example's features, randomised once and kept on the client's disk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedldp.accounting.events import InClear, Memoized, PerRecord, PureCoordinates
from fedldp.algorithms.bits import Bits
from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.randomised_bits import RandomisedBits
from fedldp.training.codes import Codes, num_trained

if TYPE_CHECKING:
    import torch

    from fedldp.training.bit_training import ScoreOnBits, TrainOnBits

_SCORES: dict[tuple[str, str], list[str]] = {
    ("common", "public"): [],
    ("common", "own"): ["scores through an encoder trained on own examples"],
    ("clients", "public"): ["scores on own test examples"],
    ("clients", "own"): ["scores on own test examples, through an encoder trained on the others"],
}
"""What scores reveal about private examples, for each ``evaluation`` and ``encoder``."""


@dataclass(frozen=True, kw_only=True)
class OnBits(Local):
    """SGD or Adam on randomised bits and labels, which are drawn once.

    Attributes:
        settings: the preset's settings.
        bits: how an example becomes bits.
        mechanism: what randomises one example's bits.
    """

    weighs_classes: ClassVar[bool] = True
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
        settings = self.settings
        return Codes(
            architecture=self.bits.architecture(problem),
            code=self.bits.code,
            mechanism=self.mechanism,
            labels=self.labels(problem),
            epochs=settings.encoder_epochs if settings.encoder == "own" else None,
            test_share=settings.test_share,
            num_clients=settings.num_clients if settings.evaluation == "common" else None,
            randomise_tests=settings.randomise_tests,
            augmentation=settings.encoder_augmentation,
            decay=settings.encoder_decay,
            device=device,
        )

    def __call__(self, algorithm: Algorithm, device: torch.device) -> TrainOnBits:
        """Return the training on bits."""
        from fedldp.training.bit_training import TrainOnBits

        settings, sgd = self.settings, algorithm.sgd(device)
        return TrainOnBits(
            codes=self.codes(algorithm.problem, device),
            model=sgd.model,
            local_epochs=settings.local_epochs,
            batch_size=settings.batch_size,
            optimizer=settings.optimizer,
            learning_rate=settings.learning_rate,
            device=device,
            class_weights=sgd.class_weights,
        )

    def tester(self, algorithm: Algorithm, device: torch.device) -> ScoreOnBits:
        """Return the test on bits."""
        from fedldp.training.bit_training import ScoreOnBits

        return ScoreOnBits(
            self.codes(algorithm.problem, device), algorithm.sgd(device).model, device
        )

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
        alone = math.ceil(1000 * math.fsum(e * n for e, n in bits.groups)) / 1000
        clear = self.private_scores
        if labels is None:
            alone_says = f"one example's bits alone, of a public encoder: pure epsilon {alone:,.3f}"
            clear = [f"labels ({alone_says})", *clear]
        if labels is None or clear:
            event = InClear(what=" and ".join(clear))
            return PerRecord(record=event, client=event)
        label, most = labels.event(1), self.most_examples(algorithm)

        def drawn(examples: int) -> Memoized:
            each = PureCoordinates.together(examples, bits, label)
            return Memoized(drawn=each, identity="features and labels")

        trained = None if most is None else num_trained(most, settings.test_share)
        client = InClear(what="number of examples") if trained is None else drawn(trained)
        return PerRecord(record=drawn(1), client=client)

    @property
    def private_scores(self) -> list[str]:
        """What scores reveal about the examples that they or an encoder were computed from."""
        return _SCORES[self.settings.evaluation, self.settings.encoder]

    def most_examples(self, algorithm: Algorithm) -> int | None:
        """Return the size of an equal share, if public and nothing is sent in the clear."""
        settings = self.settings
        if settings.label_epsilon is None or self.private_scores:
            return None
        return algorithm.config.equal_share(algorithm.problem, settings.num_clients)

    def work_before_training(self, algorithm: Algorithm) -> int:
        """Return the number of forward multiplications for training the clients' own encoders."""
        settings, problem = self.settings, algorithm.problem
        if settings.encoder == "public":
            return 0
        trained = num_trained(problem.num_examples, settings.test_share)
        visits: int = settings.encoder_epochs * trained
        return visits * self.bits.architecture(problem).multiplications

    @property
    def data_may_refuse(self) -> bool:
        """Whether a run may be refused because of its data: the public data set may be missing."""
        return self.settings.public_dataset is not None
