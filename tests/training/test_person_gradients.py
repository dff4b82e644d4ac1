"""Sums over people: whose vector is what, to the bit, and how long it is at most."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from samples import some

from fedldp.data.examples import Examples
from fedldp.models import build_model, layers_of, layout_of
from fedldp.training.person_gradients import (
    NORM,
    DenseGradients,
    ModelGradients,
    Summed,
    _exp,
    dense_layers,
    on_grid_of_clip,
)

SHAPE, CLASSES = (3, 4), 3
MODELS = ["linear", "logistic", "mlp_64"]


def dense(model: str, clip: float, **more: object) -> DenseGradients:
    layers = dense_layers(layers_of(model, SHAPE, CLASSES) or [])
    assert layers is not None
    layout = layout_of(model, SHAPE, CLASSES)
    return DenseGradients(layers=layers, layout=layout, clip=clip, **more)  # type: ignore[arg-type]


def any_model(model: str, clip: float, **more: object) -> ModelGradients:
    layout = layout_of(model, SHAPE, CLASSES)
    with torch.random.fork_rng():
        made = build_model(model, SHAPE, CLASSES)
    return ModelGradients(model=made, layout=layout, clip=clip, **more)  # type: ignore[arg-type]


def weights_of(model: str, seed: int, scale: float = 0.3) -> np.ndarray:
    size = layout_of(model, SHAPE, CLASSES).size
    return np.random.default_rng(seed).normal(0, scale, size).astype(np.float32)


def people(count: int, seed: int, most_rows: int = 3, scale: float = 1.0) -> Examples:
    """Return people of one row to ``most_rows``, in a mixed order."""
    rng = np.random.default_rng(seed)
    whose = np.repeat(np.arange(count), rng.integers(1, most_rows + 1, count))
    rng.shuffle(whose)
    features = rng.normal(0, scale, (len(whose), *SHAPE)).astype(np.float32)
    return Examples(features, rng.integers(0, CLASSES, len(whose)), whose)


def alone(examples: Examples, person: int) -> Examples:
    own = examples.people == person
    return Examples(examples.features[own], examples.labels[own], examples.people[own])


def both(model: str, clip: float) -> list[Summed]:
    return [dense(model, clip), any_model(model, clip)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("clip", [1e-4, 0.3, 1e4])
def test_everybody_has_the_same_bits_whoever_else_is_there(model: str, clip: float) -> None:
    """The sum over people is the sum of what each gives alone, in any order, to the last bit."""
    for seed in range(some(24)):
        examples, weights = people(40, seed, most_rows=1 + seed % 5), weights_of(model, seed)
        for summed in both(model, clip):
            of_each = [summed(weights, alone(examples, person)) for person in range(40)]
            np.testing.assert_array_equal(summed(weights, examples), np.sum(of_each, axis=0))


@pytest.mark.parametrize("model", MODELS)
def test_a_row_has_the_same_bits_in_every_place_of_a_large_batch(model: str) -> None:
    """Whoever is added, left out, or takes another place, changes nobody else's part."""
    rng = np.random.default_rng(5)
    many = Examples(
        rng.normal(size=(301, *SHAPE)).astype(np.float32), rng.integers(0, CLASSES, 301)
    )
    summed, weights = dense(model, 0.3), weights_of(model, 5)
    whole = summed(weights, many)
    for _ in range(some(40)):
        order = rng.permutation(301)
        left, right = np.split(order, [rng.integers(1, 301)])
        parts = [Examples(many.features[rows], many.labels[rows]) for rows in (left, right)]
        np.testing.assert_array_equal(sum(summed(weights, part) for part in parts), whole)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize("clip", [1e-4, 1.0, 1e4])
def test_no_vector_is_longer_than_the_norm(model: str, scale: float, clip: float) -> None:
    for seed in range(some(16)):
        examples = people(6, seed, most_rows=4, scale=scale)
        weights = weights_of(model, seed, scale=10.0 ** (seed % 7 - 3))
        for summed in both(model, clip):
            for person in range(6):
                found = summed(weights, alone(examples, person))
                assert (found == np.rint(found)).all()
                assert sum(int(each) ** 2 for each in found) <= NORM**2


