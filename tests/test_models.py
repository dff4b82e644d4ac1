"""Models as lists of layers: their layout needs no torch, and equals the torch module's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.models import (
    Conv,
    Dense,
    Dropout,
    Flatten,
    MaxPool,
    Relu,
    build_model,
    layout_of,
    layout_of_module,
    models,
)
from fedldp.protocol.wire import Layout
from fedldp.simulation.plan import problem_of

# With torch's seed 7 and 10 classes: the first and the last initial weight, and the generator's
# next draw, recorded when each model was still a hand-written torch module.
STARTS = {
    "cnn": ((1, 28, 28), 0.01396902, 0.07359365, 0.1801527),
    "cnn_32": ((1, 28, 28), 0.01396902, 0.119178, 0.1568984),
    "linear": ((128,), 0, 0, 0.1080137),
    "logistic": ((1, 8, 8), 0, 0, 0.1326925),
    "mlp": ((1, 28, 28), 0.002494467, -0.05944996, 0.3655159),
    "mlp_64": ((11520,), 0.0006507431, -0.07388167, 0.9102651),
    "mlp_2048": ((784,), 0.0024944671, 0.0031989352, 0.1876127698),
    "mlp_2048_dropout": ((784,), 0.0024944671, 0.0031989352, 0.2397717784),
    "mlp_linear": ((1, 28, 28), 0.002494467, -0.05944996, 0.3655159),
    "vgg": ((3, 32, 32), 0.2879052, 0, 0.1071139),
    "vgg_batch_norm": ((3, 32, 32), 0.01344169, -0.1093836, 0.4350317),
}

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 9), (2, 17, 20), (1, 8, 8), (54,), (7, 3)]


@pytest.mark.parametrize("name", STARTS)
def test_a_seed_gives_the_recorded_initial_weights(name: str) -> None:
    shape, first, last, next_draw = STARTS[name]
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = build_model(name, shape, 10)
        drawn = torch.rand(1, dtype=torch.float64).item()
    weights = torch.cat([each.detach().flatten() for each in model.parameters()])
    assert (weights[0].item(), weights[-1].item()) == pytest.approx((first, last), rel=1e-4)
    assert drawn == pytest.approx(next_draw, rel=1e-6)


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_layout_is_that_of_the_module(name: str, shape: tuple[int, ...]) -> None:
    described = outcome(lambda: layout_of(name, shape, 3))
    assert described == outcome(lambda: layout_of_module(build_model(name, shape, 3)))


def outcome(find: Callable[[], Layout]) -> Layout | str:
    try:
        return find()
    except ConfigError as error:
        return str(error)


def test_a_setting_draws_weights_anew_by_torchs_rule_or_by_hes_and_leaves_frozen_ones() -> None:
    def initial(**given: Any) -> list[torch.Tensor]:
        config = fedldp.recipe("fedavg-digits", model="vgg", **given)
        algorithm = config.algorithm(problem_of(config, None))
        made = algorithm.module(Stream(bytes(32), simulated=True))
        return [each.detach() for each in made.state_dict().values()]

    own, torchs, hes = initial(), initial(start="torch"), initial(start="he")
    for before, uniform, normal in zip(own, torchs, hes, strict=True):
        if before.ndim == 1:
            assert uniform.any()
            assert not normal.any()
            continue
        bound = (before[0].numel()) ** -0.5
        assert uniform.abs().max() <= bound
        assert uniform.std().item() == pytest.approx(bound / 3**0.5, rel=0.2)
        assert normal.std().item() == pytest.approx(bound * 2**0.5, rel=0.2)
    frozen, again = initial(trainable="head"), initial(trainable="head", start="torch")
    same = [torch.equal(*pair) for pair in zip(frozen, again, strict=True)]
    assert sum(same) == len(same) - 2


@pytest.mark.parametrize("name", [n for n in models() if n.startswith(("mlp", "cnn", "linear"))])
def test_what_a_model_begins_with_does_not_depend_on_what_was_built_before(name: str) -> None:
    config = fedldp.recipe("fedavg-mnist", model=name, start="he")
    algorithm = config.algorithm(Problem((1, 28, 28), 3, 99))
    found = [algorithm.module(Stream(bytes(32), simulated=True)) for _ in range(2)]
    first, second = (list(each.state_dict().values()) for each in found)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


def test_dropout_in_tests_drops_the_same_values_without_touching_other_draws() -> None:
    layers = [Dropout(0.25), Dropout(0.25, in_tests=True)]
    plain, lasting = (layer.module((2000,)) for layer in layers)
    values, before = torch.ones(3, 2000), torch.get_rng_state()
    assert torch.equal(plain.eval()(values), values)
    found = lasting.eval()(values)
    assert torch.equal(found, lasting(values))
    assert torch.equal(torch.get_rng_state(), before)
    assert set(found.unique().tolist()) == {0.0, torch.ones(1).div(0.75).item()}
    assert (found == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert not torch.equal(found[0], found[1])
    drawn = lasting.train()(values)
    assert not torch.equal(drawn, lasting(values))
    assert (drawn == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)


def test_the_network_of_ldpfls_authors_has_dropout_in_tests_and_no_negative_logits() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_model("mlp_2048_dropout", (1, 8, 8), 10).eval()
        images = torch.rand(50, 1, 8, 8)
    first, second = model[1], model[4]  # type: ignore[index]
    whole = second(torch.relu(first(images.flatten(1)))).relu()
    found = model(images)
    assert found.shape == (50, 10)
    assert (found >= 0).all()
    assert not torch.allclose(found, whole, atol=1e-3)
    assert torch.allclose(found.mean(0), whole.mean(0), atol=0.03)


# The user's own models


def own_layers(shape, classes):
    return [Conv(4, 3, padding=2, name="first"), Relu(), MaxPool(2), Flatten(), Dense(classes)]


def test_a_users_model_may_be_layers() -> None:
    name = f"{__name__}:own_layers"
    found = layout_of(name, (1, 8, 8), 3)
    assert found == Layout(
        ("first.weight", "first.bias", "4.weight", "4.bias"), ((4, 1, 3, 3), (4,), (3, 100), (3,))
    )
    assert layout_of_module(build_model(name, (1, 8, 8), 3)) == found


def test_the_layout_of_a_users_module_is_the_modules_and_draws_nothing() -> None:
    before = torch.get_rng_state()
    assert layout_of("own_models:dense", (1, 8, 8), 3) == Layout(
        ("1.weight", "1.bias"), ((3, 64), (3,))
    )
    assert torch.equal(torch.get_rng_state(), before)


def wrong_end(shape, classes):
    return [Flatten(), Dense(classes + 1)]


def not_flat(shape, classes):
    return [Dense(classes)]


def same_name(shape, classes):
    return [Flatten(), Dense(64, name="a"), Relu(), Dense(classes, name="a")]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("wrong_end", "(4,)"), ("not_flat", "(1, 8, 8)"),        ("same_name", "the same name"),
    ],
)  # fmt: skip
def test_layers_that_cannot_be_a_model_are_refused_with_and_without_torch(
    name: str, named: str
) -> None:
    for make in (layout_of, build_model):
        with pytest.raises(ConfigError, match=r"^model = ") as refused:
            make(f"{__name__}:{name}", (1, 8, 8), 3)
        assert named in str(refused.value)
        assert "\n" not in str(refused.value)
