"""What both personalised systems have in common: clients' own settings, and the client step."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import Delta, LearningRate, NormBound, Positive
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.parts.per_client import Own, check_one_each, of_client
from fedldp.parts.portions import PortionSgd, check_portions, check_rate, scale_features
from fedldp.systems._old import MeanServerConfig

if TYPE_CHECKING:
    import torch
    from torch import nn


class PersonalizedSettings(MeanServerConfig):
    """Settings of systems in which clients choose their budgets, and use an example once."""

    per_client: ClassVar[tuple[str, ...]] = ("epsilon", "client_delta", "clip")

    model: str = Field(
        "logistic", description='a name from `fedldp list models`, or "module:callable"'
    )
    learning_rate: LearningRate = Field(
        1.0, description='factor on scikit-learn\'s "optimal" rate 1/(alpha (t0 + t))'
    )
    epsilon: Positive | list[Positive] | Own | None
    client_delta: Delta | list[Delta] | Own | None
    clip: NormBound | list[NormBound] | Own
    sampling_probability: float = Field(
        1.0, gt=0, le=1, description="q, of an example of the round's portion to be trained on"
    )
    alpha: Positive = Field(1e-4, description="alpha of that rate")
    feature_scale: Positive = Field(
        1.0, description="factor on features, such as 255 for images in bytes"
    )

    @model_validator(mode="after")
    def _check_choices(self) -> Self:
        for name in self.per_client:
            check_one_each(name, getattr(self, name), self.num_clients)
        check_rate(self.learning_rate, self.alpha)
        return self

    def budget(self, client: int) -> tuple[float, float]:
        """Return (epsilon_i, delta_i) of a client, of a configuration that has an epsilon."""
        assert self.epsilon is not None
        delta = self.delta if self.client_delta is None else self.client_delta
        return of_client(self.epsilon, client), of_client(delta, client)

    def size(self, problem: Problem) -> int:
        """Return the model's size, d.

        Raises:
            ConfigError: the model does not fit the problem, or there are too few examples for a
                portion of each client in every round.
        """
        check_portions(problem.num_examples, self.num_clients, self.rounds)
        return self.layout(problem).size

    def client_step(self, problem: Problem, device: torch.device) -> PortionSgd:
        """Return SGD on a sample of the round's portion."""
        return PortionSgd(
            self.sgd(problem, device), self.rounds, self.sampling_probability, self.alpha
        )

    def module(self, problem: Problem, stream: Stream) -> nn.Module:
        """Return the model as a torch module, which scales whatever features it is given."""
        model = super().module(problem, stream)
        scale_features(model, self.feature_scale)
        return model

    def check_whole(self) -> None:
        """Refuse what one client is told where the choices of all clients are needed.

        Raises:
            ConfigError: it is that.
        """
        for name in self.per_client:
            value = getattr(self, name)
            if isinstance(value, Own):
                raise ConfigError(
                    f"{name} = {value.own} is that of one client, and a server needs those of "
                    "all: give one for all, or a list with one for each client"
                )
