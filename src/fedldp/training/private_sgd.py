"""DP-SGD as a local update: every step adds noise to a sum of single examples' clipped gradients.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1. Opacus (Yousefpour et al. 2021) clips, adds the noise and takes the
steps. Opacus itself would apply the model to a whole batch to compute gradients, so a layer that
mixes the examples of a batch would evade the clip. Here torch.func computes the gradients of one
example at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedldp.core.randomness import Stream, torch_seeded
from fedldp.core.registry import import_extra
from fedldp.mechanisms.privunit import check_simulated
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Batch, Client, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training.batched_sgd import (
    Gradients,
    Weights,
    copies,
    descend,
    group_of,
    of_examples,
    padded,
    single_gradients,
    single_gradients_of_many,
    train_alone,
    train_together,
)
from fedldp.training.noisy_sums import NoisySums
from fedldp.training.tensors import as_tensors, load_weights, read_weights

PIECE = 256
"""The number of examples that are differentiated at a time, to bound the memory."""


@dataclass(frozen=True, eq=False)
class PrivateSgd:
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

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights after training, float32, shape (n, d).

        Raises:
            ConfigError: the model cannot be trained on examples one by one, or Opacus is missing;
                or the model draws random numbers, and clients train at once.
            PrivacyError: a client's stream is not simulated.
        """
        if group > 1:
            return self._together(broadcast, batch)
        return train_alone(batch, lambda client: self._train(broadcast, client))

    def _train(self, broadcast: Broadcast, client: Client) -> Vector:
        stream = client.fresh("mechanism")
        check_simulated("dp_sgd", stream)
        layout = layout_of_module(self.model)
        load_weights(self.model, layout, broadcast.weights)
        self.model.train()
        optimizer = self._optimizer(stream)
        features, labels = as_tensors(client.examples)
        samples = self.sums.samples(client.fresh("batches"), len(client.examples))
        with torch_seeded(client.fresh("model")):
            for indices in map(torch.from_numpy, samples):
                pieces = torch.split(indices, PIECE)
                for number, few in enumerate(pieces, 1):
                    batch = features.index_select(0, few).to(self.device)
                    self._set_gradients(batch, labels.index_select(0, few).to(self.device))
                    optimizer.signal_skip_step(number < len(pieces))
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        return read_weights(self.model)

    def _together(self, broadcast: Broadcast, batch: Batch) -> Sensitive[Update]:
        streams = batch.fresh("mechanism")
        for stream in streams:
            check_simulated("dp_sgd", stream)
        sampled = [
            own[few]
            for own, stream in zip(batch.rows, batch.fresh("batches"), strict=True)
            for few in self.sums.samples(stream, len(own))
        ]
        return train_together(
            copies(self.model, broadcast, len(batch), self.device),
            padded(sampled).reshape(len(batch), self.sums.steps, -1),
            of_examples(batch.examples, self.device),
            self._noisy(streams),
            descend(lambda step: self.learning_rate),
        )

    def _noisy(self, streams: Sequence[Stream]) -> Gradients:
        """Return a function that gives one step's noisy sums of several clients, as in Opacus."""
        sums = self.sums
        generators = [stream.torch_generator(self.device) for stream in streams]

        def noise(weight: Tensor) -> Tensor:
            drawn, std = torch.empty_like(weight), sums.noise_multiplier * sums.clip
            for own, generator in zip(drawn, generators, strict=True):
                own.normal_(0.0, std, generator=generator)
            return drawn

        def gradients(weights: Weights, inputs: Tensor, labels: Tensor, taken: Tensor) -> Weights:
            found = {name: torch.zeros_like(own) for name, own in weights.items()}
            if taken.any():
                single = single_gradients_of_many(
                    self.model, weights, inputs, labels, self.class_weights
                )
                finite = {name: _finite(each) for name, each in single.items()}
                norms = torch.stack([each.flatten(2).norm(dim=2) for each in finite.values()], 2)
                factors = (sums.clip / (norms.norm(dim=2) + 1e-6)).clamp(max=1.0) * taken
                found = {
                    name: torch.einsum("nb,nb...->n...", factors, each)
                    for name, each in finite.items()
                }
            return {name: (own + noise(own)) / sums.batch_size for name, own in found.items()}

        return gradients

    def _optimizer(self, stream: Stream) -> Any:
        """Return Opacus's optimizer, which clips, adds up, adds noise and takes the steps."""
        optimizers = import_extra("opacus.optimizers", extra="baselines")
        return optimizers.DPOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=self.learning_rate),
            noise_multiplier=self.sums.noise_multiplier,
            max_grad_norm=self.sums.clip,
            expected_batch_size=self.sums.batch_size,
            # This generator is not cryptographic, because the stream is simulated.
            generator=stream.torch_generator(self.device),
        )

    def _set_gradients(self, batch: Tensor, answers: Tensor) -> None:
        """Set each parameter's gradients of single examples, in the optimizer's format.

        An entry that is not finite is replaced by 0, because no factor could clip it.
        """
        parameters = dict(self.model.named_parameters())
        if not len(batch):
            for own in parameters.values():
                own.grad_sample = own.new_zeros(0, *own.shape)  # type: ignore[attr-defined]
            return
        gradients = single_gradients(self.model, batch, answers, self.class_weights)
        for name, own in parameters.items():
            own.grad_sample = _finite(gradients[name])  # type: ignore[attr-defined]


def _finite(gradients: Tensor) -> Tensor:
    return gradients.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
