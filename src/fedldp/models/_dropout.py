"""A torch module of one layer. Importing this file imports torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DropoutInTests(nn.Dropout):
    """Dropout that also drops values in tests, from a generator of its own with a fixed seed.

    So a score depends on no other draw, whichever process tests which part of the examples.
    """

    def forward(self, values: Tensor) -> Tensor:
        """Return the values that are kept, divided by the probability to be kept."""
        if self.training:
            return super().forward(values)
        generator = torch.Generator(values.device).manual_seed(0)
        kept = torch.rand(values.shape, generator=generator, device=values.device) >= self.p
        return values * kept / (1 - self.p)