@pytest.mark.parametrize("model", MODELS)
def test_it_is_the_clipped_gradient_of_the_mean_loss(model: str) -> None:
    """Beside a slow twin in float64, by torch, which knows nothing of a grid."""
    for seed, clip in enumerate((0.05, 1.0, 50.0)):
        examples, weights = people(30, seed), weights_of(model, seed)
        with torch.random.fork_rng():
            made = build_model(model, SHAPE, CLASSES).double()
        expected = np.zeros(weights.size)
        for person in range(30):
            own = alone(examples, person)
            torch.nn.utils.vector_to_parameters(
                torch.from_numpy(weights).double(), made.parameters()
            )
            logits = made(torch.from_numpy(own.features).double())
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(own.labels))
            parts = torch.autograd.grad(loss, list(made.parameters()))
            gradient = torch.cat([each.flatten() for each in parts]).numpy()
            expected += gradient * min(1, clip / np.linalg.norm(gradient))
        for summed in both(model, clip):
            found = summed(weights, examples) * (clip / NORM)
            # Aimed at is 255/256 of the clip, and inputs have 12 bits after the point.
            assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected) + 1e-3


@pytest.mark.parametrize("make", [dense, any_model])
def test_class_weights_are_factors_on_a_rows_loss(make: object) -> None:
    examples, weights = people(20, 1, most_rows=1), weights_of("logistic", 1)
    plain = make("logistic", 10.0)  # type: ignore[operator]
    weighted = make("logistic", 10.0, class_weights=(1.0, 0.5, 0.25))  # type: ignore[operator]
    by_class = [
        plain(weights, Examples(examples.features[own], examples.labels[own]))
        for own in (examples.labels == each for each in range(CLASSES))
    ]
    expected = by_class[0] + 0.5 * by_class[1] + 0.25 * by_class[2]
    found = weighted(weights, examples)
    assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("model", MODELS)
def test_who_has_no_gradient_counts_as_zeros_and_nobody_else(model: str, bad: float) -> None:
    examples, weights = people(10, 3, most_rows=1), weights_of(model, 3)
    features = examples.features.copy()
    features[4] = bad
    others = examples.people != examples.people[4]
    rest = Examples(examples.features[others], examples.labels[others])
    spoilt = Examples(features, examples.labels, examples.people)
    for summed in both(model, 0.5):
        np.testing.assert_array_equal(summed(weights, spoilt), summed(weights, rest))


def test_a_site_without_a_row_sends_zeros() -> None:
    nothing = Examples(np.zeros((0, *SHAPE), np.float32), np.zeros(0, np.int64))
    for summed in both("logistic", 1.0):
        assert not summed(weights_of("logistic", 0), nothing).any()
        whose = replace(nothing, people=np.zeros(0, np.int64))
        assert not summed(weights_of("logistic", 0), whose).any()


@pytest.mark.parametrize("gradient", [[np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0]])
def test_a_gradient_that_is_none_becomes_zeros(gradient: list[float]) -> None:
    assert not on_grid_of_clip(np.array(gradient), 1.0).any()


@pytest.mark.parametrize("size", [1e-300, 1e-10, 1.0, 1e10, 1e300])
def test_a_gradient_of_any_size_has_its_direction(size: float) -> None:
    gradient = np.array([3.0, -4.0]) * size
    found = on_grid_of_clip(gradient, 1.0)
    assert np.linalg.norm(found) <= NORM
    if size >= 1e-7:
        np.testing.assert_allclose(found / np.linalg.norm(found), [0.6, -0.8], rtol=1e-2)


def test_exp_is_that_of_the_library() -> None:
    values = -np.concatenate([np.zeros(1), np.geomspace(1e-300, 700, 5000)])
    np.testing.assert_allclose(_exp(values), np.exp(values), rtol=1e-13)
