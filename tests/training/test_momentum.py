"""SGD with momentum equals torch's: by matrix products, by autograd, and for many clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedldp.data import Examples
from fedldp.models import build_model
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import clients_of, trained
from fedldp.training.batched_sgd import GROUP
from fedldp.training.local_sgd import LocalSgd, batches
from fedldp.training.tensors import load_weights, read_weights

CPU = torch.device("cpu")
SIZES = (14, 9)
EPOCHS, BATCH, RATE = 3, 5, 0.01
KINDS = [("cnn", (1, 28, 28)), ("cnn_32", (1, 28, 28)), ("mlp", (1, 8, 8)), ("vgg", (1, 8, 8))]
"""The first two have a stack of columns; the others have none."""


def data(shape: tuple[int, ...]) -> Examples:
    generator = np.random.default_rng(0)
    features = generator.random((sum(SIZES), *shape)).astype(np.float32)
    return Examples(features, generator.integers(0, 10, sum(SIZES)))


def by_torch(model: nn.Module, start: np.ndarray, client: object, momentum: float) -> np.ndarray:
    """Return the weights that torch's own optimizer computes from a client's batches."""
    from fedldp.models import layout_of_module

    load_weights(model, layout_of_module(model), start)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
    own: Examples = client.examples  # type: ignore[attr-defined]
    order = client.fresh("batches")  # type: ignore[attr-defined]
    for indices in batches(len(own), EPOCHS, BATCH, order):
        logits = model(torch.from_numpy(own.features[indices]))
        optimizer.zero_grad()
        functional.cross_entropy(logits, torch.from_numpy(own.labels[indices])).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return read_weights(model).copy()


@pytest.mark.parametrize(("name", "shape"), KINDS, ids=lambda each: str(each))
def test_every_path_agrees_with_torch(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = build_model(name, shape, 10)
    start = read_weights(model).copy()
    broadcast = Broadcast(round=1, weights=start)
    clients = clients_of(data(shape), SIZES, seed=1)
    step = LocalSgd(model, EPOCHS, BATCH, RATE, CPU, momentum=0.5)
    plain = LocalSgd(build_model(name, shape, 10), EPOCHS, BATCH, RATE, CPU)
    together = step(broadcast, clients, GROUP).open().rows
    oracle = build_model(name, shape, 10)
    for client, row in zip(clients, together, strict=True):
        expected = by_torch(oracle, start, client, 0.5)
        # The momentum of the second client begins at zero, as does that of a client that is asked
        # again.
        for _ in range(2):
            np.testing.assert_allclose(trained(step, broadcast, client), expected, atol=2e-5)
        np.testing.assert_allclose(row, expected, atol=2e-5)
        assert np.abs(trained(plain, broadcast, client) - expected).max() > 1e-3
