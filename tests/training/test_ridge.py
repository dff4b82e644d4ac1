"""Ridge regressions in closed form, compared with scikit-learn and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from fedldp.data import Examples
from fedldp.protocol.roles import Batch
from fedldp.protocol.wire import Broadcast
from fedldp.testing.clients import clients_of
from fedldp.training.linear_models import STATISTICS, LinearModel, Statistics, basis
from fedldp.training.ridge import OwnStatistics, RidgeSolution, unit_examples

CLASSES, FEATURES, RIDGE = 4, 6, 0.03
MODELS = [LinearModel(CLASSES, FEATURES, False), LinearModel(CLASSES, FEATURES, True)]
BOTH = pytest.mark.parametrize("model", MODELS, ids=["linear", "logistic"])


def some(count: int, seed: int = 0) -> Examples:
    draw = np.random.default_rng(seed)
    features = draw.normal(0, 3, (count, 2, FEATURES // 2)).astype(np.float32)
    return Examples(features, draw.integers(0, CLASSES, count))


def told(model: LinearModel, seed: int | None = None) -> Broadcast:
    size = CLASSES * model.inputs
    weights = np.zeros(size) if seed is None else np.random.default_rng(seed).normal(size=size)
    return Broadcast(round=1, weights=weights.astype(np.float32))


def calibrated(model: LinearModel, batch: Batch, broadcast: Broadcast) -> NDArray[Any]:
    rows = RidgeSolution(model=model, ridge=RIDGE)(broadcast, batch).open().rows
    assert isinstance(rows, np.ndarray)
    assert rows.dtype == np.float32
    return rows


def oracle(
    model: LinearModel, examples: Examples, ridge: float, before: NDArray[Any]
) -> NDArray[Any]:
    """Return the weights of scikit-learn's ridge regression on the centred labels."""
    flat = examples.features.reshape(len(examples), -1).astype(np.float64)
    if model.intercept:
        flat = np.hstack([flat, np.ones((len(flat), 1))])
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    labels = np.eye(CLASSES)[examples.labels] - 1 / CLASSES
    split = CLASSES * FEATURES
    known = before[:split].reshape(CLASSES, FEATURES)
    if model.intercept:
        known = np.hstack([known, before[split:, None]])
    centred = known - known.mean(axis=0)  # the part that all classes share is not a contrast
    regression = Ridge(alpha=len(flat) * ridge, fit_intercept=False)
    change = regression.fit(flat, labels - flat @ centred.T).coef_
    return np.concatenate([change[:, :FEATURES].ravel(), change[:, FEATURES:].ravel()]) + before


@BOTH
@pytest.mark.parametrize(("seed", "count"), [(None, 1), (5, 3), (None, 6), (5, 7), (None, 40)])
def test_a_solution_agrees_with_scikit_learn(
    model: LinearModel, count: int, seed: int | None
) -> None:
    examples, broadcast = some(count), told(model, seed)
    (found,) = calibrated(model, clients_of(examples, [count]), broadcast)
    expected = oracle(model, examples, RIDGE, broadcast.weights.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@BOTH
def test_a_client_has_the_same_bits_alone_and_in_a_batch(model: LinearModel) -> None:
    sizes = [1, 5, 40, 2, 0, 7]
    examples, broadcast = some(sum(sizes)), told(model, 3)
    batch = clients_of(examples, sizes)
    together = calibrated(model, batch, broadcast)
    own = OwnStatistics(statistics=Statistics(model))
    statistics = own(broadcast, batch).open().aux[STATISTICS]
    for place in range(len(sizes)):
        one = Batch.of_one(batch.alone(place))
        assert np.array_equal(calibrated(model, one, broadcast)[0], together[place])
        assert np.array_equal(own(broadcast, one).open().aux[STATISTICS][0], statistics[place])


@BOTH
@pytest.mark.parametrize("filled", [0.0, np.nan, np.inf, -np.inf, 3e38, 1e-45])
def test_any_examples_have_a_finite_solution(model: LinearModel, filled: float) -> None:
    examples = some(8)
    examples.features[2:5] = filled
    examples.features[6, 0, 0] = filled
    batch, broadcast = clients_of(examples, [2, 3, 3]), told(model)
    assert np.isfinite(calibrated(model, batch, broadcast)).all()
    found = OwnStatistics(statistics=Statistics(model))(broadcast, batch).open().aux[STATISTICS]
    assert np.isfinite(found).all()


def test_an_example_with_nan_counts_as_zeros() -> None:
    examples = some(3)
    examples.features[1, 0, 0] = np.nan
    examples.features[2] = 0
    found = unit_examples(examples.features, MODELS[0])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 0, 0])
    assert unit_examples(examples.features, MODELS[1])[2].tolist() == [0] * FEATURES + [1]


