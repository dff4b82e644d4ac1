"""Clients that train at once get the weights that each gets on its own, to float rounding."""

import numpy as np
import pytest
import torch
from clients import client_of
from torch import nn

from fedldp.data import Examples, load_dataset
from fedldp.errors import ConfigError
from fedldp.models import build_model
from fedldp.parts.batched_sgd import train_together
from fedldp.parts.local_sgd import LocalSgd, read_weights
from fedldp.wire import Broadcast, Question, pack_question, read_question

SIZES = (14, 3, 20)


def clients_of(data, sizes=SIZES):
    stops = np.cumsum(sizes)
    return [
        client_of(
            Examples(data.features[stop - size : stop], data.labels[stop - size : stop]),
            index,
            seed=1,
        )
        for index, (size, stop) in enumerate(zip(sizes, stops, strict=True))
    ]


@pytest.mark.parametrize("name", ["mlp", "vgg"])
def test_training_together_agrees_with_training_alone(name: str) -> None:
    torch.manual_seed(0)
    model = build_model(name, (1, 8, 8), 10)
    step = LocalSgd(model, 2, 5, 0.1, torch.device("cpu"))
    broadcast = Broadcast(round=1, weights=read_weights(model))
    clients = clients_of(load_dataset("digits").train)
    together = train_together(step, broadcast, clients)
    for client, update in zip(clients, together, strict=True):
        alone = step(broadcast, client).open()
        np.testing.assert_allclose(update.open(), alone, atol=2e-5)
        assert np.abs(alone - broadcast.weights).max() > 1e-2


def test_a_broadcast_that_came_as_bytes_is_taken_without_a_warning() -> None:
    """It is read-only, and its weights stay as they are."""
    model = build_model("logistic", (1, 8, 8), 10)
    step = LocalSgd(model, 1, 5, 0.1, torch.device("cpu"))
    sent = Question(
        run="run", exchange=0, broadcast=Broadcast(round=1, weights=read_weights(model))
    )
    broadcast = read_question(pack_question(sent)).broadcast
    assert not broadcast.weights.flags.writeable
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else torch says it once for each process
    try:
        train_together(step, broadcast, clients_of(load_dataset("digits").train))
    finally:
        torch.set_warn_always(before)
    np.testing.assert_array_equal(broadcast.weights, sent.broadcast.weights)


def test_a_model_with_dropout_is_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10))
    step = LocalSgd(model, 1, 5, 0.1, torch.device("cpu"))
    broadcast = Broadcast(round=1, weights=read_weights(model))
    with pytest.raises(ConfigError, match="--device cpu"):
        train_together(step, broadcast, clients_of(load_dataset("digits").train))
