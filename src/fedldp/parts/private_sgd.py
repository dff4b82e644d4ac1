"""DP-SGD as a client step: every step adds noise to a sum of clipped gradients of single examples.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1. Opacus (Yousefpour et al. 2021) clips, adds the noise and takes the
steps. It is given gradients that torch.func took of one example at a time, for its own way has the
model see a batch, and what mixes the examples of a batch would then escape the clip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedldp.mechanisms.privunit import check_simulated
from fedldp.models import layout_of_module
from fedldp.parts.local_sgd import as_tensors, load_weights, read_weights
from fedldp.parts.noisy_sums import NoisySums
from fedldp.parts.sides import Client
from fedldp.parts.single_gradients import single_gradients
from fedldp.randomness import Stream, torch_seeded
from fedldp.registry import import_extra
from fedldp.wire import Broadcast, Sensitive, Vector

PIECE = 256
"""Examples differentiated at a time, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class PrivateSgd:
    """DP-SGD on a client's examples, cross-entropy loss.

    Guarantee: the event of ``sums`` for one example, in idealised real arithmetic. The model sees
    each example alone, so no gradient depends on another one's example, whatever the model does
    with batches. The noise is rounded to floats, so this is for simulation only, and other streams
    are refused.

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
        self.model.to(self.device)

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[Vector]:
        """Return the client's weights after training, float32, shape (d,).

        Raises:
            ConfigError: the model cannot be trained on examples one by one, or Opacus is missing.
            PrivacyError: the client's stream is not simulated.
        """
        stream = client.fresh("mechanism")
        check_simulated("dp_sgd", stream)
        layout = layout_of_module(self.model)
        load_weights(self.model, layout, broadcast.weights)
        self.model.train()
        optimizer = self._optimizer(stream)
        features, labels = as_tensors(client.examples)
        with torch_seeded(client.fresh("model")):
            for indices in map(torch.from_numpy, self.sums.samples(client)):
                pieces = torch.split(indices, PIECE)
                for number, few in enumerate(pieces, 1):
                    batch = features.index_select(0, few).to(self.device)
                    self._set_gradients(batch, labels.index_select(0, few).to(self.device))
                    optimizer.signal_skip_step(number < len(pieces))
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)
        return Sensitive(read_weights(self.model))

    def _optimizer(self, stream: Stream) -> Any:
        """Return Opacus's optimizer, which clips, adds up, adds noise and takes the steps."""
        optimizers = import_extra("opacus.optimizers", extra="baselines")
        return optimizers.DPOptimizer(
            torch.optim.SGD(self.model.parameters(), lr=self.learning_rate),
            noise_multiplier=self.sums.noise_multiplier,
            max_grad_norm=self.sums.clip,
            expected_batch_size=self.sums.batch_size,
            # Not cryptographic: the stream is simulated.
            generator=stream.torch_generator(self.device),
        )

    def _set_gradients(self, batch: Tensor, answers: Tensor) -> None:
        """Give each parameter its gradients of single examples, where the optimizer takes them.

        What is not finite counts as 0, for no factor would clip it.
        """
        parameters = dict(self.model.named_parameters())
        if not len(batch):
            for own in parameters.values():
                own.grad_sample = own.new_zeros(0, *own.shape)  # type: ignore[attr-defined]
            return
        gradients = single_gradients(self.model, batch, answers)
        for name, own in parameters.items():
            finite = gradients[name].nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            own.grad_sample = finite  # type: ignore[attr-defined]
