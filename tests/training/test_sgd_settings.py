"""Schedule, weight decay, gradient clip, losses, early stopping and batch norm equal torch's."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from own_losses import margin
from torch import nn
from torch.nn import functional

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe, recipes
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import KEEPS_NOTHING, NOT_COUNTED, RESTS_ON
from fedldp.data import Examples
from fedldp.models import BatchNorm, build_model, is_statistic, layout_of_module
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import client_of, clients_of, trained
from fedldp.training.augmentation import augmented
from fedldp.training.batched_sgd import GROUP, single_gradients
from fedldp.training.local_sgd import batches, gradients
from fedldp.training.tensors import as_tensors, load_weights, read_weights, weights_of_classes

CPU = torch.device("cpu")
SIZES = (14, 9)
RATE = 0.05
SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.5},
    "decay": {"weight_decay": 0.3},
    "proximal": {"proximal": 3.0},
    "clip": {"gradient_clip": 0.5},
    "own": {"loss": "own_losses:margin"},
    "weighted": {"class_weights": [0.2, 1.0, 5.0]},
    "own weighted": {"loss": "own_losses:margin", "class_weights": [0.2, 1.0, 5.0]},
    "all": {"weight_decay": 0.1, "proximal": 2.0, "gradient_clip": 1.0, "momentum": 0.5},
}


SHAPES = {"mlp": (1, 8, 8), "cnn": (1, 28, 28), "vgg": (1, 8, 8)}
"""Trained by stacked matrix products, by a stack of columns if alone, and by autograd."""


def by_torch(name: str, start: np.ndarray, client: Any, given: dict[str, Any]) -> np.ndarray:
    """Return the weights after torch's own optimizer, loss and clip on round 3's batches."""
    model = build_model(name, SHAPES[name], 3)
    load_weights(model, layout_of_module(model), start)
    decay, momentum = given.get("weight_decay", 0), given.get("momentum", 0)
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum, weight_decay=decay)
    factors = torch.tensor(given.get("class_weights", [1.0] * 3))
    starts = [each.detach().clone() for each in model.parameters()]
    own = client.examples
    for indices in batches(len(own), 2, 5, client.fresh("batches")):
        logits, labels = model(torch.from_numpy(own.features[indices])), own.labels[indices]
        labels = torch.from_numpy(labels)
        if "loss" in given:
            losses = margin(logits, labels) * factors[labels]
        else:
            losses = functional.cross_entropy(logits, labels, factors, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        if "gradient_clip" in given:
            torch.nn.utils.clip_grad_norm_(model.parameters(), given["gradient_clip"])
        pull = given.get("proximal", 0.0) / 2
        pairs = zip(model.parameters(), starts, strict=True)
        far = [(own - first).square().sum() for own, first in pairs]
        (pull * sum(far)).backward()
        optimizer.step()
    return read_weights(model).copy()


@pytest.mark.slow
@pytest.mark.parametrize("given", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("model", SHAPES)
def test_training_alone_and_in_a_batch_agrees_with_torch(model: str, given: dict[str, Any]) -> None:
    settings = {name: value for name, value in given.items() if name != "momentum"}
    config = fedldp.recipe(
        "fedavg-digits", model=model, learning_rate=RATE, local_epochs=2, batch_size=5, rounds=4,
        **settings,
    )  # fmt: skip
    generator = np.random.default_rng(0)
    features = generator.random((sum(SIZES), *SHAPES[model]), np.float32)
    clients = clients_of(Examples(features, generator.integers(0, 3, sum(SIZES))), SIZES, seed=1)
    algorithm = config.algorithm(Problem(SHAPES[model], 3, sum(SIZES)))
    step = algorithm.sgd(CPU, given.get("momentum", 0.0))
    start = read_weights(algorithm.untrained()).copy()
    broadcast = Broadcast(round=3, weights=start)
    together = step(broadcast, clients, GROUP).open().rows
    for client, row in zip(clients, together, strict=True):
        expected = by_torch(model, start, client, given)
        assert np.abs(expected - start).max() > 1e-3
        for _ in range(2):  # the momentum begins at zero
            np.testing.assert_allclose(trained(step, broadcast, client), expected, atol=2e-5)
        np.testing.assert_allclose(row, expected, atol=2e-5)


class Added(nn.Module):
    """A linear model whose weights are a sum; its terms share a gradient unless ``apart``."""

    def __init__(self, apart: bool) -> None:
        super().__init__()
        self.one, self.other = (nn.Parameter(torch.ones(3, 4) / each) for each in (3, 7))
        self.apart = apart

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        other = self.other * 1.0 if self.apart else self.other
        return functional.linear(given, self.one + other)


@pytest.mark.parametrize("given", ["momentum", "gradient_clip", "drift"])
def test_parameters_that_share_a_gradient_take_the_steps_of_others(given: str) -> None:
    """Torch gives both terms of a sum the same tensor, so nothing may be changed in place."""
    generator = np.random.default_rng(0)
    own = Examples(generator.random((12, 4), np.float32), generator.integers(0, 3, 12))
    config = fedldp.recipe("fedavg-digits", model="linear", batch_size=5, local_epochs=2)
    plain = config.algorithm(Problem((4,), 3, 12)).sgd(CPU, 0.0)
    found = []
    for apart in (False, True):
        step = replace(plain, model=Added(apart), learning_rate=1.0)
        drift = np.linspace(0, 1, 24, dtype=np.float32) if given == "drift" else None
        if given == "momentum":
            step = replace(step, momentum=0.9)
        if given == "gradient_clip":
            step = replace(step, gradient_clip=0.05)
        broadcast = Broadcast(round=1, weights=read_weights(step.model).copy())
        found.append(step.train(broadcast, client_of(own), drift=drift).copy())
    np.testing.assert_array_equal(found[0], found[1])


def test_a_drift_is_added_after_all_else_that_changes_a_gradient() -> None:
    """Sums of floats depend on the order, and SCAFFOLD's runs keep their digests."""
    generator = np.random.default_rng(0)
    own = Examples(generator.random((12, 4), np.float32), generator.integers(0, 3, 12))
    config = fedldp.recipe("fedavg-digits", model="logistic", batch_size=12, local_epochs=9)
    plain = config.algorithm(Problem((4,), 3, 12)).sgd(CPU, 0.0)
    step = replace(plain, weight_decay=0.3, proximal=0.7)
    broadcast = Broadcast(round=1, weights=generator.random(15, np.float32))
    drift = generator.random(15, np.float32)
    found = step.train(broadcast, client_of(own), lambda number: RATE, drift).copy()
    features, labels = as_tensors(own)
    load_weights(step.model, layout_of_module(step.model), broadcast.weights)
    parameters = list(step.model.parameters())
    starts = [each.detach().clone() for each in parameters]
    for indices in step.batches(client_of(own)):
        slopes = gradients(step.model, features[indices], labels[indices], parameters)
        with torch.no_grad():
            slopes = torch._foreach_add(slopes, parameters, alpha=0.3)
            slopes = torch._foreach_add(slopes, torch._foreach_sub(parameters, starts), alpha=0.7)
            drifts = map(torch.from_numpy, layout_of_module(step.model).split(drift).values())
            slopes = torch._foreach_add(slopes, list(drifts))
            torch._foreach_add_(parameters, slopes, alpha=-RATE)
    np.testing.assert_array_equal(found, read_weights(step.model))