@BOTH
def test_a_single_label_has_a_solution(model: LinearModel) -> None:
    examples = Examples(some(9).features, np.full(9, 2))
    (found,) = calibrated(model, clients_of(examples, [9]), told(model))
    weights = found[: CLASSES * FEATURES].reshape(CLASSES, FEATURES)
    logits = examples.features.reshape(9, -1) @ weights.T
    if model.intercept:
        logits += found[CLASSES * FEATURES :]
    assert (logits.argmax(1) == 2).all()


@BOTH
def test_contrasts_are_orthonormal_coordinates_of_the_differences(model: LinearModel) -> None:
    for classes in (2, 3, 10):
        found = basis(classes)
        np.testing.assert_allclose(found @ found.T, np.eye(classes - 1), atol=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-12)
    contrasts = np.random.default_rng(2).normal(size=(CLASSES - 1, model.inputs))
    weights = model.weights(contrasts)
    assert weights.shape == (CLASSES * model.inputs,)
    assert np.linalg.norm(weights) == pytest.approx(np.linalg.norm(contrasts))
    np.testing.assert_allclose(model.in_contrasts(weights[None])[0], contrasts, atol=1e-12)


@BOTH
def test_without_noise_statistics_give_the_regression_on_all_examples(model: LinearModel) -> None:
    examples = some(60)
    batch, statistics = clients_of(examples, [20, 20, 20]), Statistics(model)
    mean = OwnStatistics(statistics=statistics)(told(model), batch).open().aux[STATISTICS].mean(0)
    expected = oracle(model, examples, RIDGE, np.zeros(CLASSES * model.inputs))
    np.testing.assert_allclose(statistics.solve(mean, RIDGE), expected, rtol=1e-6, atol=1e-9)


@BOTH
def test_statistics_preserve_the_norm_of_both_matrices(model: LinearModel) -> None:
    draw, statistics = np.random.default_rng(1), Statistics(model)
    square = draw.normal(size=(model.inputs, model.inputs))
    products, moments = square + square.T, draw.normal(size=(CLASSES - 1, model.inputs))
    vector = statistics.join(products, moments)
    assert vector.shape == (statistics.size,)
    whole = np.sum(products**2) + np.sum(moments**2)
    assert np.sum(vector**2) == pytest.approx(whole)
    back, other = statistics.split(vector)
    np.testing.assert_allclose(back, products)
    np.testing.assert_allclose(other, moments)


@BOTH
def test_no_clients_statistics_are_longer_than_stated(model: LinearModel) -> None:
    # Tries all data sets of two of these examples with all labels; two equal examples are the
    # longest.
    corners = np.vstack([np.eye(FEATURES), -np.eye(FEATURES), np.full((1, FEATURES), 7)])
    statistics, most = Statistics(model), math.sqrt(2 - 1 / CLASSES)
    own = OwnStatistics(statistics=statistics)
    places = np.stack(np.meshgrid(*[np.arange(len(corners) * CLASSES)] * 2), -1).reshape(-1, 2)
    rows = places.ravel()
    features = corners[rows % len(corners)].astype(np.float32).reshape(-1, 2, FEATURES // 2)
    batch = clients_of(Examples(features, rows // len(corners)), [2] * len(places))
    norms = np.linalg.norm(own(told(model), batch).open().aux[STATISTICS], axis=1)
    assert norms.max() == pytest.approx(most)
    assert norms.min() < 0.9 * most
