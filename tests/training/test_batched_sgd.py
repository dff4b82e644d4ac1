"""SGD for many clients at once: batches, orders, clients with fewer steps, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset
from fedldp.models import build_model
from fedldp.protocol.roles import Batch
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import clients_of, trained
from fedldp.training.batched_sgd import GROUP, epochs_of, joined, mean_gradients
from fedldp.training.local_sgd import LocalSgd, batches
from fedldp.training.tensors import read_weights

SIZES = (14, 3, 20)
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["mlp", "vgg"])
@pytest.mark.parametrize("batch_size", [5, 20])
def test_training_in_a_batch_agrees_with_training_alone(name: str, batch_size: int) -> None:
    torch.manual_seed(0)
    model = build_model(name, (1, 8, 8), 10)
    step = LocalSgd(model, 2, batch_size, 0.1, CPU)
    broadcast = Broadcast(round=1, weights=read_weights(model))
    clients = clients_of(load_dataset("digits").train, SIZES, seed=1)
    together = step(broadcast, clients, GROUP).open().rows
    for client, row in zip(clients, together, strict=True):
        alone = trained(step, broadcast, client)
        np.testing.assert_allclose(row, alone, atol=2e-5)
        assert np.abs(alone - broadcast.weights).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "mlp"])
@pytest.mark.parametrize("batch_size", [4, 6])
def test_groups_of_any_size_give_clients_with_equally_many_examples_the_same_bits(
    name: str, batch_size: int
) -> None:
    model = build_model(name, (1, 8, 8), 10)
    step = LocalSgd(model, 2, batch_size, 0.1, CPU, 0.5, gradient_clip=1.0, weight_decay=0.1)
    broadcast = Broadcast(round=1, weights=read_weights(model))
    clients = clients_of(load_dataset("digits").train, (6,) * 200)
    together, few = (
        np.concatenate(
            [
                step(broadcast, part, size).open().rows
                for part in (part_of(clients, slice(at, at + size)) for at in range(0, 200, size))
            ]
        )
        for size in (200, 64)
    )
    assert len(np.unique(together, axis=0)) == 200
    np.testing.assert_array_equal(together, few)


def part_of(batch: Batch, few: slice) -> Batch:
    """Return some clients of a batch."""
    return replace(
        batch,
        indices=batch.indices[few],
        rows=batch.rows[few],
        fresh=lambda purpose: batch.fresh(purpose)[few],
    )


@pytest.mark.parametrize("clients", [1, 3, 64])
@pytest.mark.parametrize("examples", [1, 6, 32])
def test_the_gradients_of_one_layer_are_those_of_autograd(clients: int, examples: int) -> None:
    """Class weights of 1 change no number, and leave the gradients to autograd."""
    generator = torch.Generator().manual_seed(clients)
    model = nn.Sequential(nn.Flatten(), nn.Linear(54, 7))
    model.requires_grad_(False)
    broadcast = Broadcast(round=1, weights=read_weights(model))
    weights = joined(model, broadcast, clients, CPU)
    weights.rows += 0.1 * torch.randn(weights.rows.shape, generator=generator)
    inputs = torch.rand(clients, examples, 1, 54, generator=generator)
    labels = torch.randint(7, (clients, examples), generator=generator)
    taken = torch.rand(clients, examples, generator=generator) > 0.2
    found, expected = (
        mean_gradients(model, each)(weights, inputs, labels, taken)
        for each in (None, torch.ones(7))
    )
    assert found.keys() == expected.keys() == weights.keys()
    for name in weights:
        torch.testing.assert_close(found[name], expected[name])


def streams(count: int) -> list[Stream]:
    return [Stream.simulation(seed=3, round=1, client=n, purpose="batches") for n in range(count)]


def test_batches_are_those_of_one_client_alone() -> None:
    rows = [np.arange(100, 114), np.arange(3), np.arange(50, 70)]
    found, steps = epochs_of(rows, 3, 5, lambda: streams(3))
    assert found.shape == (3, 12, 5)
    assert steps.tolist() == [9, 3, 12]
    for own, chosen, stream in zip(rows, found, streams(3), strict=True):
        expected = [own[indices] for indices in batches(len(own), 3, 5, stream)]
        for number, batch in enumerate(chosen):
            taken = expected[number] if number < len(expected) else []
            assert batch[batch >= 0].tolist() == list(taken)


def test_if_a_batch_holds_all_examples_no_order_is_drawn() -> None:
    rows = [np.arange(4), np.arange(4, 7)]
    found, steps = epochs_of(rows, 2, 4, lambda: pytest.fail("drawn"))
    assert steps.tolist() == [2, 2]
    assert found.tolist() == [[[0, 1, 2, 3]] * 2, [[4, 5, 6, -1]] * 2]


def test_a_client_without_examples_keeps_its_weights() -> None:
    model = build_model("logistic", (1, 8, 8), 10)
    step = LocalSgd(model, 1, 5, 0.1, CPU)
    broadcast = Broadcast(round=1, weights=read_weights(model))
    train = load_dataset("digits").train
    clients = clients_of(train, (6, 6))
    rows = [np.zeros(0, np.int64), clients.rows[1]]
    some = step.train_together(broadcast, clients, rows, lambda step: 0.1).open().rows
    assert some[0].tobytes() == broadcast.weights.tobytes()
    assert np.abs(some[1] - broadcast.weights).max() > 1e-3
    none = step.train_together(broadcast, clients, rows[:1] * 2, lambda step: 0.1).open().rows
    assert none.tobytes() == broadcast.weights.tobytes() * 2


def test_an_overflow_of_one_client_affects_no_other() -> None:
    train = load_dataset("digits").train
    features = train.features[:12].copy()
    features[:6] = 3e38
    model = build_model("logistic", (1, 8, 8), 10)
    step = LocalSgd(model, 2, 4, 0.1, CPU)
    broadcast = Broadcast(round=1, weights=read_weights(model))
    clients = clients_of(Examples(features, train.labels[:12]), (6, 6))
    rows = [clients.rows[0], clients.rows[1][:3]]  # the second client has fewer steps
    found = step.train_together(broadcast, clients, rows, lambda step: 0.1).open().rows
    assert not np.isfinite(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_a_model_with_dropout_is_refused_on_a_gpu_and_trains_alone_elsewhere() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    step = LocalSgd(model, 1, 5, 0.1, CPU)
    assert step.group(5) == 1
    broadcast = Broadcast(round=1, weights=read_weights(model))
    with pytest.raises(ConfigError, match="--device cpu"):
        step(broadcast, clients_of(load_dataset("digits").train, SIZES), GROUP)


SHARED = nn.ReLU()


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 0.5,))
    return model


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), SHARED, nn.Linear(16, 16), SHARED, nn.Linear(16, 10)
        ),
        hooked(),
    ],
    ids=["a module twice", "a hook"],
)
def test_a_model_that_is_not_a_plain_stack_is_trained_unchanged(model: nn.Module) -> None:
    step = LocalSgd(model, 1, 5, 0.1, CPU)
    broadcast = Broadcast(round=1, weights=read_weights(model))
    clients = clients_of(load_dataset("digits").train, (6, 8))
    for client, row in zip(clients, step(broadcast, clients, GROUP).open().rows, strict=True):
        np.testing.assert_allclose(row, trained(step, broadcast, client), atol=2e-5)
