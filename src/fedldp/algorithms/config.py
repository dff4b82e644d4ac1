"""A run's configuration: the settings that every run has, those of its preset, and its parts.

What leaves a client, and what that costs, follows from the parts alone. None of them imports torch,
reads data, or knows an example: so a statement is made before any training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from fedldp.accounting.statement import Claim
from fedldp.algorithms.composition import Algorithm, Composition
from fedldp.algorithms.participation import Participation
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.run_settings import RunSettings
from fedldp.algorithms.settings import Delays
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.core.randomness import Stream
from fedldp.core.registry import is_address
from fedldp.mechanisms.summing import Summing
from fedldp.parts.per_client import of_client
from fedldp.protocol.roles import ClientSide, Draws, Encoder, LocalUpdate, ServerSide, Tester
from fedldp.protocol.wire import Broadcast, Layout

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedldp.training.local_sgd import LocalSgd


class RunConfig(RunSettings):
    """A run's full configuration: frozen, public, checked when it is made.

    ``preset`` makes a subclass of it for each system, with the settings that are its own. All that
    a run asks of them is in the composition.
    """

    compose: ClassVar[Callable[[Any], Composition]]
    """From the settings to the parts; see ``preset``."""

    @model_validator(mode="after")
    def _check_idle(self) -> Self:
        for name, reason in self.idle_settings().items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                raise ConfigError(
                    f"{name} = {value}: {reason}; leave it out, or set it to {default}"
                )
        return self

    def idle_settings(self) -> Mapping[str, str]:
        """Return the settings that change nothing beside the others, and why: they are refused."""
        idle = {}
        delays = self.delays()
        shuffled = delays is not None and delays.prediction_error == 0
        if not shuffled and not self.has_downlink:
            idle["untrusted_clients"] = f"no line of {self.name()}'s statement rests on it here"
        if self.server_optimizer == "none":
            idle["server_momentum"] = "server_optimizer = none has no momentum"
        parts = self.composition
        idle |= parts.unused
        return {name: reason for name, reason in idle.items() if name not in parts.uses}

    @property
    def composition(self) -> Composition:
        """The parts that the settings make.

        Raises:
            ConfigError: a mechanism or another part refuses a setting.
        """
        return type(self).compose(self)

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the composition, bound to the public facts of ``problem``."""
        return Algorithm(self, self.composition, problem)

    # The two halves

    def model_input(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of what the model is given of one example."""
        return self.algorithm(problem).input_shape

    def layout(self, problem: Problem) -> Layout:
        """Return how the model's parameters lie in a broadcast's weights.

        Raises:
            ConfigError: the model does not fit the problem.
        """
        return self.algorithm(problem).layout

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what encodes the reports of one client; it states what they release.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """
        return self.algorithm(problem).encoder(client)

    def client_step(self, problem: Problem, device: torch.device) -> LocalUpdate:
        """Return what trains on a client's examples; all clients share it."""
        return self.algorithm(problem).local_update(device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server's half.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """
        return self.algorithm(problem).server()

    @property
    def exchanges(self) -> int:
        """The questions that a client is asked in one round."""
        return self.composition.channel.phases

    @property
    def trains_in(self) -> int:
        """The exchange of a round in which clients train."""
        return self.composition.channel.trains_in

    def client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client."""
        return self.algorithm(problem).client(client, device)

    def most_examples(self, problem: Problem) -> int | None:
        """Return how many examples of a client its event counts, where it counts them."""
        return self.algorithm(problem).most_examples()

    def tester(self, problem: Problem, device: torch.device) -> Tester | None:
        """Return how a simulation tests the model on its clients' side; None: on the test set."""
        return self.algorithm(problem).tester(device)

    def public_inputs(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return what the model is given of examples, where that is public; see ``Features``."""
        return self.composition.features(problem, broadcast, examples)

    # Sums

    def summing(self, problem: Problem) -> Summing | None:
        """Return how reports are summed, where the server step needs no more than their sum."""
        return self.algorithm(problem).summing()

    @property
    def always_summed(self) -> bool:
        """Whether a deployed run must go through a secure sum, for nothing else is meant by it."""
        return self.composition.channel.kind == "sum"

    def inner_client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client whose report a secure sum carries, in one exchange."""
        return self.algorithm(problem).inside().client(client, device)

    def inner_server(self, problem: Problem) -> ServerSide:
        """Return the server's half that reads what ``Summing.total`` gives."""
        return self.algorithm(problem).inside().server()

    @property
    def participants(self) -> Participation:
        """Who answers when: all clients, a sample in each round, or as the preset says."""
        return self.composition.participation

    def settled(self, draws: Draws) -> Self:
        """Return a copy with whatever the server draws, and tells everyone, before the run."""
        participation = self.composition.participation
        if not participation.told:
            return self
        scheduled = participation.scheduled(draws)
        return self.changed(**{name: getattr(scheduled, name) for name in participation.told})

    # What is claimed, and what is stated

    def claim(self) -> Claim | None:
        """Return what the source claims of this configuration, if it claims anything."""
        found = self.composition.claim
        return found() if callable(found) else found

    @property
    def epsilon_meaning(self) -> EpsilonMeaning | None:
        """What the setting ``epsilon`` is about, where the system has one."""
        return self.composition.calibration.meaning

    def epsilon_in_words(self) -> str | None:
        """Return the setting ``epsilon`` with what it is about, for the reader."""
        meaning, value = self.epsilon_meaning, getattr(self, "epsilon", None)
        if meaning is None or value is None:
            return None
        if is_address(self.name()):  # whose word it is that anything is proven
            meaning = replace(meaning, standing="claimed")
        values = value if isinstance(value, list) else [of_client(value, 0)]
        shown = " to ".join(map(number, sorted({min(values), max(values)})))
        return f"epsilon {shown} {meaning}"

    @property
    def has_downlink(self) -> bool:
        """Whether the server adds noise for those who see nothing but its broadcasts."""
        return self.composition.downlink is not None

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse shares of simulated clients that a setting has promised not to happen.

        Args:
            sizes: how many examples each client got.

        Raises:
            ConfigError: it did happen.
        """
        self.composition.calibration.check_shares(sizes)

    @property
    def data_may_refuse(self) -> bool:
        """Whether the data may refuse a run of which the plan could be made."""
        parts = self.composition
        return parts.calibration.data_may_refuse or parts.local.data_may_refuse

    def tested_on(self) -> str:
        """Return, for the reader, what a run's accuracy is measured on."""
        return self.composition.local.tested_on

    def delays(self) -> Delays | None:
        """Return the shuffler's time model where reports are shuffled, else None."""
        return self.composition.channel.delays

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether a run of more rounds has the same results in those of a shorter one.

        A target is solved for all rounds, and the rounds that are averaged are counted from the
        last one.
        """
        parts = self.composition
        uses = parts.calibration.uses_rounds or parts.local.uses_rounds
        return not uses and self.target is None and self.average == 0

    def work_before_training(self, problem: Problem) -> int:
        """Return how often clients multiply by a weight, forwards, before they train the model."""
        return self.algorithm(problem).work_before_training()

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``, for a target: the more, the less it protects.

        Raises:
            ConfigError: the system has nothing to solve for, or not such a budget.
        """
        if self.inverse:
            return self.changed(**{self.solved: 1 / budget})
        if self.solved not in type(self).model_fields:
            raise ConfigError(
                f"target: {self.name()} has no epsilon to solve for; choose another system"
            )
        if isinstance(own := getattr(self, self.solved), list):
            raise ConfigError(
                f"target: epsilon = {own} has a budget for each client; give one for all of them"
            )
        drawn = dict.fromkeys(self.composition.participation.told)  # it is to be drawn again
        return self.changed(**{self.solved: budget, **drawn})

    def sgd(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD as a local update."""
        return self.algorithm(problem).sgd(device)

    def module(self, problem: Problem, stream: Stream) -> nn.Module:
        """Return the model as a torch module, with initial weights from ``stream``."""
        return self.algorithm(problem).module(stream)
