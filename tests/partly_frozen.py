"""Partly frozen models as users write them, for tests."""

import math

import torch
from torch import nn


class Normed(nn.Module):
    """A frozen encoder with batch norm and dropout, and a trained head."""

    def __init__(self, shape, classes, shift=0.0):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(shape), 20), nn.BatchNorm1d(20), nn.Dropout(0.5)
        )
        self.encoder[1].bias.data += shift
        self.head = nn.Linear(20, classes)
        self.encoder.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


normed = Normed


def another_encoder(shape, classes):
    return Normed(shape, classes, shift=0.25)


class Centred(nn.Module):
    """A layer that subtracts a running mean, which zeros do not change, before a trained layer."""

    def __init__(self, shape, classes):
        super().__init__()
        self.layer = nn.Linear(math.prod(shape), classes)
        self.register_buffer("mean", torch.zeros(math.prod(shape)))

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.layer(x - self.mean)


centred = Centred


def trained_norm(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(math.prod(shape)), nn.Linear(64, classes))


class Adapted(nn.Module):
    """A frozen dense layer with a low-rank adapter and a constant that is not saved."""

    def __init__(self, shape, classes):
        super().__init__()
        self.dense = nn.Linear(math.prod(shape), classes)
        self.lora_a = nn.Linear(math.prod(shape), 2, bias=False)
        self.lora_b = nn.Linear(2, classes, bias=False)
        nn.init.zeros_(self.lora_b.weight)
        self.register_buffer("scale", torch.rand(1), persistent=False)

    def forward(self, x):
        x = x.flatten(1)
        return self.dense(x) + self.lora_b(self.lora_a(x)) * (1 + self.scale)


adapted = Adapted


class OwnShared(nn.Module):
    """A frozen layer that is used twice, between trained layers."""

    def __init__(self, shape, classes):
        super().__init__()
        self.first = nn.Linear(math.prod(shape), 16)
        self.middle = nn.Linear(16, 16)
        self.again = nn.Linear(16, 16)
        self.again.weight = self.middle.weight
        self.last = nn.Linear(16, classes)

    def forward(self, x):
        return self.last(self.again(torch.relu(self.middle(self.first(x.flatten(1))))))


shared = OwnShared
