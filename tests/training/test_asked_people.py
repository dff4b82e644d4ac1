"""Questions: exact integers, the distance of two people, and cells for whatever a server tells."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit, softmax

from fedldp.core.errors import RunError
from fedldp.data.examples import Examples
from fedldp.data.label_range import STEPS
from fedldp.protocol.wire import Broadcast
from fedldp.training import questions
from fedldp.training.exact_sums import NORM, exp, summed_shares
from fedldp.training.questions import (
    ASKED,
    EDGES,
    Question,
    Rows,
    Table,
    log_odds,
)

TABLES: list[Table] = [
    questions.labels(2),
    questions.right(),
    questions.scores((-1.0, 0.0, 0.5)),
    questions.crossed(questions.one_class(1), questions.told_bands(4)),
    questions.crossed(questions.right(), questions.labels(2)),
    questions.labels(1),
]
ODD = [0.0, -0.0, 1.5, -1.0, 1e30, -1e30, 3e38, np.nan, np.inf, -np.inf, 1e-40]


def rows(labels: list[int], logits: Any, people: list[int] | None = None) -> Rows:
    whose = None if people is None else np.array(people)
    examples = Examples(np.zeros((len(labels), 1), np.float32), np.array(labels, np.int64), whose)
    return Rows(examples=examples, logits=lambda: np.asarray(logits, np.float64).reshape(-1, 2))


def asked(question: Question, given: Rows, edges: Any = (0.0,)) -> list[int]:
    told = Broadcast(
        round=3,
        weights=np.zeros(1, np.float32),
        public={EDGES: np.atleast_2d(np.array(edges, np.float32))},
    )
    return [int(each) for each in question.told(told)(given)]


def apart(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def vectors_of(question: Question, kinds: list[Any], made: Any, edges: Any) -> list[list[int]]:
    """Return the vector of every person of up to three rows of these kinds."""
    return [
        asked(question, made([a for a, _ in own], [b for _, b in own], [0] * len(own)), edges)
        for number in (1, 2, 3)
        for own in itertools.combinations_with_replacement(kinds, number)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 8])
def test_no_two_people_of_a_few_rows_are_further_apart_than_the_distance(count: int) -> None:
    """Every person of up to three rows is tried, with all other people, in exact integers."""
    question = Question((TABLES * 2)[:count])
    squared_norm = 2 * NORM**2
    kinds = itertools.product((0, 1), [(0.0, 0.0), (0.0, 3.0), (np.nan, 0.0)])
    vectors = vectors_of(question, list(kinds), rows, (0.0,))
    assert all(each >= 0 for vector in vectors for each in vector)
    longest = max(sum(each**2 for each in vector) for vector in vectors)
    assert (1 - 1e-8) * squared_norm < longest <= squared_norm
    distance = max(itertools.starmap(apart, itertools.combinations(vectors, 2)))
    assert distance <= 2 * squared_norm <= (2 * NORM) ** 2
    if count in (1, 2):  # reached, by people in different cells of each table
        assert distance > (1 - 1e-8) * 2 * squared_norm


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_replacing_one_person_moves_a_sum_by_at_most_the_distance(data: st.DataObject) -> None:
    """Whatever a server tells, and whatever labels and scores the people have."""
    tables = data.draw(st.lists(st.sampled_from(TABLES), min_size=1, max_size=6))
    question = Question(tables)
    edges = data.draw(st.lists(st.sampled_from(ODD), min_size=1, max_size=3))

    def person(number: int) -> tuple[list[int], list[list[float]]]:
        score = st.floats(allow_nan=True, allow_infinity=True)
        logits = st.lists(score, min_size=2, max_size=2)
        return (
            data.draw(st.lists(st.integers(0, 9), min_size=number, max_size=number)),
            data.draw(st.lists(logits, min_size=number, max_size=number)),
        )

    numbers = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))
    everybody = [person(number) for number in numbers]
    other = person(data.draw(st.integers(1, 9)))

    def total(chosen: list[tuple[list[int], list[list[float]]]]) -> list[int]:
        whose = [who for who, (labels, _) in enumerate(chosen) for _ in labels]
        labels = [label for each, _ in chosen for label in each]
        return asked(
            question, rows(labels, [row for _, each in chosen for row in each], whose), edges
        )

    before, after = total(everybody), total([other, *everybody[1:]])
    assert apart(before, after) <= (2 * NORM) ** 2
    alone = [total([each]) for each in everybody]
    assert before == [sum(column) for column in zip(*alone, strict=True)]
    assert max(max(each) for each in alone) <= question.norm <= ASKED


NUMBERS: list[Table] = [
    questions.crossed(questions.told_bands(4), questions.places("label")),
    questions.places("prediction", 32),
    questions.places("error"),
    questions.explained(True, 3, row=0),
    questions.explained(False, 3, row=0),
]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4, 5, 7])
def test_no_two_people_with_numbers_are_further_apart_than_the_distance(count: int) -> None:
    """Every person of up to three rows is tried, with all other people, in exact integers."""
    question = Question((NUMBERS * 2)[:count])
    kinds = list(itertools.product((0, STEPS // 3 + 1, STEPS + 9), (-1.0, 0.3, 1e30, np.nan)))
    edges = (-1.0, 1.0), (0.0, 0.0), (-1.0, 1.0)
    vectors = np.array(vectors_of(question, kinds, number_rows, edges))
    assert vectors.min() >= 0
    steps = [0, *np.cumsum([table.cells for table in question.tables])]
    for start, stop in itertools.pairwise(steps):
        assert vectors[:, start:stop].sum(axis=1).max() <= question.norm
    assert np.square(vectors).sum(axis=1).max() <= 2 * NORM**2  # below 2^63, as tables' sums are
    far = [np.square(vectors - one).sum(axis=1).max() for one in vectors]
    assert (1 - 1e-8) * 4 * NORM**2 < max(far) <= (2 * NORM) ** 2


@pytest.mark.parametrize("gain", [True, False])
def test_what_r2_is_computed_of_has_a_place_whatever_a_server_tells(gain: bool) -> None:
    """Where ranges are told that hold all numbers, the place is exact."""
    table = questions.explained(gain, 3, row=0)
    labels, said = np.meshgrid([0, 1, STEPS // 3, STEPS], [-1e30, -1.0, 0.25, 1.0, np.inf, np.nan])
    given = number_rows(labels.ravel().tolist(), said.ravel().tolist())
    for odd in itertools.product(ODD, repeat=3):
        place = table.told({EDGES: np.resize(odd, (3, 2)), "more": np.zeros(0)})(given)
        assert ((place >= 0) & (place <= table.cells - 1)).all()
        assert ((place > table.cells - 2) == np.isnan(said.ravel())).all()
    place = table.told({EDGES: np.array([[-1.0, 1.0], [0.5, 0.5], [-1.0, 1.0]])})(given)
    y, p = 2 * labels.ravel() / STEPS - 1, said.ravel().clip(-1, 1)
    exact = ((y - 0.5) ** 2 - (y - p) ** 2) / 3.75 + 1 if gain else (y - 0.5) ** 2 / 2.25
    assert place[~np.isnan(p)] == pytest.approx(exact[~np.isnan(p)])


def number_rows(labels: list[int], said: list[float], people: list[int] | None = None) -> Rows:
    given = rows(labels, np.zeros((len(labels), 2)), people)
    return Rows(examples=given.examples, logits=lambda: np.array(said, float)[:, None])


def test_a_row_between_two_cells_is_divided_by_its_place() -> None:
    """Means over cells are exact, whatever the cells."""
    cells = np.array([3.25, 0.0, 5.0, 9.0, -2.0, 1.5])
    whose = np.array([0, 1, 1, 2, 3, 0])
    found = summed_shares(cells, whose, 6, 1 << 30)
    assert found.tolist() == [3 << 29, 1 << 28, 1 << 28, 3 << 27, 1 << 27, 3 << 29]
    generator = np.random.default_rng(0)
    places, people = generator.random(5_000) * 7, generator.integers(0, 60, 5_000)
    found = summed_shares(places, people, 8, ASKED)
    means = [places[people == who].mean() for who in range(60)]
    assert np.arange(8) @ found / ASKED == pytest.approx(sum(means), abs=1e-5)
    number = 200_003  # rows of one person, whose products would not fit into 64 bits
    found = summed_shares(np.full(number, 0.75), np.zeros(number, int), 2, ASKED)
    assert found.tolist() == [ASKED // 4, 3 * ASKED // 4]


def test_whole_places_are_cells() -> None:
    generator = np.random.default_rng(1)
    cells, people = generator.integers(-1, 9, 900), generator.integers(0, 50, 900)
    whole = summed_shares(cells, people, 7, ASKED)
    assert (summed_shares(cells.astype(float), people, 7, ASKED) == whole).all()


def test_the_log_odds_of_one_class_are_against_all_others() -> None:
    generator = np.random.default_rng(2)
    logits = 5 * generator.normal(size=(50, 4))
    for label in range(4):
        share = softmax(logits, axis=1)[:, label]
        assert log_odds(logits, label) == pytest.approx(logit(share))
    assert (log_odds(logits[:, :2]) == logits[:, 1] - logits[:, 0]).all()
    odd = np.array([[np.inf, 0, 0], [0, np.inf, 0], [np.inf, np.inf, 1], [np.nan, 1, 1]])
    assert log_odds(odd, 1).tolist()[:2] == [-np.inf, np.inf]
    assert np.isnan(log_odds(odd, 1)[2:]).all()
    assert np.isfinite(log_odds(np.array([[-900.0, 0, 900.0]]), 0)).all()


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_log_odds_of_a_row_are_the_same_bits_whatever_is_computed_with_it(order: Any) -> None:
    generator = np.random.default_rng(3)
    for rows, classes in itertools.product((1, 2, 9, 70), (2, 3, 9, 40)):
        logits = np.asarray(9 * generator.normal(size=(rows, classes)), order=order)
        found = log_odds(logits, 1)
        for row, told in zip(logits.tolist(), found.tolist(), strict=True):
            others = [each for label, each in enumerate(row) if label != 1]
            powers = [float(exp(np.array([each - max(others)]))[0]) for each in others]
            total = 0.0
            for power in powers:  # one after another: a sum of floats depends on its order
                total += power
            assert told == row[1] - max(others) - math.log(total)


def test_a_person_gives_the_shares_of_that_persons_rows() -> None:
    found = asked(
        Question((questions.labels(4),)), rows([0, 0, 1, 2, 2, 2], np.zeros(12), [5, 5, 5, 1, 9, 9])
    )
    assert found == [2 * ASKED // 3, ASKED // 3, 2 * ASKED, 0]
    assert asked(Question((questions.labels(4),)), rows([0, 0, 1, 2], np.zeros(8))) == [
        2 * ASKED, ASKED, ASKED, 0,
    ]  # fmt: skip
    assert asked(Question((questions.labels(4),)), rows([], [])) == [0] * 4


def test_a_label_that_the_agreement_does_not_know_is_in_a_cell() -> None:
    assert asked(Question((questions.labels(2),)), rows([7], [0, 0])) == [0, ASKED]


def test_pairs_of_cells_are_counted_one_table_after_another() -> None:
    found = asked(
        Question((questions.crossed(questions.labels(3), questions.right()),)),
        rows([0, 1, 1, 2, 7], [[1, 0], [1, 0], [0, 1], [1, 0], [0, 1]]),
    )
    assert found == [0, ASKED, ASKED, ASKED, 2 * ASKED, 0]


def test_many_rows_of_a_person_count_once() -> None:
    number = 100_003
    given = rows([0] * number + [1] * 7, np.zeros((number + 7, 2)), [0] * (number + 7))
    found = asked(Question((questions.labels(2),)), given)
    assert found == [number * ASKED // (number + 7), 7 * ASKED // (number + 7)]


@pytest.mark.parametrize("edges", [[3.0, 1.0], [np.nan, np.inf, -np.inf], [0.0] * 3, ODD[:3]])
def test_every_score_is_in_one_band_whatever_edges_are_told(edges: list[float]) -> None:
    scores = [-np.inf, -5.0, 0.0, 0.7, 1.5, 4.0, np.inf, np.nan]
    question = Question((questions.crossed(questions.one_class(1), questions.told_bands(4)),))
    logits = [[0.0, score] for score in scores]
    found = asked(question, rows([0, 1] * 4, logits), edges)
    assert sum(found) == 8 * ASKED
    assert found[4::5] == [0, ASKED]  # NaN, of label 1


def test_bands_are_between_edges_and_upper_ends_are_in_the_next_band() -> None:
    logits = [[0.0, score] for score in (-1.0, 0.0, 0.5, 2.0)]
    found = asked(
        Question((questions.crossed(questions.one_class(1), questions.told_bands(4)),)),
        rows([0, 0, 1, 1], logits),
        [2.0, 0.0],
    )
    assert found == [ASKED, ASKED, 0, 0, 0, 0, ASKED, ASKED, 0, 0]


@pytest.mark.parametrize(
    "public", [{}, {EDGES: np.zeros(2)}, {EDGES: np.zeros((0, 2))}, {EDGES: np.zeros((1, 4))}]
)
def test_a_broadcast_without_edges_is_refused_before_an_example_is_looked_at(public: Any) -> None:
    told = Broadcast(round=7, weights=np.zeros(1, np.float32), public=public)
    with pytest.raises(RunError, match=r"round 7: the broadcast does not have 1 to 3 edges"):
        Question((questions.crossed(questions.one_class(1), questions.told_bands(4)),)).told(told)


def test_the_norm_of_each_table_is_a_whole_number_rounded_down() -> None:
    for count in range(1, 40):
        norm = Question([questions.labels(2)] * count).norm
        assert count * norm**2 <= 2 * NORM**2 < count * (norm + 1) ** 2
    assert Question([questions.labels(2)]).norm == ASKED == math.isqrt(2 * NORM**2)
