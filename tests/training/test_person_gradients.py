"""Sums over people: the vector of each person, bit for bit, and its largest norm."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedldp.data.examples import Examples
from fedldp.data.label_range import STEPS, centred
from fedldp.models import (
    Dense,
    Flatten,
    Layer,
    Relu,
    build_model,
    layers_of,
    layout_of,
    layout_of_module,
)
from fedldp.protocol.wire import Layout
from fedldp.training.exact_sums import NORM
from fedldp.training.person_gradients import (
    DenseGradients,
    ModelGradients,
    Summed,
    dense_layers,
    on_grid_of_clip,
)

SHAPE, CLASSES = (3, 4), 3
MODELS = ["linear", "logistic", "mlp_64"]


def both(model: str, clip: float, classes: int = CLASSES) -> list[Summed]:
    """Return the sums by dense layers and by any model; one class stands for numbers."""
    layers = dense_layers(layers_of(model, SHAPE, classes) or [])
    assert layers is not None
    layout = layout_of(model, SHAPE, classes)
    with torch.random.fork_rng():
        made = build_model(model, SHAPE, classes)
    return [
        DenseGradients(layers=layers, layout=layout, clip=clip),
        ModelGradients(model=made, layout=layout, clip=clip, num_classes=classes),
    ]


def weights_of(model: str, seed: int, scale: float = 0.3, classes: int = CLASSES) -> np.ndarray:
    size = layout_of(model, SHAPE, classes).size
    return np.random.default_rng(seed).normal(0, scale, size).astype(np.float32)


def people(
    count: int, seed: int, most_rows: int = 3, scale: float = 1.0, classes: int = CLASSES
) -> Examples:
    """Return people with one to ``most_rows`` rows each, in mixed order."""
    rng = np.random.default_rng(seed)
    whose = np.repeat(np.arange(count), rng.integers(1, most_rows + 1, count))
    rng.shuffle(whose)
    features = rng.normal(0, scale, (len(whose), *SHAPE)).astype(np.float32)
    labels = rng.integers(0, classes if classes > 1 else STEPS + 1, len(whose))
    return Examples(features, labels, whose)


def alone(examples: Examples, person: int) -> Examples:
    return examples.taken(examples.people == person)


@pytest.mark.parametrize("classes", [CLASSES, 1])
@pytest.mark.parametrize("model", MODELS)
def test_every_person_has_the_same_bits_alone_and_no_vector_is_longer_than_the_norm(
    model: str, classes: int
) -> None:
    """For every broadcast and all rows, hostile ones included, to the last bit."""
    scales = itertools.product((1e-4, 0.3, 1e4), (1e-30, 1e-3, 1.0, 1e3, 1e30))
    for seed, (clip, scale) in enumerate(scales):
        examples = people(6, seed, 1 + seed % 5, scale, classes)
        weights = weights_of(model, seed, 10.0 ** (seed % 7 - 3), classes)
        for summed in both(model, clip, classes):
            of_each = [summed(weights, alone(examples, person)) for person in range(6)]
            for found in of_each:
                assert (found == np.rint(found)).all()
                assert sum(int(each) ** 2 for each in found) <= NORM**2
            np.testing.assert_array_equal(summed(weights, examples), np.sum(of_each, axis=0))


@pytest.mark.parametrize("model", MODELS)
def test_a_row_has_the_same_bits_in_every_place_of_a_large_batch(model: str) -> None:
    """Adding, removing or moving a person does not change the vectors of others."""
    rng = np.random.default_rng(5)
    many = Examples(
        rng.normal(size=(301, *SHAPE)).astype(np.float32), rng.integers(0, CLASSES, 301)
    )
    summed, weights = both(model, 0.3)[0], weights_of(model, 5)
    whole = summed(weights, many)
    for _ in range(10):
        order = rng.permutation(301)
        left, right = np.split(order, [rng.integers(1, 301)])
        parts = [Examples(many.features[rows], many.labels[rows]) for rows in (left, right)]
        np.testing.assert_array_equal(sum(summed(weights, part) for part in parts), whole)


@pytest.mark.parametrize("classes", [CLASSES, 1])
@pytest.mark.parametrize("model", MODELS)
def test_a_persons_vector_is_the_clipped_gradient_of_the_mean_loss(
    model: str, classes: int
) -> None:
    """The result is compared with a slow version in torch, in float64 and without a grid."""
    for seed, clip in enumerate((0.05, 1.0, 50.0)):
        examples = people(30, seed, classes=classes)
        weights = weights_of(model, seed, 0.3 if classes > 1 else 0.05, classes)
        with torch.random.fork_rng():
            made = build_model(model, SHAPE, classes).double()
        nn.utils.vector_to_parameters(torch.from_numpy(weights).double(), made.parameters())
        expected = np.zeros(weights.size)
        for person in range(30):
            own = alone(examples, person)
            said = made(torch.from_numpy(own.features).double())
            if classes > 1:
                loss = nn.functional.cross_entropy(said, torch.from_numpy(own.labels))
            else:  # half the squared error, of which a larger error than 2 is cut
                assert (said.abs() < 1).all()
                loss = (said[:, 0] - torch.from_numpy(centred(own.labels))).square().mean() / 2
            parts = torch.autograd.grad(loss, list(made.parameters()))
            gradient = torch.cat([each.flatten() for each in parts]).numpy()
            expected += gradient * min(1, clip / np.linalg.norm(gradient))
        for summed in both(model, clip, classes):
            found = summed(weights, examples) * (clip / NORM)
            # The target is 255/256 of the clip, and inputs have 12 bits after the point.
            assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected) + 1e-3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("model", MODELS)
def test_only_a_person_without_a_gradient_counts_as_zeros(model: str, bad: float) -> None:
    examples, weights = people(10, 3, most_rows=1), weights_of(model, 3)
    features = examples.features.copy()
    features[4] = bad
    others = examples.people != examples.people[4]
    rest = Examples(examples.features[others], examples.labels[others])
    spoilt = Examples(features, examples.labels, examples.people)
    for summed in both(model, 0.5):
        np.testing.assert_array_equal(summed(weights, spoilt), summed(weights, rest))


@pytest.mark.parametrize("gradient", [[np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0]])
def test_a_gradient_that_is_not_finite_becomes_zeros(gradient: list[float]) -> None:
    assert not on_grid_of_clip(np.array(gradient), 1.0).any()


@pytest.mark.parametrize("size", [1e-300, 1e-10, 1.0, 1e10, 1e300])
def test_a_gradient_of_any_size_keeps_its_direction(size: float) -> None:
    gradient = np.array([3.0, -4.0]) * size
    found = on_grid_of_clip(gradient, 1.0)
    assert np.linalg.norm(found) <= NORM
    if size >= 1e-7:
        np.testing.assert_allclose(found / np.linalg.norm(found), [0.6, -0.8], rtol=1e-2)


# Attacks: every product of several rows is exact for any rows and any weights


def deep(*sizes: int, clip: float, bias: bool = True) -> DenseGradients:
    """Return sums for dense layers of these sizes, from inputs to classes."""
    pairs = list(itertools.pairwise(sizes))
    made: list[Layer] = []
    for _, units in pairs[:-1]:
        made += [Dense(units, bias=bias), Relu()]
    layers = dense_layers([Flatten(), *made, Dense(sizes[-1], bias=bias)])
    assert layers is not None
    shapes: dict[str, tuple[int, ...]] = {}
    for at, (inputs, units) in enumerate(pairs):
        shapes[f"{at}.weight"] = (units, inputs)
        if bias:
            shapes[f"{at}.bias"] = (units,)
    layout = Layout(tuple(shapes), tuple(shapes.values()))
    return DenseGradients(layers=layers, layout=layout, clip=clip)


def largest(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest partial sum of a matrix product, in whole units of it."""
    return float((np.abs(one) @ np.abs(other)).max())


