"""LDPFL with a budget per example that holds: every example is randomised once, label included.

    Broadcast: weights W
        |
        v
    client_step   the examples of this round, which no other round uses:
        |           features of a public encoder: histograms of oriented gradients, norm 1
        |           each example's gradient at the weights reached, in one vector with its label,
        |           clipped to norm `clip` and randomised: pure epsilon
        |           a step along the mean of a batch of these
        |         Sensitive weights
        v
    encoder       float32 weights as they are: post-processing of the randomised gradients
        |         Report: 32 d bits
        v
    server_step   uniform mean over the participants -> weights of the next Broadcast
        |
        v
    tester        features of the test set, as they are

What is proven: pure epsilon for one example (x, y), label included, in the whole run, whatever the
number of rounds. The encoder is fixed, the choice of round and batch looks at no example, and given
the weights at which it is taken the randomised gradient follows from (x, y) alone; all that is sent
later follows from that. docs/privacy.md, "LDPFL: claim and truth", has the proof. A client keeps
what it made of a round's examples, so that a round that is asked for again draws nothing again.

It differs from LDPFL in four ways, each for a reason. The encoder is public: one that is trained on
the client's examples makes the features of one depend on all others. The label is inside. The
mechanism is calibrated to the whole vector, not bit by bit. And what is randomised is the gradient,
not the features: noise of this size makes features useless as inputs of a network, but leaves the
mean of many gradients of a linear classifier useful.

Source: ours, for the task of Chamikara et al. 2022 (``systems.ldpfl``); the mechanism is PrivUnit
(Bhowmick et al. 2018), by default, and gradients that are randomised one by one are those of Duchi,
Jordan, Wainwright 2013, "Local Privacy and Statistical Minimax Rates".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.accountants import coordinate_of, is_pure
from fedldp.accounting.events import DrawnOnce, Event, InClear, PerRecord, Several
from fedldp.accounting.statement import Claim
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Encoder, in_clear
from fedldp.algorithms.server_update import Weighted, read_plain
from fedldp.algorithms.settings import LARGEST_BATCH, Count, NormBound, Positive
from fedldp.core.errors import ConfigError
from fedldp.core.registry import is_address
from fedldp.data.examples import Examples
from fedldp.mechanisms import Mechanism, MechanismSettings, mechanisms
from fedldp.models import layout_of_module
from fedldp.parts.images import check_images
from fedldp.parts.oriented_gradients import OrientedGradients
from fedldp.parts.portions import check_portions, indices_of_round, kept_order
from fedldp.protocol.roles import Batch, Client, Score, ServerSide, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.systems._old import MeanServerConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

PIECE = 200
"""Examples whose gradients are computed at a time."""

_SUITABLE = "nearest_direction, privunit, privunit_scalar, piecewise or laplace"


class LdpflSoundConfig(MeanServerConfig):
    """Settings of sound LDPFL."""

    system: Literal["ldpfl_sound"] = "ldpfl_sound"
    model: str = Field(
        "linear",
        description='of the features: a name from `fedldp list models`, or "module:callable"',
    )
    epsilon: Positive = Field(description="budget of one example in the whole run, with its label")
    mechanism: str = Field(
        "privunit",
        description=f"randomiser of an example's gradient: {_SUITABLE}",
    )
    clip: NormBound = Field(
        1.0, description="bound on an example's gradient, in the mechanism's norm"
    )
    cells: Count = Field(4, description="cells along each side of an image, for the features")
    orientations: int = Field(
        8, ge=2, le=360, description="directions of slopes that features tell apart"
    )
    batch_size: Count = Field(1_000_000, le=LARGEST_BATCH, description="examples in one step")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.local_epochs != 1:
            raise ConfigError(
                f"local_epochs = {self.local_epochs}: an example is randomised once and used once; "
                "set it to 1"
            )
        if is_address(self.mechanism):
            raise ConfigError(
                f"mechanism = {self.mechanism}: ldp_fl alone takes one of your own; choose "
                f"{_SUITABLE}"
            )
        if self.mechanism not in mechanisms():
            raise ConfigError(f"mechanism = {self.mechanism}: choose {_SUITABLE}")
        return self

    def randomiser(self, size: int) -> Mechanism:
        """Return what randomises a gradient of ``size`` coordinates, divided by ``clip``."""
        return _randomiser(self.mechanism, self.epsilon, self.delta, size)

    def features(self, problem: Problem) -> OrientedGradients:
        """Return the public encoder of images."""
        check_images(problem.input_shape, self.dataset)
        return OrientedGradients(problem.input_shape, self.cells, self.orientations)

    def model_input(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of one image's features."""
        return (self.features(problem).size,)

    def public_inputs(
        self, problem: Problem, broadcast: Broadcast, features: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return what the model is given of examples: their features, by the public encoder."""
        return self.features(problem)(features)

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what sends the weights, which follow from a client's randomised gradients."""
        check_portions(problem.num_examples, self.num_clients, self.rounds)
        size, most = self.layout(problem).size, self.most_examples(problem)
        record = self._whole(size)
        whole = (
            InClear(what="number of examples")
            if most is None
            else self._drawn(Several(each=record, count=most))
        )
        released = PerRecord(record=self._drawn(record), client=whole)
        return Encoder(release=in_clear(size), inner=released)

    def _drawn(self, event: Event) -> DrawnOnce:
        # Another number of rounds would put an example into another one.
        return DrawnOnce(drawn=event, identity=f"gradients, in {self.rounds} rounds")

    def most_examples(self, problem: Problem) -> int | None:
        """Return an equal share, where it is public how many examples a client has."""
        return self.equal_share(problem, self.num_clients)

    def client_step(self, problem: Problem, device: torch.device) -> RandomisedSgd:
        """Return the training on each example once."""
        return RandomisedSgd(self, self.features(problem), self.sgd(problem, device).model, device)

    def tester(self, problem: Problem, device: torch.device) -> ScoreOnFeatures:
        """Return the test on features."""
        model = self.sgd(problem, device).model
        return ScoreOnFeatures(self, self.features(problem), model, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the averaging server."""
        mean = Weighted(read=read_plain, gives="weights")
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """One example in the whole run, label included; proven."""
        return EpsilonMeaning("record", "proven")

    def _whole(self, size: int) -> Event:
        """Return the event of one example's gradient.

        Raises:
            ConfigError: the mechanism is not pure private for the gradient as a whole.
        """
        event = self.randomiser(size).event(size)
        if not is_pure(event) or coordinate_of(event) is not None:
            raise ConfigError(
                f"mechanism = {self.mechanism}: epsilon is no pure budget of a whole vector with "
                f"it; choose {_SUITABLE}"
            )
        return event

    def claim(self) -> Claim | None:
        """Return None: no publication claims anything of this system."""
        return None


@lru_cache(maxsize=256)
def _randomiser(name: str, epsilon: float, delta: float, size: int) -> Mechanism:
    settings = MechanismSettings(epsilon=epsilon, delta=delta, clip=1.0, size=size)
    return mechanisms()[name].from_settings(settings)


@dataclass(frozen=True, eq=False)
class RandomisedSgd:
    """The local update: SGD by gradients that are randomised one by one, each example used once."""

    config: LdpflSoundConfig
    features: OrientedGradients
    model: nn.Module
    device: torch.device

    def group(self, most_examples: int) -> int:
        """Return that one client trains after the other."""
        return 1

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights after this round's examples, float32, shape (n, d)."""
        from fedldp.training.batched_sgd import train_alone

        return train_alone(batch, lambda client: self._once(broadcast, client))

    def _once(self, broadcast: Broadcast, client: Client) -> Vector:
        kept = client.store.arrays(
            "trained",
            lambda: {"weights": self._train(broadcast, client)},
            round=broadcast.round,
        )
        return kept["weights"]

    def _train(self, broadcast: Broadcast, client: Client) -> Vector:
        from fedldp.core.randomness import torch_seeded

        config, weights = self.config, broadcast.weights
        order = kept_order(client, config.rounds)
        indices = indices_of_round(order, broadcast.round, config.rounds)
        features = self.features(client.examples.features[indices])
        labels = client.examples.labels[indices]
        stream = client.fresh("mechanism")
        mechanism = config.randomiser(weights.size)
        with torch_seeded(client.fresh("model")):
            for start in range(0, len(indices), config.batch_size):
                batch = slice(start, start + config.batch_size)
                aggregate = mechanism.aggregate(weights.size)
                for gradient in self._gradients(weights, features[batch], labels[batch]):
                    aggregate.add(mechanism.encode(gradient / config.clip, stream))
                step = config.learning_rate * config.clip * aggregate.mean()
                weights = (weights - step).astype(np.float32)
        return weights

    def _gradients(
        self, weights: Vector, features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> Iterator[NDArray[np.float64]]:
        """Yield each example's gradient of the cross-entropy at ``weights``, shape (d,).

        Zeros where it is NaN or infinite: a server may choose weights for which some are.
        """
        import torch

        from fedldp.training.single_gradients import single_gradients
        from fedldp.training.tensors import load_weights

        load_weights(self.model, layout_of_module(self.model), weights)
        self.model.train()
        for start in range(0, len(labels), PIECE):
            piece = slice(start, start + PIECE)
            found = single_gradients(
                self.model,
                torch.from_numpy(features[piece]).to(self.device),
                torch.from_numpy(labels[piece]).to(self.device),
            )
            rows = torch.cat(
                [found[name].flatten(1) for name, _ in self.model.named_parameters()], 1
            )
            rows[~rows.isfinite().all(1)] = 0  # a refusal would tell of one example
            yield from rows.cpu().numpy().astype(np.float64)


@dataclass(frozen=True, eq=False)
class ScoreOnFeatures:
    """The tester: each client encodes a part of the test set."""

    config: LdpflSoundConfig
    features: OrientedGradients
    model: nn.Module
    device: torch.device

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score:
        """Return how the broadcast's weights do on this client's part."""
        from fedldp.training.local_sgd import evaluate
        from fedldp.training.tensors import load_weights

        part = slice(client.index, None, self.config.num_clients)
        kept = client.store.arrays("test", lambda: {"features": self.features(test.features[part])})
        load_weights(self.model, layout_of_module(self.model), broadcast.weights)
        return evaluate(self.model, Examples(kept["features"], test.labels[part]), self.device)
