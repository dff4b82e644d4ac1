"""A model with batch norm: trained as by torch, and only where its statistics are protected."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.data import Examples
from fedldp.models import BatchNorm, build_model, is_statistic, layout_of_module
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import client_of, trained
from fedldp.training.augmentation import augmented
from fedldp.training.local_sgd import batches
from fedldp.training.tensors import load_weights, read_weights

CPU = torch.device("cpu")
SHAPE = (3, 8, 8)
NAME = "vgg_batch_norm"
SYSTEMS = {each.config.system: each.config for each in recipes().values()
           if each.config.dataset == "digits"}  # fmt: skip


def of_torch(model: nn.Module) -> nn.Sequential:
    """Return the same model with torch's own batch norm."""
    layers: list[tuple[str, nn.Module]] = []
    for name, layer in model.named_children():
        own = dict(layer.named_parameters())
        if any(map(is_statistic, own)):
            layer = nn.BatchNorm2d(len(own["weight"]))
            layer.load_state_dict({**{n: p.detach() for n, p in own.items()}}, strict=False)
        layers.append((name, layer))
    return nn.Sequential(OrderedDict(layers))


def random_examples(count: int) -> Examples:
    generator = np.random.default_rng(0)
    return Examples(generator.random((count, *SHAPE), np.float32), generator.integers(0, 3, count))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["none", "shift-flip"])
def test_a_client_trains_weights_and_statistics_as_torch_does(how: str) -> None:
    config = fedldp.recipe(
        "fedavg-digits", model=NAME, learning_rate=0.05, local_epochs=2, batch_size=5,
        momentum=0.5, weight_decay=0.01, augmentation=how,
    )  # fmt: skip
    algorithm = config.algorithm(Problem(SHAPE, 3, 12))
    client = client_of(random_examples(12), seed=1, round=3)
    start = read_weights(algorithm.module(draws_of_seed(0)(0)("weights"))).copy()
    found = trained(algorithm.local_update(CPU), Broadcast(round=3, weights=start), client)

    own = build_model(NAME, SHAPE, 3)
    load_weights(own, layout_of_module(own), start)
    model = of_torch(own)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.5, weight_decay=0.01)
    moves = client.fresh("augmentation").generator()
    for indices in batches(12, 2, 5, client.fresh("batches")):
        images = torch.from_numpy(client.examples.features[indices])
        if how != "none":
            images = augmented(images, moves, "shift-flip")
        labels = torch.from_numpy(client.examples.labels[indices])
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    state = model.state_dict()
    layout = layout_of_module(own)
    for name, values in layout.split(found).items():
        np.testing.assert_allclose(values, state[name].numpy(), atol=2e-5, err_msg=name)
        moved = np.abs(values - layout.split(start)[name]).max()
        assert moved > 1e-3 or name.endswith("bias"), name  # the norm undoes a convolution's bias


def test_a_test_uses_the_statistics_and_a_negative_variance_counts_as_zero() -> None:
    layer = BatchNorm().module((2, 4, 4))
    values = torch.rand(5, 2, 4, 4)
    with torch.no_grad():
        layer.get_parameter("running_mean").copy_(torch.tensor([0.5, 0.25]))
        layer.get_parameter("running_var").copy_(torch.tensor([-0.5, 4.0]))
        found = layer.eval()(values)
    divisors = torch.tensor([1e-5, 4.0 + 1e-5]).sqrt().view(2, 1, 1)
    expected = (values - torch.tensor([0.5, 0.25]).view(2, 1, 1)) / divisors
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("config", SYSTEMS.values(), ids=SYSTEMS)
def test_where_a_client_is_protected_its_statistics_are_and_elsewhere_they_are_refused(
    config: RunConfig,
) -> None:
    """An example affects other examples' gradients, so no line may protect a record or a person."""
    problem = replace(problem_of(config, None), input_shape=SHAPE)
    try:
        given = config.changed(model=NAME)
        lines = plan(given, problem).privacy.guarantees
    except ConfigError as error:
        if NAME not in str(error):
            raise
        return
    units = {line.unit for line in lines if line.kind != "none"}
    assert units <= {"weight", "client-round", "client-run"}
    algorithm = given.algorithm(problem)
    server = algorithm.server()
    broadcast = server.publish(server.initial(draws_of_seed(0)(0)))
    if broadcast.ranges is not None:
        assert sum(broadcast.ranges.sizes) == algorithm.layout.size == len(broadcast.weights)


@pytest.mark.parametrize(
    "given",
    [
        {"bound": "norm", "mechanism": "gaussian", "channel": "named"},
        {"bound": "direction", "mechanism": "k_closest", "channel": "named"},
    ],
    ids=str,
)
def test_statistics_are_refused_within_a_norm(given: dict[str, str]) -> None:
    config = fedldp.recipe("composed-digits", model=NAME, untrusted_clients=0, **given)
    with pytest.raises(ConfigError, match=rf"^model = {NAME}: 1.running_mean is computed from"):
        plan(config, problem_of(config, None))


def test_the_first_ranges_of_equal_weights_are_as_wide_as_the_setting_says() -> None:
    config = fedldp.recipe("ldp-fl-digits", model=NAME, ranges="adaptive", range_first=0.75)
    problem = problem_of(config, None)
    server = config.algorithm(problem).server()
    first = server.publish(server.initial(draws_of_seed(0)(0))).ranges
    assert first is not None
    for name, center, radius in zip(
        config.layout(problem).names, first.centers, first.radii, strict=True
    ):
        equal = name.split(".")[1].startswith("running") or (radius == 0.75)
        assert (radius == 0.75) == equal
        if is_statistic(name):
            assert center == name.endswith("var")
