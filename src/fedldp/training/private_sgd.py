"""DP-SGD as a local update: every step adds noise to a sum of single examples' clipped gradients.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1. torch.func computes the gradients of one example at a time, so that
no layer that mixes the examples of a batch can evade the clip. A step clips, adds noise and divides
by the operations of Opacus (Yousefpour et al. 2021), in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedldp.core.randomness import Stream, torch_seeded
from fedldp.mechanisms.privunit import check_simulated
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Batch, Client, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training.batched_sgd import (
    OneByOne,
    Weights,
    descend,
    group_of,
    joined,
    of_examples,
    padded,
    single_gradients,
    train_together,
)
from fedldp.training.noisy_sums import NoisySums
from fedldp.training.tensors import as_tensors, load_weights, read_weights

PIECE = 256
"""The number of examples that are differentiated at a time, to bound the memory."""


@dataclass(frozen=True, eq=False)
class PrivateSgd(OneByOne):
    """DP-SGD on a client's examples, with cross-entropy loss.

    Guarantee: the event of ``sums`` for one example, in idealised real arithmetic. The model sees
    each example alone, so no gradient depends on another example, whatever the model does with
    batches. The noise is rounded to floats, so this is for simulation only, and streams that are
    not simulated are refused.

    Attributes:
        model: the module to train with; its parameters are overwritten.
        sums: the specification of what the steps compute.
        learning_rate: step size.
        device: where to train.
        class_weights: a factor for each class on an example's gradient, before it is clipped.
    """

    model: nn.Module
    sums: NoisySums
    learning_rate: float
    device: torch.device
    class_weights: Tensor | None = None

    def __post_init__(self) -> None:
        self.model.to(self.device)

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``batched_sgd``."""
        return group_of(self.model, self.device, min(self.sums.batch_size, most_examples))

    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after training, float32, shape (d,).

        Raises:
            ConfigError: the model cannot be trained on examples one by one.
            PrivacyError: the client's stream is not simulated.
        """
        noisy, sums = self._noisy([client.fresh("mechanism")]), self.sums
        load_weights(self.model, layout_of_module(self.model), broadcast.weights)
        self.model.train()
        weights = {name: own.detach()[None] for name, own in self.model.named_parameters()}
        advance = descend(lambda step: self.learning_rate)
        features, labels = as_tensors(client.examples)
        samples = sums.samples(client.fresh("batches"), len(client.examples))
        with torch_seeded(client.fresh("model")):
            for step, sample in enumerate(map(torch.from_numpy, samples)):
                found = {name: torch.zeros_like(own) for name, own in weights.items()}
                for few in filter(len, torch.split(sample, PIECE)):
                    batch = features.index_select(0, few).to(self.device)
                    answers = labels.index_select(0, few).to(self.device)
                    single = single_gradients(self.model, batch, answers, self.class_weights)
                    taken = torch.ones(1, len(few), device=self.device)
                    clipped = self._clipped({n: each[None] for n, each in single.items()}, taken)
                    found = {name: own + clipped[name] for name, own in found.items()}
                advance(step, weights, noisy(found))
        return read_weights(self.model)

    def together(self, broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        """Return the weights of clients that train at once; see ``train``.

        Raises:
            ConfigError: as for ``train``; or the model draws random numbers.
        """
        noisy = self._noisy(batch.fresh("mechanism"))
        sampled = [
            own[few]
            for own, stream in zip(batch.rows, batch.fresh("batches"), strict=True)
            for few in self.sums.samples(stream, len(own))
        ]

        def gradients(weights: Weights, inputs: Tensor, labels: Tensor, taken: Tensor) -> Weights:
            found = {name: torch.zeros_like(own) for name, own in weights.items()}
            if taken.any():
                single = single_gradients(self.model, inputs, labels, self.class_weights, weights)
                found = self._clipped(single, taken)
            return noisy(found)

        return train_together(
            joined(self.model, broadcast, len(batch), self.device),
            padded(sampled).reshape(len(batch), self.sums.steps, -1),
            of_examples(batch.examples, self.device),
            gradients,
            descend(lambda step: self.learning_rate),
        )

    def _clipped(self, single: Weights, taken: Tensor) -> Weights:
        """Return each client's sum of the gradients of the examples that are ``taken``, clipped.

        An entry that is not finite is replaced by 0, because no factor could clip it.
        """
        finite = {n: each.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for n, each in single.items()}
        norms = torch.stack([each.flatten(2).norm(dim=2) for each in finite.values()], 2)
        factors = (self.sums.clip / (norms.norm(dim=2) + 1e-6)).clamp(max=1.0) * taken
        return {n: torch.einsum("nb,nb...->n...", factors, each) for n, each in finite.items()}

    def _noisy(self, streams: Sequence[Stream]) -> Callable[[Weights], Weights]:
        """Return a function that adds noise to several clients' sums, and divides them.

        Raises:
            PrivacyError: a stream is not simulated; its generator would not be cryptographic.
        """
        for stream in streams:
            check_simulated("dp_sgd", stream)
        sums = self.sums
        generators = [stream.torch_generator(self.device) for stream in streams]

        def noise(weight: Tensor) -> Tensor:
            drawn, std = torch.empty_like(weight), sums.noise_multiplier * sums.clip
            for own, generator in zip(drawn, generators, strict=True):
                own.normal_(0.0, std, generator=generator)
            return drawn

        return lambda found: {n: (own + noise(own)) / sums.batch_size for n, own in found.items()}