@pytest.mark.parametrize(
    ("scale", "sizes"),
    [(1e30, (12, 40, 40, 3)), (0.1, (12, 9, 3)), (100.0, (12, 3)), (1e30, (5, 30, 30, 30, 2))],
)
def test_outputs_of_a_layer_are_exact_for_any_weights(sizes: tuple[int, ...], scale: float) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        summed = deep(*sizes, clip=1.0)
        # Weights of one sign are the worst case.
        weights = np.abs(rng.normal(0, scale, summed.layout.size)).astype(np.float32)
        matrices = summed._parameters(weights)
        features = rng.normal(0, 10.0 ** rng.integers(-3, 30), (64, sizes[0])).astype(np.float32)
        passed = summed._passed(matrices, features, rng.integers(0, sizes[-1], 64))
        for at, (matrix, inputs, error) in enumerate(zip(matrices, *passed, strict=True)):
            assert largest(inputs, matrix.T) * 2.0**34 <= 2.0**53
            assert (inputs * 2.0**12 == np.rint(inputs * 2.0**12)).all()
            if at:
                assert largest(error, matrix) * 2.0**42 <= 2.0**53
            assert (error * 2.0**20 == np.rint(error * 2.0**20)).all()


@pytest.mark.parametrize("inputs", [10_000, 8192, 8193, 20_000])
def test_the_norm_of_a_long_input_is_exact(inputs: int) -> None:
    """If all features are as large as possible, the square in whole steps is below 2^53."""
    summed = deep(inputs, 2, clip=1.0)
    seen: list[np.ndarray] = []

    def noting(subscripts: str, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        seen.append(one.copy())
        return np.asarray((one * other).sum(axis=1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "einsum", noting)
        summed(np.zeros(summed.layout.size, np.float32), long_rows(inputs))
    for each in seen:
        steps = [int(step) for step in each[0] * 2.0**12]
        assert sum(step * step for step in steps) <= 2**53


def long_rows(inputs: int) -> Examples:
    features = np.full((1, inputs), 1e30, np.float32)
    return Examples(features, np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("count", "clip", "sizes"), [(2, 1e-4, (1, 2)), (7, 1.0, (3, 3)), (300, 1.0, (3, 5, 3))]
)
def test_sums_are_exact_for_people_whose_rows_cancel_each_other(
    sizes: tuple[int, ...], clip: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is far longer than the mean of a person's rows, and many people have such rows."""
    summed = deep(*sizes, clip=clip)
    whole = np.tensordot

    def adding(one: np.ndarray, other: np.ndarray, axes: object) -> np.ndarray:
        assert whole(np.abs(one), np.abs(other), axes).max() <= 2.0**53  # type: ignore[arg-type]
        assert (one == np.rint(one)).all()
        assert (other == np.rint(other)).all()
        return np.asarray(whole(one, other, axes))  # type: ignore[arg-type]

    monkeypatch.setattr(np, "tensordot", adding)
    rng = np.random.default_rng(count)
    people = 600 // count + 300
    features = np.repeat(rng.normal(0, 100, (people, sizes[0])), count, axis=0)
    features[::count] += rng.normal(0, 1e-3, (people, sizes[0]))
    labels = np.tile(np.arange(count) % sizes[-1], people)
    found = summed(
        np.zeros(summed.layout.size, np.float32),
        Examples(features.astype(np.float32), labels, np.repeat(np.arange(people), count)),
    )
    assert (found == np.rint(found)).all()


@settings(max_examples=30, derandomize=True)
@given(data=st.data())
def test_no_person_changes_anothers_vector_or_has_a_longer_one(data: st.DataObject) -> None:
    """People are reordered, left out and lengthened, and everybody's bits are compared."""
    finite = st.floats(width=32, allow_nan=True, allow_infinity=True)
    sizes = data.draw(st.sampled_from([(2, 2), (3, 4, 2), (2, 3, 3, 2)]))
    clip = data.draw(st.sampled_from([1e-4, 0.3, 1e4]))
    summed = deep(*sizes, clip=clip, bias=data.draw(st.booleans()))
    size = summed.layout.size
    small = st.floats(-8, 8, width=32)
    weights = np.array(data.draw(st.lists(small, min_size=size, max_size=size)), np.float32)
    weights *= np.float32(data.draw(st.sampled_from([0.0, 0.1, 1.0, 1e6, 1e30])))
    rows = data.draw(st.integers(1, 9))
    numbers = st.one_of(finite, small)
    row = st.lists(numbers, min_size=sizes[0], max_size=sizes[0])
    features = np.array(data.draw(st.lists(row, min_size=rows, max_size=rows)), np.float32)
    labels = np.array(data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
    whose = np.array(data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)))
    examples = Examples(features, labels, whose)
    own = {who: summed(weights, alone(examples, who)) for who in np.unique(whose)}
    for found in own.values():
        assert (found == np.rint(found)).all()
        assert sum(int(each) ** 2 for each in found) <= NORM**2
    np.testing.assert_array_equal(summed(weights, examples), sum(own.values()))
    # A stable order keeps a person's rows in their order.
    order = np.argsort(np.array(data.draw(st.permutations(range(4))))[whose], kind="stable")
    np.testing.assert_array_equal(summed(weights, examples.taken(order)), sum(own.values()))
    left, longer = whose[0], data.draw(st.integers(2, 5))
    rest = examples.taken(whose != left)
    grown = examples.taken(np.concatenate([np.flatnonzero(whose == left)] * longer))
    both = Examples(
        np.concatenate([grown.features, rest.features]),
        np.concatenate([grown.labels, rest.labels]),
        np.concatenate([np.zeros(len(grown), np.int64), np.asarray(rest.people) + 1]),
    )
    others = sum((own[who] for who in own if who != left), np.zeros(size))
    np.testing.assert_array_equal(summed(weights, rest), others)
    lengthened = summed(weights, both) - others
    np.testing.assert_array_equal(lengthened, summed(weights, grown))


def test_sums_of_more_people_than_float64_holds_exactly_are_clipped_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No sum is rounded, so two sums that are 2 NORM apart do not move further apart."""
    summed = deep(1, 2, clip=1.0, bias=False)
    monkeypatch.setattr(
        DenseGradients, "_one_row", lambda self, *passed: np.array([2.0**51 + 1, -(2.0**50) - 1])
    )
    rows = 7 * 4096
    many = Examples(np.zeros((rows, 1), np.float32), np.zeros(rows, np.int64))
    found = summed(np.zeros(2, np.float32), many)
    assert found.tolist() == [2**52, -(2**52)]
    few = Examples(many.features[:4096], many.labels[:4096])
    assert summed(np.zeros(2, np.float32), few).tolist() == [2**51 + 1, -(2**50) - 1]


class Choosy(nn.Module):
    """A model that fails on some rows, gives too few outputs for others, uses a layer for some rows
    only, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = nn.Linear(12, CLASSES)
        self.rare = nn.Linear(12, CLASSES)
        self.words = nn.Embedding(3, CLASSES)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        rows = given.flatten(1)
        found = self.usual(rows) + self.words(rows[:, 0].long()) + torch.randn(len(rows), CLASSES)
        found = found + self.rare(rows) if bool((rows[:, 1] > 0.5).any()) else found
        return found[:, :2] if bool((rows[:, 2] == 7).any()) else found


def choosy() -> ModelGradients:
    with torch.random.fork_rng():
        model = Choosy()
    return ModelGradients(
        model=model, layout=layout_of_module(model), clip=0.5, num_classes=CLASSES
    )


def test_a_model_that_fails_on_one_persons_rows_affects_no_other() -> None:
    """Otherwise one person could turn the sum of many into zeros."""
    summed, rng = choosy(), np.random.default_rng(0)
    examples = people(12, 0)
    examples.features[:] = rng.random(examples.features.shape)
    weights = rng.normal(0, 0.3, summed.layout.size).astype(np.float32)
    before = torch.random.get_rng_state()
    own = [summed(weights, alone(examples, who)) for who in range(12)]
    assert all(each.any() for each in own)
    np.testing.assert_array_equal(summed(weights, examples), np.sum(own, axis=0))
    assert torch.equal(before, torch.random.get_rng_state())
    examples.features[examples.people == 5, 0, 0] = 7.0  # the model has no such word
    np.testing.assert_array_equal(summed(weights, examples), np.sum([*own[:5], *own[6:]], axis=0))
    examples.features[examples.people == 6, 0, 2] = 7.0  # the model has too few outputs for it
    examples.labels[examples.people == 6] = CLASSES - 1
    rest = [each for who, each in enumerate(own) if who not in (5, 6)]
    np.testing.assert_array_equal(summed(weights, examples), np.sum(rest, axis=0))
    logits, failed = summed.logits(weights, examples), np.isin(examples.people, [5, 6])
    assert np.isnan(logits[failed]).all()
    assert np.isfinite(logits[~failed]).all()
    for row in range(len(examples)):
        one = summed.logits(weights, examples.taken(slice(row, row + 1)))[0]
        np.testing.assert_array_equal(one, logits[row])
