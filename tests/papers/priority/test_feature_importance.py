"""Importance of features, compared with plain loops over formulas and copies of a model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedldp.core.errors import ConfigError
from fedldp.data import Examples, load_dataset
from fedldp.models import build_model, layout_of_module
from fedldp.papers.priority.importance import FirstLayer, pick_features, variance_importance
from fedldp.papers.priority.training import check_dense_first, sensitivity_importance
from fedldp.training.tensors import read_weights

CPU = torch.device("cpu")


def deep(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 12),
        nn.Tanh(),
        nn.Linear(12, 9),
        nn.ReLU(),
        nn.Linear(9, classes),
    )


def model_of(name: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = deep(shape, classes) if name == "deep" else build_model(name, shape, classes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def one_by_one(model: nn.Module, examples: Examples, shift: float) -> np.ndarray:
    """Return the importance as defined in section III-C, with a new model for every feature."""
    features, labels = torch.from_numpy(examples.features), torch.from_numpy(examples.labels)

    def accuracy(evaluated: nn.Module) -> float:
        with torch.no_grad():
            return float((evaluated(features).argmax(1) == labels).double().mean())

    found = []
    for feature in range(math.prod(examples.features.shape[1:])):
        changed = copy.deepcopy(model)
        with torch.no_grad():
            next(changed.parameters())[:, feature] += shift
        found.append(abs(accuracy(changed) - accuracy(model)))
    return np.array(found)


@pytest.mark.parametrize(("shift", "name"), [(0.5, "logistic"), (3.0, "mlp"), (0.5, "deep")])
def test_sensitivity_agrees_with_a_plain_loop_on_digits(name: str, shift: float) -> None:
    train = load_dataset("digits").train
    examples = Examples(train.features[:150], train.labels[:150])
    model = model_of(name, (1, 8, 8), 10)
    expected = one_by_one(model, examples, shift)
    found = sensitivity_importance(model, examples, shift, CPU)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # A softmax layer alone is blind to a shift of all logits; deeper models are not.
    assert (expected.max() > 0) == (name != "logistic")


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
def test_variance_agrees_with_a_plain_loop(hidden: int, features: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    before, after = generator.normal(size=(2, hidden, features)).astype(np.float32)
    expected = [
        math.fsum(
            (float(before[j, i]) - float(after[j, i])) ** 2 / 4 * abs(float(after[j, i]))
            for j in range(hidden)
        )
        for i in range(features)
    ]
    np.testing.assert_allclose(variance_importance(before, after), expected, rtol=1e-9)


# Picking


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.floats(0, 1),
    st.sampled_from(["least", "most"]),
)
def test_the_share_of_least_or_most_important_is_picked(
    importance: list[int], share: float, which: str
) -> None:
    values = np.array(importance, np.float64)
    chosen = pick_features(values, share, which)  # type: ignore[arg-type]
    assert chosen.sum() == round(share * values.size)
    sign = 1 if which == "least" else -1
    if chosen.any() and not chosen.all():
        assert (sign * values)[chosen].max() <= (sign * values)[~chosen].min()


def test_least_and_most_important_features_are_disjoint_even_in_ties() -> None:
    for size in (5, 64, 784):
        least, most = (pick_features(np.zeros(size), 0.4, w) for w in ("least", "most"))
        assert not (least & most).any()


def test_the_first_layers_weights_in_the_vector() -> None:
    model = model_of("mlp", (1, 8, 8), 10)
    layer = FirstLayer.of(layout_of_module(model), "mlp", (1, 8, 8))
    vector = read_weights(model)
    dense = next(model.parameters()).detach().numpy()
    np.testing.assert_array_equal(layer.weights(vector), dense)
    assert np.shares_memory(layer.weights(vector), vector)
    assert layer.num_features == 64
    chosen = np.zeros(64, np.bool_)
    chosen[[3, 60]] = True
    where = layer.coordinates(chosen)
    assert where.shape == vector.shape
    assert where.sum() == 2 * 256  # biases and the second layer are none of them
    np.testing.assert_array_equal(vector[where].reshape(256, 2), dense[:, [3, 60]])


# Accepted models


def flat_first(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(math.prod(shape), classes))


def dropout_first(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(math.prod(shape), classes))


class Hidden(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.flatten, self.dense = nn.Flatten(), nn.Linear(math.prod(shape), classes)


@pytest.mark.parametrize("build", [flat_first, dropout_first, Hidden])
def test_a_model_without_a_first_dense_layer_is_refused(
    build: Callable[[tuple[int, ...], int], nn.Module],
) -> None:
    """The model's layout looks as if it had a first dense layer."""
    model = build((6,), 3)
    assert FirstLayer.of(layout_of_module(model), "some", (6,)).num_features == 6
    with pytest.raises(ConfigError, match="model = some: its first layer is not a dense layer"):
        check_dense_first(model, "some")


def test_a_layout_without_a_weight_for_every_pixel_is_refused() -> None:
    """The layout shows this before there is a model."""
    for shape in ((1, 8, 7), (3, 8, 8)):
        with pytest.raises(ConfigError, match="model = some: its first layer is not a dense layer"):
            FirstLayer.of(layout_of_module(model_of("mlp", (1, 8, 8), 10)), "some", shape)
    with pytest.raises(ConfigError, match="model = cnn: its first layer is not a dense layer"):
        FirstLayer.of(layout_of_module(build_model("cnn", (1, 16, 16), 10)), "cnn", (1, 16, 16))
