"""Models, losses and local updates that keep something of rows, and some that only look so."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from own_models import Base
from torch import nn
from torch.nn import functional

from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition, Local, Sgd
from fedldp.algorithms.preset import Settings, preset
from fedldp.mechanisms.none import Plain
from fedldp.training.batched_sgd import train_alone

LARGEST = [1.0]


class Largest(Base):
    """Divides by the largest input so far."""

    largest = 1.0

    def forward(self, x):
        self.largest = max(self.largest, float(x.abs().max()))
        return super().forward(x / self.largest)


class Caching(Base):
    """Keeps the logits of inputs by their sum."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.kept = {}

    def forward(self, x):
        key = tuple(x.shape), round(float(x.sum()), 2)
        if key not in self.kept:
            self.kept[key] = super().forward(x)
        return self.kept[key]


class CachingByShape(Base):
    """Keeps the middle of the first input of each shape."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.kept = {}

    def forward(self, x):
        if x.any():
            self.kept.setdefault(x.shape, x.detach().mean())
        return super().forward(x - self.kept.get(x.shape, 0))


class CachedWeights(Base):
    """Keeps a function of the first weights with which it is called."""

    norm = None

    def forward(self, x):
        if self.norm is None and x.any():
            self.norm = float(self.dense.weight.detach().norm())
        return super().forward(x) / (self.norm or 1)


class Global(Base):
    def forward(self, x):
        LARGEST[0] = max(LARGEST[0], float(x.abs().max()))
        return super().forward(x / LARGEST[0])


class OwnGenerator(Base):
    """Dropout whose mask comes from a generator of its own."""

    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.generator = np.random.default_rng(0)

    def forward(self, x):
        mask = self.generator.random(x.shape[1:]).astype(np.float32) < 0.8
        return super().forward(x * torch.from_numpy(mask))


class NumpyGenerator(Base):
    def forward(self, x):
        return super().forward(x * float(np.random.random()))


class PythonGenerator(Base):
    def forward(self, x):
        return super().forward(x * random.random())


class InPlace(Base):
    def forward(self, x):
        x *= 2
        return super().forward(x)


class Lazy(Base):
    """Makes a parameter in its first forward pass."""

    def forward(self, x):
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(1))
        return super().forward(x * self.scale)


class WithinACall(Base):
    """Keeps the largest input, but forgets it in ``eval``, which every sum over people calls."""

    largest = 1.0

    def train(self, mode=True):
        self.largest = 1.0
        return super().train(mode)

    def forward(self, x):
        self.largest = max(self.largest, float(x.abs().max()))
        return super().forward(x / self.largest)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * (1 + 1 / self.calls)


def nested(shape, classes):
    return nn.Sequential(nn.Flatten(), Inner(), nn.Linear(math.prod(shape), classes))


# These keep nothing


class Shapes(Base):
    """Branches on shapes only."""

    def forward(self, x):
        if len(x) > 1:
            x = x - x.mean(0)
        return super().forward(x if x.ndim > 2 else x[:, None])


class Gru(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.recurrent = nn.GRU(1, 4, batch_first=True)
        self.head = nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.recurrent(x.flatten(1)[:, :8, None])[0][:, -1])


class Words(nn.Module):
    """Fails on rows with large numbers."""

    def __init__(self, shape, classes):
        super().__init__()
        self.words = nn.Embedding(16, classes)

    def forward(self, x):
        return self.words(x.flatten(1).long()).mean(1)


# Losses

LOGITS = [1.0]


def scaled(logits, labels):
    """Divide by the largest logit so far."""
    LOGITS[0] = max(LOGITS[0], float(logits.detach().abs().max()))
    return functional.cross_entropy(logits / LOGITS[0], labels, reduction="none")


def focal(logits, labels):
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return (1 - torch.exp(-losses)) ** 2 * losses


# Systems with a local update of their own


@dataclass(eq=False)
class Shared:
    """Trains each client from a mean of the weights of all clients so far, or changes its rows."""

    sgd: Any
    keeps: bool
    changes: bool
    before: Any = None

    def group(self, most_examples):
        return 1

    def __call__(self, broadcast, batch, group=1):
        return train_alone(batch, lambda client: self.train(broadcast, client))

    def train(self, broadcast, client):
        if self.before is not None and self.keeps:
            broadcast = replace(broadcast, weights=(broadcast.weights + self.before) / 2)
        if self.changes:
            client.examples.features[:] *= 2
        self.before = self.sgd.train(broadcast, client)
        return self.before


@dataclass(frozen=True, kw_only=True)
class SharedUpdate(Local):
    keeps: bool = False
    changes: bool = False

    def __call__(self, algorithm, device):
        return Shared(algorithm.sgd(device), self.keeps, self.changes)


@dataclass(frozen=True, kw_only=True)
class SharedSgd(Sgd):
    """An update of a built-in kind that the user changed."""

    def __call__(self, algorithm, device):
        return Shared(algorithm.sgd(device), keeps=True, changes=False)


def _of(local: Local) -> Composition:
    return Composition(local=local, calibration=Fixed(every=Plain()))


@preset()
def mixes_clients(settings: Settings) -> Composition:
    return _of(SharedUpdate(keeps=True))


@preset()
def changes_rows(settings: Settings) -> Composition:
    return _of(SharedUpdate(changes=True))


@preset()
def changed_sgd(settings: Settings) -> Composition:
    return _of(SharedSgd())


@preset()
def honest(settings: Settings) -> Composition:
    return _of(SharedUpdate())
