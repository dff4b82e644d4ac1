"""Torch modules of single layers that torch does not have. Importing this file imports torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_RATE = 0.1
_LEAST_VARIANCE = 1e-5


class BatchNormOfParameters(nn.Module):
    """Batch norm of images, whose running means and variances are parameters, not buffers.

    So all that looks at parameters (layout, ranges, mechanism, statement) includes them. Training
    updates them as torch's ``BatchNorm2d`` does, and no gradient reaches them. A variance that
    noise made negative counts as 0.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(make(channels)) for make in (torch.ones, torch.zeros)
        )
        self.running_mean = nn.Parameter(torch.zeros(channels))
        self.running_var = nn.Parameter(torch.ones(channels))

    def forward(self, values: Tensor) -> Tensor:
        """Return normalised values: by the batch in training, by the statistics in tests."""
        mean, variance = self.running_mean.detach(), self.running_var.detach()
        return functional.batch_norm(
            values,
            mean,
            variance if self.training else variance.clamp(min=0),
            self.weight,
            self.bias,
            self.training,
            _RATE,
            _LEAST_VARIANCE,
        )


class DropoutInTests(nn.Dropout):
    """Dropout that also drops values in tests, from a generator of its own with a fixed seed.

    So a score depends on no other draw, whichever process tests which part of the examples.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the values that are kept, divided by the probability to be kept."""
        if self.training:
            return super().forward(values)
        generator = torch.Generator(values.device).manual_seed(0)  # noqa: TID251  # what tests drop
        kept = torch.rand(values.shape, generator=generator, device=values.device) >= self.p  # noqa: TID251
        return values * kept / (1 - self.p)