def test_a_statement_has_the_assumption_about_an_own_loss() -> None:
    given = fedldp.recipe("fedavg-quickstart", loss="own_losses:margin")
    says = RESTS_ON(assumption=KEEPS_NOTHING(setting="loss", of="own_losses:margin"), of="code")
    assert says in fedldp.account(given).warnings
    assert not RESTS_ON.is_in(fedldp.account("fedavg-quickstart").warnings)


def _plain(update: Any) -> Any:
    """Return the plain SGD within a local update."""
    inner = (getattr(update, name, None) for name in ("training", "update", "sgd"))
    return next((each for each in inner if each is not None), update)


@pytest.mark.parametrize("name", ["weight_decay", "proximal", "gradient_clip", "loss"])
def test_every_setting_of_sgd_changes_a_run_or_is_refused(name: str) -> None:
    value = {"loss": "own_losses:margin"}.get(name, 0.01)
    systems = {}
    for each in recipes().values():
        if each.config.dataset == "digits":
            systems.setdefault((each.config.system, each.config.model), each.config)
    taken = 0
    for config in systems.values():
        if name in config.unused_settings():
            with pytest.raises(ConfigError, match=rf"^{name} = .*: it changes the steps of plain"):
                config.changed(**{name: value})
            continue
        taken += 1
        problem = problem_of(config, None)
        with_it = config.changed(**{name: value}).algorithm(problem).local_update(CPU)
        without = config.algorithm(problem).local_update(CPU)
        attribute = "losses" if name == "loss" else name
        found = [getattr(_plain(update), attribute) for update in (with_it, without)]
        assert found[0] != found[1], config.system
    assert taken > 3


def test_a_single_gradient_is_scaled_by_the_weight_of_its_class() -> None:
    """Torch's mean over one example would cancel the weight."""
    torch.manual_seed(0)
    model, weights = build_model("mlp", (1, 8, 8), 3), [0.2, 1.0, 5.0]
    inputs, labels = torch.rand(12, 1, 8, 8), torch.arange(12) % 3
    plain = single_gradients(model, inputs, labels)
    found = single_gradients(model, inputs, labels, weights_of_classes(weights, CPU))
    factors = torch.tensor(weights)[labels]
    for name, each in plain.items():
        scaled = each * factors.view(-1, *[1] * (each.ndim - 1))
        torch.testing.assert_close(found[name], scaled)


def test_a_statement_assumes_that_weights_are_public() -> None:
    """Weights counted on the rows would be a release that no line covers."""
    config = find_recipe("person-dp-sgd-digits").config
    problem = Problem((1, 8, 8), 10, 1437)
    plain = plan(config, problem).privacy
    weighted = plan(config.changed(class_weights=[1.0] * 9 + [4.0]), problem).privacy
    assert not RESTS_ON.is_in(plain.warnings)
    assert RESTS_ON(assumption=NOT_COUNTED, of="numbers") in weighted.warnings
    for line, before in zip(weighted.guarantees, plain.guarantees, strict=True):
        assert line.epsilon == before.epsilon
        assert line.kind == "none" or NOT_COUNTED in line.assumptions


# Batch norm, only where its statistics are protected


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
        np.testing.assert_allclose(values, state[name].numpy(), atol=3e-4, err_msg=name)
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


def test_the_first_ranges_of_equal_weights_are_as_wide_as_the_setting_says() -> None:
    config = fedldp.recipe("ldp-fl-digits", model=NAME, ranges="adaptive", range_first=0.75)
    problem = problem_of(config, None)
    server = config.algorithm(problem).server()
    first = server.publish(server.initial(draws_of_seed(0)(0))).ranges
    assert first is not None
    names = config.layout(problem).names
    for name, center, radius in zip(names, first.centers, first.radii, strict=True):
        if is_statistic(name):
            assert (radius, center) == (0.75, name.endswith("var"))
