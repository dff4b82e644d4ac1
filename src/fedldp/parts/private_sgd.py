"""DP-SGD as a client step: every step adds noise to a sum of clipped gradients of single examples.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedldp.accounting.events import SampledGaussian
from fedldp.errors import ConfigError
from fedldp.mechanisms.privunit import check_simulated
from fedldp.parts import Client
from fedldp.parts.local_sgd import as_tensors, layout_of, load_weights, read_weights
from fedldp.randomness import SERVER, Stream, torch_seeded
from fedldp.registry import import_extra
from fedldp.wire import Broadcast, Sensitive, Vector

_RESOLUTION = 1 << 53
"""Numpy's random floats are multiples of 1/this."""


def sampling_rate(batch_size: int, num_clients: int, num_examples: int) -> float:
    """Return the rate at which a step of ``batch_size`` samples: of the mean client, so public.

    It is rounded up to a probability with which a random float is below it, exactly.

    Raises:
        ConfigError: clients have too few examples for such a batch.
    """
    share = Fraction(batch_size * num_clients, num_examples)
    if share > 1:
        raise ConfigError(
            f"batch_size = {batch_size}: {num_clients} clients have {num_examples / num_clients:g} "
            "examples on average; give no more"
        )
    return math.ceil(share * _RESOLUTION) / _RESOLUTION


@dataclass(frozen=True, kw_only=True)
class NoisySums:
    """What the steps of one client in one round compute from its examples; all of this is public.

    Each step samples every example on its own, scales each gradient down to the norm ``clip``, adds
    them up with noise N(0, (``noise_multiplier`` ``clip``)^2) in every coordinate, and divides by
    ``batch_size``.

    Attributes:
        steps: how many.
        sampling_rate: the probability that a step takes an example.
        batch_size: what the sums are divided by.
        clip: the largest L2 norm of one example's gradient.
        noise_multiplier: the noise's standard deviation over ``clip``.
    """

    steps: int
    sampling_rate: float
    batch_size: int
    clip: float
    noise_multiplier: float

    @property
    def event(self) -> SampledGaussian:
        """What all steps together release of one example."""
        return SampledGaussian(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.steps,
        )

    def samples(self, client: Client) -> Iterator[NDArray[np.int64]]:
        """Yield the places of each step's examples among the client's own; there may be none."""
        generator = client.stream("batches").generator()
        for _ in range(self.steps):
            yield np.flatnonzero(generator.random(len(client.examples)) < self.sampling_rate)


@dataclass(frozen=True, eq=False)
class PrivateSgd:
    """DP-SGD on a client's examples, cross-entropy loss, with the gradients and noise of Opacus.

    Guarantee: the event of ``sums`` for one example, in idealised real arithmetic. The noise is
    torch's own, so this is for simulation only, and other streams are refused.

    Attributes:
        model: the module to train with; its parameters are overwritten.
        sums: what the steps compute.
        learning_rate: step size.
        device: where to train.
    """

    model: nn.Module
    sums: NoisySums
    learning_rate: float
    device: torch.device

    def __post_init__(self) -> None:
        self.model.to(self.device).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[Vector]:
        """Return the client's weights after training, float32, shape (d,).

        Raises:
            ConfigError: Opacus is not installed, or cannot differentiate the model.
            PrivacyError: the client's stream is not simulated.
        """
        noise = client.stream("mechanism")
        check_simulated("dp_sgd", noise)
        load_weights(self.model, layout_of(self.model), broadcast.weights)
        self._gradients.train()
        optimizer = self._optimizer(noise.torch_generator(self.device))
        features, labels = as_tensors(client.examples)
        with torch_seeded(client.stream("model")):
            for places in map(torch.from_numpy, self.sums.samples(client)):
                optimizer.zero_grad()
                self._differentiate(
                    features.index_select(0, places).to(self.device),
                    labels.index_select(0, places).to(self.device),
                )
                optimizer.step()
        optimizer.zero_grad()
        return Sensitive(read_weights(self.model))

    @cached_property
    def _gradients(self) -> Any:
        opacus = import_extra("opacus", extra="baselines")
        return opacus.GradSampleModule(self.model, loss_reduction="sum")

    def _optimizer(self, generator: torch.Generator) -> Any:
        plain = torch.optim.SGD(self.model.parameters(), lr=self.learning_rate)
        return import_extra("opacus.optimizers", extra="baselines").DPOptimizer(
            plain,
            noise_multiplier=self.sums.noise_multiplier,
            max_grad_norm=self.sums.clip,
            expected_batch_size=self.sums.batch_size,
            generator=generator,
        )

    def _differentiate(self, batch: Tensor, answers: Tensor) -> None:
        """Leave the gradient of every example with the parameters, for the optimiser."""
        parameters: dict[str, Any] = dict(self.model.named_parameters())
        if not len(batch):
            for own in parameters.values():
                own.grad_sample = own.new_zeros(0, *own.shape)
            return
        try:
            # Torch's hooks on the first layer want inputs with a gradient.
            logits = self._gradients(batch.requires_grad_())
            loss = functional.cross_entropy(logits, answers, reduction="sum")
            torch.autograd.backward(loss)
        except Exception as error:  # a user's model may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"model: training it failed: {reason}") from error
        for name, own in parameters.items():
            # A layer that sees an example in several rows would have each of them clipped alone.
            if not isinstance(own.grad_sample, Tensor) or len(own.grad_sample) != len(batch):
                raise ConfigError(
                    f"model: dp_sgd cannot tell the examples' gradients of {name} apart; use every "
                    "layer once, by calling it, with one row for each example"
                )


def check_examples_apart(model: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Refuse a model in which the examples of a batch have to do with each other.

    Gradients of single examples would then depend on the other examples, and clipping each of them
    would bound nothing. It is tried with random weights and examples.

    Args:
        model: takes examples, shape (batch, *input_shape).
        input_shape: of one example.

    Raises:
        ConfigError: the logits of one example change with the others in its batch.
    """

    def stream() -> Stream:
        return Stream.simulation(seed=0, round=0, client=SERVER, purpose="examples apart")

    generator = stream().generator()

    def drawn(*shape: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(shape, np.float32))

    weights = {
        name: drawn(*own.shape) / math.sqrt(math.prod(own.shape[1:]))
        for name, own in model.named_parameters()
    }
    one, others = drawn(1, *input_shape), drawn(2, 3, *input_shape)
    model.train()

    def logits(rest: Tensor) -> Tensor:
        with torch.no_grad(), torch_seeded(stream()):
            answers: Tensor = functional_call(model, weights, (torch.cat([one, rest]),))
        return answers[0]

    if not torch.allclose(logits(others[0]), logits(others[1]), rtol=1e-3, atol=1e-4):
        raise ConfigError(
            "model: in training, what it gives for one example depends on the others in the batch "
            "(a batch norm?), so clipping their gradients protects none; use group norm or no norm"
        )
