"""A local update that uses each of a client's examples in one round only, and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import Field

from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.settings import LearningRate, Offer, Positive
from fedldp.training.portions import PortionSgd, check_portions, check_rate

if TYPE_CHECKING:
    import torch

MODEL = Offer(
    "model",
    str,
    'the model: a name from `fedldp list models`, or "module:callable" for your own',
    "logistic",
)
LEARNING_RATE = Offer(
    "learning_rate",
    LearningRate,
    'factor on scikit-learn\'s "optimal" learning rate, 1/(alpha (t0 + t)) in step t',
    1.0,
)
OFFERS = (
    Offer(
        "sampling_probability",
        Annotated[float, Field(gt=0, le=1)],
        "q, the probability that an example in the round's portion is used for training",
        1.0,
    ),
    Offer("alpha", Positive, "alpha in the learning rate's schedule; see learning_rate", 1e-4),
)


@dataclass(frozen=True, kw_only=True)
class Portions(Local):
    """SGD on a sample of the round's portion; see ``PortionSgd``.

    Attributes:
        sampling_probability: the probability that an example in the portion is used.
        alpha: alpha in the learning rate's schedule.
    """

    plain_sgd: ClassVar[bool] = True
    weighs_classes: ClassVar[bool] = True
    trains_part: ClassVar[bool] = True
    uses_rounds: ClassVar[bool] = True

    sampling_probability: float
    alpha: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the update for the settings in ``OFFERS``.

        Raises:
            ConfigError: the first step is too large for a float32.
        """
        check_rate(settings.learning_rate, settings.alpha)
        return cls(sampling_probability=settings.sampling_probability, alpha=settings.alpha)

    def check(self, algorithm: Algorithm) -> None:
        """Refuse data with too few examples to give each client a portion in every round."""
        config = algorithm.config
        check_portions(algorithm.problem.num_examples, config.num_clients, config.rounds)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> PortionSgd:
        """Return the local update."""
        training, rounds = algorithm.sgd(device), algorithm.config.rounds
        return PortionSgd(training, rounds, self.sampling_probability, self.alpha)
