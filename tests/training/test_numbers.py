"""Labels that are numbers: their steps, people's vectors, and what is learned without noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score

from fedldp.core.errors import ConfigError, DataError
from fedldp.data.examples import Dataset, Examples
from fedldp.data.label_range import STEPS, LabelRange, centred
from fedldp.reporting.scores import of_numbers
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import from_mapping
from fedldp.training.column_sums import BLOCK, column_sums

FINITE = st.floats(-1e30, 1e30, allow_nan=False)


# Steps of a range


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(0, STEPS))
def test_a_label_is_the_label_of_its_number(low: float, width: float, label: int) -> None:
    within = LabelRange(low, low + width)
    steps = np.array([label])
    assert within.steps(within.numbers(steps)) == steps
    assert centred(steps)[0] == 2 * label / STEPS - 1


@given(FINITE)
def test_a_number_beyond_an_end_is_that_end(number: float) -> None:
    within = LabelRange(-3, 60)
    found = float(within.numbers(within.steps(np.array([number])))[0])
    assert found == pytest.approx(min(max(number, -3), 60), abs=63 / STEPS)


# One person's vector


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_a_measuring_vector_holds_the_mean_place_of_a_persons_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.pad(rng.normal(0, 1 / 3, (9, 5)), ((0, 0), (0, 1)), constant_values=0.3)
    whose, labels = rng.integers(0, 4, 9), rng.integers(0, STEPS + 1, 9)
    examples = Examples(rows.astype(np.float32), labels, whose)
    total = np.zeros(11)
    for person in np.unique(whose):
        own = examples.taken(whose == person)
        found = column_sums(own, 1)
        place = own.labels.mean() / STEPS
        assert found[0] == pytest.approx(place * BLOCK, rel=1e-6, abs=2)
        assert 0 <= found[0] <= BLOCK
        assert sum(int(each) ** 2 for each in found) <= 3 * BLOCK**2
        total += found
    np.testing.assert_array_equal(column_sums(examples, 1), total)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_a_label_beyond_the_range_counts_as_an_end_where_columns_are_measured(
    labels: list[int],
) -> None:
    features = np.full((len(labels), 3), 0.3, np.float32)
    found = column_sums(Examples(features, np.array(labels), np.zeros(len(labels), np.int64)), 1)
    assert 0 <= found[0] <= BLOCK
    assert sum(int(each) ** 2 for each in found) <= 3 * BLOCK**2


# Without noise


def made(seed: int, count: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    return x, 10 + x @ [3.0, -2.0, 0.0, 1.0] + rng.normal(0, 2, count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "measured"), [("named", 0.0), ("named", 0.1), ("sum", 0.1), ("central", 0.1)]
)
def test_without_noise_the_model_is_that_of_least_squares(channel: str, measured: float) -> None:
    x, y = made(1)
    x /= np.linalg.norm(x, axis=1, keepdims=True)  # as unit-norm makes them
    y = 10 + x @ [3.0, -2.0, 0.0, 1.0] + np.random.default_rng(2).normal(0, 0.5, len(y))
    data = Dataset.from_arrays(x, y, label_range=(-10, 30), test=(x, y))
    settings_: dict[str, Any] = {
        "system": "person_dp_sgd", "num_clients": 3, "channel": channel, "model": "linear",
        "features": "unit-norm", "rounds": 150, "epsilon": 1e4, "clip": 10.0, "learning_rate": 1.5,
        "measure_share": measured, "label_range": [-10, 30], "label_typical": 9.0, "dataset": "own",
    }  # fmt: skip
    result = simulate(from_mapping(settings_), dataset=data)
    best = LinearRegression().fit(x, y).predict(x)
    said = result.predict(x)
    assert np.abs(said - best).max() < 0.15
    last = result.rounds[-1].metrics
    assert last["r2"] == pytest.approx(r2_score(y, said), abs=1e-4)
    assert last["mae"] == pytest.approx(mean_absolute_error(y, said), abs=1e-4)
    assert result.rounds[-1].accuracy is None


@given(st.integers(0, 1000), st.integers(1, 60))
@settings(max_examples=25, deadline=None)
def test_scores_are_those_of_scikit_learn(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    within, labels = LabelRange(-5, 20), rng.integers(0, STEPS + 1, count)
    outputs = rng.normal(size=count)
    found = of_numbers(labels, outputs, within)
    true, said = within.numbers(labels), within.restored(outputs)
    assert found["mae"] == pytest.approx(mean_absolute_error(true, said))
    assert count > 1 or found["r2"] == (found["mae"] == 0)
    if count > 1:
        assert found["r2"] == pytest.approx(r2_score(true, said))
    equal = of_numbers(np.full(count, labels[0]), outputs, within)
    assert equal["r2"] == (equal["mae"] == 0)
    exact = of_numbers(labels, centred(labels), within)
    assert exact["r2"] == 1
    assert exact["mae"] == exact["calibration_gap"] == 0


# Refusals


def refusal(mistake: Any, kind: type[Exception] = ConfigError) -> str:
    with pytest.raises(kind) as found:
        mistake()
    (line,) = str(found.value).splitlines()
    return line


RUN: dict[str, Any] = {
    "system": "person_dp_sgd", "dataset": "own", "num_clients": 2, "model": "linear",
    "features": "unit-norm", "rounds": 5, "epsilon": 1.0, "learning_rate": 1.0,
    "label_range": [-10, 30],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"label_range": None}, "label_range = None: the data set custom has label_range = [-10"),
        ({"label_range": [0, 30]}, "label_range = [0, 30]: the data set custom has label_range ="),
        ({"label_typical": 3.0, "model": "mlp_64"}, "label_typical = 3.0, model = mlp_64"),
        ({"system": "fedavg", "epsilon": None, "features": None},
         r"label_range = [-10.0, 30.0]: this system trains models for classes; numbers are"),
    ],
)  # fmt: skip
def test_what_is_not_for_numbers_is_refused(changes: dict[str, Any], says: str) -> None:
    x, y = made(0, 40)
    data = Dataset.from_arrays(x, y, label_range=(-10, 30))
    given_ = {name: value for name, value in (RUN | changes).items() if value is not None}
    assert says in refusal(lambda: simulate(from_mapping(given_), dataset=data))


def test_labels_that_are_no_numbers_are_refused_and_numbers_name_the_setting() -> None:
    x, y = made(0, 40)
    bad = y.copy()
    bad[7] = np.nan
    line = refusal(lambda: Dataset.from_arrays(x, bad, label_range=(-10, 30)), DataError)
    assert "row 7 is 'nan', which is not a finite number, but label_range = [-10, 30]" in line
    line = refusal(lambda: Dataset.from_arrays(x, y), DataError)
    assert "is a number but not an integer" in line
    assert "to predict numbers, their public range: label_range = [LOW, HIGH]" in line
    line = refusal(
        lambda: simulate(from_mapping(RUN), dataset=Dataset.from_arrays(x, (y > 10).astype(int)))
    )
    assert "label_range = [-10, 30]: the data set custom has label_range = None" in line


def test_whole_days_are_told_from_classes(caplog: pytest.LogCaptureFixture) -> None:
    days = np.arange(60) % 25
    Dataset.from_arrays(np.random.default_rng(0).random((60, 2)), days)
    assert "the labels are whole numbers from 0 to 24, and are read as 25 classes" in caplog.text
    assert "label_range = [LOW, HIGH]" in caplog.text
