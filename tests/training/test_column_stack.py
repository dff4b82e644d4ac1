"""SGD by matrix products agrees with autograd up to float rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedldp.data import Examples
from fedldp.models import build_model
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import client_of, trained
from fedldp.training.column_stack import KEPT, ColumnStack, as_columns, layers_of
from fedldp.training.local_sgd import (
    LocalSgd,
    gradients,
    read_weights,
)

GREY = (1, 28, 28)


def uneven() -> nn.Sequential:
    """Return a network with different sides, whose pooling leaves values out."""
    return nn.Sequential(
        *(nn.Conv2d(2, 7, (3, 4)), nn.MaxPool2d(3), nn.ReLU()),
        *(nn.Conv2d(7, 5, (2, 1)), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
        *(nn.Flatten(), nn.Linear(20, 6)),
    )


def examples(shape: tuple[int, ...], number: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return images whose background has one value, as in digits, so that many windows are
    equal."""
    features = torch.randn(number, *shape).clamp_min(0.4)
    return features, torch.randint(0, classes, (number,))


@pytest.mark.parametrize(
    ("make", "shape", "classes", "size"),
    [
        (lambda: build_model("cnn", GREY, 10), GREY, 10, 10),
        (uneven, (2, 19, 17), 6, 3),
        (lambda: build_model("cnn", GREY, 10), GREY, 10, 1),
    ],
)
def test_a_step_is_that_of_autograd(
    make: Callable[[], nn.Module], shape: tuple[int, ...], classes: int, size: int
) -> None:
    torch.manual_seed(0)
    model = make()
    parameters: list[Tensor] = list(model.parameters())
    stack = ColumnStack.of(model, shape, 10)
    assert stack is not None
    features, labels = examples(shape, 12, classes)
    stack.load(parameters)
    for _ in range(4):
        indices = torch.randperm(12)[:size]
        found = gradients(model, features[indices], labels[indices], parameters)
        before = [p.detach().clone() for p in parameters]
        stack.step(as_columns(features), labels, indices, 0.5)
        stack.store(parameters)
        for old, new, slope in zip(before, parameters, found, strict=True):
            scale = float(slope.abs().max())
            torch.testing.assert_close((old - new) / 0.5, slope, rtol=0, atol=1e-5 * scale + 1e-6)


@pytest.mark.parametrize("number", [0, 4, 25])
def test_local_sgd_agrees_with_and_without_a_stack(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    torch.manual_seed(1)
    model = build_model("cnn", GREY, 10)
    features, labels = examples(GREY, number, 10)
    client = client_of(Examples(features.numpy(), labels.numpy()))
    broadcast = Broadcast(round=1, weights=read_weights(model))
    step = LocalSgd(model, 2, 10, 0.05, torch.device("cpu"))
    fast = trained(step, broadcast, client)
    monkeypatch.setattr(ColumnStack, "of", lambda *_: None)
    plain = LocalSgd(model, 2, 10, 0.05, torch.device("cpu"))
    slow = trained(plain, broadcast, client)
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-5)
    assert (number == 0) == np.array_equal(fast, broadcast.weights)


class Own(nn.Sequential):
    """A user's own optimizer, which may do anything."""


def convolution(
    first: nn.Module | None = None, pool: nn.Module | None = None, relu: nn.Module | None = None
) -> nn.Sequential:
    return nn.Sequential(
        *(first or nn.Conv2d(1, 4, 5), pool or nn.MaxPool2d(2), relu or nn.ReLU()),
        *(nn.Flatten(), nn.Linear(576, 10)),
    )


def hooked() -> nn.Module:
    model = convolution()
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 2,))
    return model


def hooked_within() -> nn.Module:
    model = convolution()
    model[0].register_forward_hook(lambda module, inputs, output: output * 2)
    return model


def with_a_layer_twice() -> nn.Module:
    relu, dense = nn.ReLU(), nn.Linear(10, 10)
    return nn.Sequential(*convolution(), relu, dense, relu, dense)


@pytest.mark.parametrize(
    "model",
    [
        hooked(),
        hooked_within(),
        with_a_layer_twice(),
        Own(*convolution()),
        nn.Sequential(convolution()),
        nn.Sequential(*convolution(), nn.ReLU()),
        nn.Sequential(*list(convolution())[:-1]),
        nn.Sequential(*list(convolution())[:-2]),
        nn.Sequential(*list(convolution())[:-1], nn.Linear(500, 10)),
        nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
        convolution(nn.Conv2d(1, 4, 5, padding=1)),
        convolution(nn.Conv2d(1, 4, 5, stride=2)),
        convolution(nn.Conv2d(1, 4, 5, bias=False)),
        convolution(nn.Conv2d(1, 4, 3, dilation=2)),
        convolution(nn.Conv2d(1, 64, 5)),
        convolution(nn.Conv2d(1, 4, 30)),
        convolution(nn.Conv2d(2, 4, 5)),
        convolution(pool=nn.MaxPool2d(2, stride=1)),
        convolution(pool=nn.MaxPool2d(2, ceil_mode=True)),
        convolution(pool=nn.MaxPool2d(3, padding=1)),
        convolution(pool=nn.MaxPool2d((2, 1))),
        convolution(pool=nn.AvgPool2d(2)),
        convolution(relu=nn.Tanh()),
        convolution(relu=nn.Dropout()),
    ],
)
def test_every_other_network_is_left_to_autograd(model: nn.Module) -> None:
    assert layers_of(model, GREY, 10) is None


@pytest.mark.parametrize(("batch_size", "known"), [(20, True), (50, False)])
def test_windows_that_do_not_fit_the_cache_are_left_to_autograd(
    batch_size: int, known: bool
) -> None:
    model = build_model("cnn", GREY, 10)
    assert (layers_of(model, GREY, batch_size) is not None) == known


def test_memory_is_kept_for_few_sizes_of_batches() -> None:
    """A client's last batch may have any size below that of the others."""
    stack = ColumnStack.of(convolution(), GREY, 10)
    assert stack is not None
    features, labels = examples(GREY, 10, 10)
    for size in range(1, 11):
        stack.step(as_columns(features), labels, torch.arange(size), 0.1)
    assert stack._runs.cache_info().currsize == KEPT
