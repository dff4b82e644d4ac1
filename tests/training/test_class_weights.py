"""Class weights are a factor on each example's loss, equal on every path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError
from fedldp.data import Examples
from fedldp.models import build_model, layout_of_module
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan
from fedldp.testing.clients import clients_of, trained
from fedldp.training.batched_sgd import GROUP, single_gradients
from fedldp.training.local_sgd import LocalSgd, batches
from fedldp.training.tensors import load_weights, read_weights, weights_of_classes

CPU = torch.device("cpu")
SIZES = (14, 9)
EPOCHS, BATCH, RATE = 2, 5, 0.05
WEIGHTS = [0.2, 1.0, 5.0]


def data(shape: tuple[int, ...]) -> Examples:
    generator = np.random.default_rng(0)
    features = generator.random((sum(SIZES), *shape)).astype(np.float32)
    return Examples(features, generator.integers(0, 3, sum(SIZES)))


@pytest.mark.parametrize(
    ("name", "shape"), [("cnn", (1, 28, 28)), ("mlp", (1, 8, 8)), ("vgg", (1, 8, 8))], ids=str
)
def test_every_path_weights_the_loss_of_each_example(name: str, shape: tuple[int, ...]) -> None:
    """Training uses matrix products, stacked matrix products, or autograd, for one client or
    several."""
    torch.manual_seed(0)
    model, oracle = build_model(name, shape, 3), build_model(name, shape, 3)
    start = read_weights(model).copy()
    broadcast, clients = Broadcast(round=1, weights=start), clients_of(data(shape), SIZES, seed=1)
    weights = weights_of_classes(WEIGHTS, CPU)
    step = LocalSgd(model, EPOCHS, BATCH, RATE, CPU, 0.0, weights)
    together = step(broadcast, clients, GROUP).open().rows
    for client, row in zip(clients, together, strict=True):
        load_weights(oracle, layout_of_module(oracle), start)
        optimizer = torch.optim.SGD(oracle.parameters(), lr=RATE)
        own = client.examples
        for indices in batches(len(own), EPOCHS, BATCH, client.fresh("batches")):
            labels = torch.from_numpy(own.labels[indices])
            losses = functional.cross_entropy(
                oracle(torch.from_numpy(own.features[indices])), labels, reduction="none"
            )
            optimizer.zero_grad()
            (losses * torch.tensor(WEIGHTS)[labels]).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        expected = read_weights(oracle).copy()
        assert np.abs(expected - start).max() > 1e-3
        np.testing.assert_allclose(trained(step, broadcast, client), expected, atol=2e-5)
        np.testing.assert_allclose(row, expected, atol=2e-5)


def test_a_single_gradient_is_scaled_by_the_weight_of_its_class() -> None:
    """Torch's mean over one example would cancel the weight."""
    model, examples = build_model("mlp", (1, 8, 8), 3), data((1, 8, 8))
    inputs, labels = torch.from_numpy(examples.features), torch.from_numpy(examples.labels)
    plain = single_gradients(model, inputs, labels)
    found = single_gradients(model, inputs, labels, weights_of_classes(WEIGHTS, CPU))
    factors = torch.tensor(WEIGHTS)[labels]
    for name, each in plain.items():
        scaled = each * factors.view(-1, *[1] * (each.ndim - 1))
        torch.testing.assert_close(found[name], scaled)


def test_unused_class_weights_are_refused() -> None:
    config = find_recipe("fedavg-digits").config
    with pytest.raises(ConfigError, match="class_weights has 2 numbers, but digits has 10 classes"):
        config.changed(class_weights=[1.0, 2.0]).algorithm(Problem((1, 8, 8), 10, 1437))
    for wrong in ([0.0] * 10, [float("inf")] * 10, [1.0], [-1.0] * 10):
        with pytest.raises(ConfigError, match="class_weights"):
            config.changed(class_weights=wrong)
    for closed in ("composed-digits-solution", "composed-digits-statistics"):
        with pytest.raises(
            ConfigError, match=r"class_weights .* do not compute a loss per example"
        ):
            find_recipe(closed).config.changed(class_weights=[1.0] * 10)


def test_a_statement_assumes_that_weights_are_public() -> None:
    """Weights counted on the rows would be a release that no line covers."""
    config = find_recipe("person-dp-sgd-digits").config
    problem = Problem((1, 8, 8), 10, 1437)
    plain = plan(config, problem).privacy
    weighted = plan(config.changed(class_weights=[1.0] * 9 + [4.0]), problem).privacy
    said = "no number in class_weights was counted on the clients' rows"
    assert not any(each.startswith(said) for each in plain["warnings"])
    assert any(each.startswith(said) for each in weighted["warnings"])
    for line, before in zip(weighted["guarantees"], plain["guarantees"], strict=True):
        assert line["epsilon"] == before["epsilon"]
        assert line["kind"] == "none" or said in line["assumptions"]
