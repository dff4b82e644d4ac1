"""Models trained at once in several threads: each draws from its own stream, to the bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedldp.core.randomness import Stream, torch_seeded
from fedldp.training.draws import drawing, draws_by_dropout_alone


def stream(client: int = 0) -> Stream:
    return Stream.simulation(seed=1, round=1, client=client, purpose="model")


def dropping(p: float = 0.5) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.Dropout(p), nn.ReLU(), nn.Flatten(),
        nn.Linear(108, 9), nn.Dropout(p), nn.Linear(9, 2),
    )  # fmt: skip


class Own(nn.Module):
    """A module of a user, which draws as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        flat = values.flatten(1)
        return self.layer(flat + torch.rand(flat.shape))  # type: ignore[no-any-return]


def gradients(model: nn.Module, seeded: Callable[[], Any]) -> list[torch.Tensor]:
    inputs = torch.arange(4 * 64.0).reshape(4, 1, 8, 8) / 256
    found = list[torch.Tensor]()
    for layout in (torch.contiguous_format, torch.channels_last):
        with seeded():
            for _ in range(3):
                outputs = model(inputs.to(memory_format=layout))
                loss = functional.cross_entropy(outputs, torch.tensor([0, 1, 1, 0]))
                found += torch.autograd.grad(loss, list(model.parameters()))
    return found


@pytest.mark.parametrize("p", [0.5, 0.0])
def test_dropout_draws_from_the_stream_alone(p: float) -> None:
    model = dropping(p)
    assert draws_by_dropout_alone(model)
    state = torch.random.get_rng_state()
    one = gradients(model, lambda: torch_seeded(stream()))
    two = gradients(model, lambda: drawing(model, stream()))
    assert all(torch.equal(*pair) for pair in zip(one, two, strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)
    other = gradients(model, lambda: drawing(model, stream(1)))
    same = all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert same == (p == 0)
    model.eval()
    assert torch.equal(gradients(model, lambda: drawing(model, stream()))[0],
                       gradients(model, lambda: drawing(model, stream(1)))[0])  # fmt: skip


def hooked() -> nn.Module:
    model = dropping()
    model[0].register_forward_hook(lambda module, given, output: output + torch.rand(()))  # type: ignore[index,union-attr]
    return model


def patched() -> nn.Module:
    model = nn.Linear(64, 2)
    model.forward = lambda values: torch.rand(len(values), 2)  # type: ignore[method-assign]
    return model


class OwnDropout(nn.Dropout):
    """A dropout of a user, which may draw otherwise."""


@pytest.mark.parametrize(
    "model",
    [Own(), hooked(), patched(), OwnDropout(), nn.RReLU(), nn.AlphaDropout(), nn.Dropout2d(),
     nn.TransformerEncoderLayer(4, 2), nn.LSTM(3, 3), nn.FractionalMaxPool2d(2, 1)],
)  # fmt: skip
def test_what_else_may_draw_is_unknown(model: nn.Module) -> None:
    assert not draws_by_dropout_alone(model)
    assert not draws_by_dropout_alone(nn.Sequential(model, nn.Linear(2, 2)))


@pytest.mark.parametrize(
    ("model", "meanwhile"), [(dropping(), False), (nn.Linear(64, 2), True), (Own(), False)]
)
def test_two_threads_train_at_once_where_the_draws_are_known(
    model: nn.Module, meanwhile: bool
) -> None:
    """Whether they may or not, each draws what it draws alone."""
    inputs = torch.rand(5, 1, 8, 8) if not isinstance(model, nn.Linear) else torch.rand(5, 64)

    def outputs() -> torch.Tensor:
        with torch.no_grad():
            return model(inputs)  # type: ignore[no-any-return]

    alone = list[list[torch.Tensor]]()
    for place in range(2):
        with drawing(model, stream(place)):
            alone.append([outputs(), outputs()])
    found: dict[int, list[torch.Tensor]] = {}
    first, second = threading.Event(), threading.Event()

    def train(place: int) -> None:
        with drawing(model, stream(place)):
            own = [outputs()]
            if place == 0:
                first.set()
                second.wait(0.3)
            else:
                second.set()
            found[place] = [*own, outputs()]

    thread = threading.Thread(target=train, args=(0,))
    thread.start()
    first.wait()
    assert not second.is_set()
    other = threading.Thread(target=train, args=(1,))
    other.start()
    other.join(0.2)
    assert second.is_set() == meanwhile
    thread.join()
    other.join()
    for place in range(2):
        assert all(torch.equal(*pair) for pair in zip(found[place], alone[place], strict=True))


def test_a_loss_that_may_draw_waits() -> None:
    model, seen = nn.Linear(64, 2), list[bool]()
    for other_code in (False, True):
        state = torch.random.get_rng_state()
        with drawing(model, stream(), other_code=other_code):
            seen.append(torch.equal(torch.random.get_rng_state(), state))
    assert seen == [True, False]
