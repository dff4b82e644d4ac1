"""Models as users write them: some can be federated, and some cannot."""

import math
from itertools import pairwise

import torch
from torch import nn


def dense(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


class Base(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.dense = nn.Linear(math.prod(shape), classes)

    def forward(self, x):
        return self.dense(x.flatten(1))


good = Base


def dropout(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(math.prod(shape), classes))


def tied(shape, classes):
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
    model[3].weight = model[1].weight
    return model


def batch_norm(shape, classes):
    return nn.Sequential(dense(shape, classes), nn.BatchNorm1d(classes))


class HiddenBuffer(Base):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.register_buffer("seen", torch.zeros(3), persistent=False)


class WithParameter(Base):
    def __init__(self, shape, classes, parameter):
        super().__init__(shape, classes)
        self.extra = parameter

    def forward(self, x):
        return super().forward(x) + self.extra.sum().to(torch.float32)


def zero_d(shape, classes):
    return WithParameter(shape, classes, nn.Parameter(torch.tensor(0.5)))


def nan_start(shape, classes):
    return WithParameter(shape, classes, nn.Parameter(torch.tensor([float("nan")])))


def double(shape, classes):
    return dense(shape, classes).double()


def frozen(shape, classes):
    return WithParameter(shape, classes, nn.Parameter(torch.zeros(2), requires_grad=False))


class Unused(Base):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.extra = nn.Parameter(torch.zeros(2))


class Detached(Base):
    def forward(self, x):
        return super().forward(x).detach()


def lazy(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


def too_many_classes(shape, classes):
    return dense(shape, classes + 1)


class Pair(Base):
    def forward(self, x):
        return super().forward(x), x


def other_shape(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(7, classes))


def raising(shape, classes):
    raise RuntimeError("first line\nsecond line")


class RaisingForward(Base):
    def forward(self, x):
        raise RuntimeError("first line\nsecond line")


class RaisingInTraining(Base):
    def forward(self, x):
        if torch.is_grad_enabled():
            raise RuntimeError("first line\nsecond line")
        return super().forward(x)


class PairInTesting(Base):
    def forward(self, x):
        logits = super().forward(x)
        return logits if self.training else (logits, x)


class RaisingOnTests(Base):
    def forward(self, x):
        if not self.training and x.any():
            raise RuntimeError("first line\nsecond line")
        return super().forward(x)


class RaisingOnLargeBatches(Base):
    def forward(self, x):
        if len(x) == 286:
            raise RuntimeError("first line\nsecond line")
        return super().forward(x)


def batch_of_one(shape, classes):
    return nn.Sequential(dense(shape, classes), nn.BatchNorm1d(classes, track_running_stats=False))


def no_parameters(shape, classes):
    return nn.Flatten()


# For DP-SGD, which needs per-example gradients


def own_parameter(shape, classes):
    return WithParameter(shape, classes, nn.Parameter(torch.ones(3)))


class Mixing(Base):
    def forward(self, x):
        return super().forward(x - x.mean(0))


mixing = Mixing


def silent_batch_norm(shape, classes):
    norm = nn.BatchNorm2d(shape[0], track_running_stats=False)
    return nn.Sequential(norm, dense(shape, classes))


class SeveralRows(nn.Module):
    """Passes each row of an image through the layer as if it were an example."""

    def __init__(self, shape, classes):
        super().__init__()
        self.dense = nn.Linear(shape[-1], classes)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return self.dense(rows).reshape(len(x), -1, self.dense.out_features).mean(1)


several_rows = SeveralRows


class Branching(Base):
    def forward(self, x):
        return super().forward(x) * (2 if x.sum() > 0 else 1)


branching = Branching


def deep(shape, classes):
    """Large weights soon turn every nonzero input into infinity."""
    sizes = [math.prod(shape), *[4] * 7, classes]
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
    return nn.Sequential(nn.Flatten(), *layers)
