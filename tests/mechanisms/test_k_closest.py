"""The k closest of many directions: the law of a report, directions, and moments."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact import exp_bounds
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import hadamard
from scripted import Words

from fedldp.accounting.events import PureReport
from fedldp.core.randomness import Stream
from fedldp.mechanisms import stated_event
from fedldp.mechanisms.k_closest import FrameChoice, Frames, KClosest, _top_sum
from fedldp.mechanisms.rotation import transform

EPSILONS = [1e-6, 0.5, 1.0, 4.0, 8.0, 16.0, 32.0]
SMALL = Frames(8, 2)


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=6, round=1, client=number, purpose="k closest")


def seeds(count: int) -> list[bytes]:
    return [stream(number).bytes(16).tobytes() for number in range(count)]


def directions(frames: Frames, seed: bytes) -> NDArray[np.float64]:
    """Return all M directions in the order of their categories, by definition, with matrices."""
    matrix = hadamard(frames.dimension).astype(float)
    packed = frames.signs([seed])[0]
    bits = np.unpackbits(packed.reshape(-1))[: (frames.count + 2) * frames.dimension]
    first, second, *others = (1.0 - 2.0 * bits).reshape(-1, frames.dimension)
    found = []
    for own in others:
        rows = matrix @ np.diag(own) @ matrix @ np.diag(second) @ matrix @ np.diag(first)
        for row in rows / frames.dimension:
            found += [row, -row]
    return np.array(found)


def closest_of(inner: NDArray[np.float64], closest: int) -> set[int]:
    """Return the k categories with the largest inner products by sorting; the lower number wins
    ties."""
    order = sorted(range(inner.size), key=lambda i: (-inner[i], i))
    return set(order[:closest])


def plainly(choice: FrameChoice, along: NDArray[Any], place: int) -> int:
    """Return the category at a place, using lists: the k closest, their opposites, the others."""
    pairs = sorted(range(along.size), key=lambda i: (-abs(along[i]), i))[: choice.closest]
    first = [2 * i + int(along[i] < 0) for i in sorted(pairs)]
    taken = set(first) | {category ^ 1 for category in first}
    others = [c for c in range(choice.frames.directions) if c not in taken]
    return [*first, *(category ^ 1 for category in first), *others][place]


# The law of a report, exactly


def starts_of(choice: FrameChoice) -> list[int]:
    """Return the first word of each place, and the first word that is drawn again."""
    window, k = choice.window, choice.closest
    inside = [place * window.high for place in range(k)]
    outside = range(k * window.high, window.total + 1, window.low)
    return [*inside, *outside]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("closest", [1, 3, 16])
def test_each_place_has_as_many_words_as_its_weight(epsilon: float, closest: int) -> None:
    choice = FrameChoice(epsilon, SMALL, closest)
    window, starts = choice.window, starts_of(choice)
    assert len(starts) == 33
    assert starts[-1] == window.total < 1 << 64
    for place, (start, stop) in enumerate(itertools.pairwise(starts)):
        assert stop - start == (window.high if place < closest else window.low)
        for word in (start, (start + stop) // 2, stop - 1):
            assert choice.place(Words(word)) == place  # type: ignore[arg-type]
    again = Words(window.total, 2**64 - 1, 0)
    assert choice.place(again) == 0  # type: ignore[arg-type]
    assert again.words == []


def law(choice: FrameChoice, unit: NDArray[np.float64], seed: bytes) -> dict[int, Fraction]:
    """Return the probability of each category given a seed, from the words of all places."""
    along = choice.frames.along(unit[None], [seed])
    found: dict[int, Fraction] = {}
    for start, stop in itertools.pairwise(starts_of(choice)):
        category = int(choice.draw(along, [Words(start)])[0])  # type: ignore[list-item]
        assert category not in found
        found[category] = Fraction(stop - start, choice.window.total)
    assert sorted(found) == list(range(choice.frames.directions))
    assert sum(found.values()) == 1
    return found


def some_units(size: int) -> list[NDArray[np.float64]]:
    units = [np.eye(size)[0], np.ones(size), np.r_[1.0, -1.0, np.zeros(size - 2)]]
    units += list(np.random.default_rng(0).normal(size=(5, size)))
    return [unit / np.linalg.norm(unit) for unit in units]


@pytest.mark.slow
@pytest.mark.parametrize(("closest", "epsilon"), [(1, 1e-6), (5, 0.5), (16, 4.0), (1, 32.0)])
def test_no_two_inputs_are_distinguished_by_more_than_the_ratio_of_weights(
    epsilon: float, closest: int
) -> None:
    choice = FrameChoice(epsilon, SMALL, closest)
    exact = Fraction(choice.window.high, choice.window.low)
    worst = Fraction(1)
    for seed in seeds(3):
        laws = [law(choice, unit, seed) for unit in some_units(8)]
        for first, second in itertools.permutations(laws, 2):
            ratios = {first[c] / second[c] for c in first}
            assert ratios <= {Fraction(1), exact, 1 / exact}
            worst = max(worst, *ratios)
    assert worst == exact
    assert exact <= exp_bounds(Fraction(epsilon))[0]
    assert exact <= exp_bounds(Fraction(choice.realised_epsilon))[1]


@pytest.mark.parametrize("epsilon", [*EPSILONS, 1e9])
@pytest.mark.parametrize("size", [1, 2000, 7850, 100_000, (1 << 26) - 1])
def test_the_weights_of_every_size_stay_within_the_event(epsilon: float, size: int) -> None:
    mechanism = KClosest(epsilon, 1.0)
    choice, used = mechanism.choice(size), min(epsilon, 32.0)
    window, event = choice.window, mechanism.event(size)
    assert isinstance(event, PureReport)
    assert not event.idealised
    assert stated_event(mechanism, size) == event
    assert 0 < window.low < window.high
    assert window.total < 1 << 64
    ratio = Fraction(window.high, window.low)
    assert ratio <= exp_bounds(Fraction(used))[0]
    assert ratio <= exp_bounds(Fraction(event.epsilon))[1]
    assert event.epsilon <= used
    assert event.epsilon == pytest.approx(used, rel=1e-3)
    assert 1 <= choice.closest <= choice.frames.pairs
    assert 0 < choice.scale < math.inf


# Blocks


@pytest.mark.parametrize(("closest", "epsilon"), [(1, 0.5), (5, 4.0), (16, 4.0)])
def test_the_choice_of_block_is_as_private_as_the_direction(epsilon: float, closest: int) -> None:
    choice = FrameChoice(epsilon, SMALL, closest, blocks=3)
    window, (seed,) = choice.window, seeds(1)
    assert window.cells == 3 * 32
    laws, units = [], some_units(8)[:3]
    for own, unit in itertools.product(range(3), units):
        along, found = SMALL.along(unit[None], [seed]), {}
        for start, stop in itertools.pairwise(starts_of(choice)):
            (category,) = choice.draw(along, [Words(start)], np.array([own]))  # type: ignore[list-item]
            found[int(category)] = Fraction(stop - start, window.total)
        assert sorted(found) == list(range(96))
        top = {category for category, share in found.items() if share * window.total > window.low}
        assert top <= set(range(32 * own, 32 * own + 32))
        assert len(top) == closest
        laws.append(found)
    exact = Fraction(window.high, window.low)
    for first, second in itertools.permutations(laws, 2):
        assert {first[c] / second[c] for c in first} <= {Fraction(1), exact, 1 / exact}


def test_the_event_counts_the_categories_of_all_blocks() -> None:
    mechanism = KClosest(4.0, 1.0, blocks=10)
    event, stated = mechanism.event(10 * 201), mechanism.category(10 * 201)
    assert stated.categories == 10 * 4096
    assert stated.closest == mechanism.choice(10 * 201).closest
    assert Fraction(stated.high, stated.low) <= exp_bounds(Fraction(event.epsilon))[1]
    assert event.epsilon == pytest.approx(4.0, rel=1e-6)
    assert event.epsilon <= 4


def test_a_vector_in_one_block_is_estimated_without_bias() -> None:
    x = np.zeros((4, 30))
    x[2] = np.random.default_rng(7).normal(size=30)
    x[2] *= 0.8 / np.linalg.norm(x[2])
    mechanism, reports = KClosest(8.0, 1.0, blocks=4), 3000
    aggregate = mechanism.aggregate(120)
    given = [stream(n) for n in range(reports)]
    for payload in mechanism.encode_many(np.tile(x.ravel(), (reports, 1)), given):
        aggregate.add(payload.tobytes())
    variance = mechanism.variance(x.ravel())
    found = (aggregate.mean() - x.ravel()) / np.sqrt(variance / reports)
    assert abs(found @ x.ravel()) / 0.8 < 5  # along x
    assert np.abs(found).max() < 5
    assert stats.chi2(120).ppf([1e-6, 1 - 1e-6])[0] < (found**2).sum()
    assert (found**2).sum() < stats.chi2(120).ppf(1 - 1e-6)


def test_the_longest_block_is_the_same_alone_and_in_a_batch() -> None:
    mechanism = KClosest(4.0, 1.0, blocks=5)
    rows = np.random.default_rng(8).normal(size=(40, 5 * 33))
    rows[3] = 0
    rows[4] *= 1e300
    block = mechanism.encode_many(rows, [stream(n) for n in range(40)])
    for at in (0, 3, 4, 39):
        alone = mechanism.encode(rows[at], stream(at))
        assert alone == block[at].tobytes()
        kept = mechanism.bound(rows[at]).reshape(5, 33).any(1)
        assert kept.sum() == (at != 3)


# Directions


@pytest.mark.parametrize("bits", [0, 1, 5, 6, 7, 11, 13])
def test_the_transform_agrees_with_the_matrix(bits: int) -> None:
    numbers, kind = np.random.default_rng(bits), (np.float32, np.float64)[bits % 2]
    rows = numbers.integers(-9, 10, (3, 1 << bits)).astype(kind)
    given, spare = rows.copy(), np.empty_like(rows)
    found, free = transform(given, spare)
    assert {id(found), id(free)} == {id(given), id(spare)}
    assert found.dtype == kind
    assert found.shape == rows.shape
    # Some of its columns: entry (i, j) is -1 to the power of the number of bits that i and j share.
    columns = numbers.permutation(1 << bits)[:64]
    shared = np.bitwise_count(np.arange(1 << bits)[:, None] & columns)
    np.testing.assert_array_equal(
        found[:, columns], rows.astype(int) @ (1 - 2 * (shared.astype(int) % 2))
    )


@pytest.mark.parametrize("frames", [Frames(8, 1), Frames(16, 1), Frames(64, 3)])
def test_directions_agree_with_the_definition(frames: Frames) -> None:
    for seed in seeds(3):
        matrix = directions(frames, seed)
        for frame in range(frames.count):
            part = matrix[2 * frame * frames.dimension :: 2][: frames.dimension]
            np.testing.assert_allclose(
                part @ part.T, frames.dimension * np.eye(frames.dimension), atol=1e-9
            )
        for size in {1, frames.dimension - 1, frames.dimension}:
            for category in {0, 1, frames.directions // 2 + 1, frames.directions - 1}:
                (found,) = frames.rows([seed], np.array([category]), size)
                expected = matrix[category, :size] * frames.dimension
                np.testing.assert_allclose(found, expected, atol=1e-9)
                assert (found == np.rint(found)).all()


@pytest.mark.parametrize("frames", [Frames(16, 2), Frames(256, 3)])
def test_the_closest_agree_with_the_definition(frames: Frames) -> None:
    for number, (seed, unit) in enumerate(zip(seeds(8), some_units(frames.dimension), strict=True)):
        inner = directions(frames, seed) @ unit
        along = frames.along(unit[None], [seed])
        assert (along == np.rint(along)).all()
        scaled = along[0] * (inner[::2] @ along[0]) / (along[0] @ along[0])
        np.testing.assert_allclose(scaled, inner[::2], atol=1e-3)
        if number >= 3:  # no ties
            choice = FrameChoice(2.0, frames, 11)
            found = {
                int(choice.draw(along, [Words(start)])[0])  # type: ignore[list-item]
                for start in starts_of(choice)[:11]
            }
            assert found == closest_of(inner, 11)


@pytest.mark.slow
@pytest.mark.parametrize("closest", [1, 300, 6140, 6144])
def test_the_closest_agree_with_sorting(closest: int) -> None:
    frames = Frames(2048, 3)
    choice = FrameChoice(2.0, frames, closest)
    usual = frames.along(some_units(2048)[-1][None], seeds(1))[0]
    # Most rows do not have the expected size, have many ties, or both.
    rows = np.stack(
        [usual, -usual, 3 * usual, np.rint(usual / 1e3), np.rint(usual / 1e5), 0 * usual]
    ).astype(usual.dtype)
    starts = starts_of(choice)
    for place in {0, closest - 1, closest, 2 * closest - 1, closest // 2, len(starts) - 2}:
        found = choice.draw(
            rows,
            [Words(starts[place]) for _ in rows],  # type: ignore[misc]
        )
        for row, category in zip(rows, found, strict=True):
            assert category == plainly(choice, row, place)


# Moments


@pytest.mark.parametrize(
    ("frames", "k"), [((32, 1), 1), ((32, 1), 10), ((32, 3), 3), ((32, 3), 60)]
)
def test_the_sum_of_the_closest_is_that_of_random_frames(frames: tuple[int, int], k: int) -> None:
    dimension, count = frames
    normal = np.random.default_rng(3).normal(size=(40_000, count, dimension))
    normal *= math.sqrt(dimension) / np.linalg.norm(normal, axis=2, keepdims=True)
    top = np.sort(np.abs(normal.reshape(len(normal), -1)), axis=1)[:, -k:]
    for power in (1, 2):
        sums = (top**power).sum(1)
        error = sums.std() / math.sqrt(len(sums))
        found = _top_sum(Frames(dimension, count), k, power)  # type: ignore[arg-type]
        assert abs(sums.mean() - found) < 5 * error + 0.004 * found


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0, 8.0, 16.0])
def test_no_other_number_of_closest_is_better(epsilon: float) -> None:
    chosen = KClosest(epsilon, 1.0).choice(500)
    for other in {1, 2, 5, 40, 300, 1000, 1700, 2048, chosen.closest - 7, chosen.closest + 7}:
        if 1 <= other <= chosen.frames.pairs:
            assert FrameChoice(epsilon, chosen.frames, other).scale <= chosen.scale
