"""Declared centres of a table's columns, and rows of norm 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unlabelled import load_features

import fedldp
from fedldp.core.errors import DataError
from fedldp.core.kinds import DECLARED_PUBLIC, RESTS_ON
from fedldp.core.randomness import numbered_generator
from fedldp.data import Columns
from fedldp.data.image_features import unit
from fedldp.data.public_features import finite_rows, unit_norm
from fedldp.simulation.plan import plan, problem_of

TABLE = "age,sex,weight,label\n60,f,3,0\n150,m,5,1\n30,f,4,0\n90,m,4,1\n"
COLUMNS: dict[str, Any] = {
    "scaled": {"age": (0, 120)},
    "categories": {"sex": ("f", "m")},
    "ignored": (),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text(TABLE)
    return tmp_path / "rows.csv"


def test_a_centre_is_given_in_its_columns_unit_and_becomes_zero(table: Path) -> None:
    centres = {"age": 30.0, "sex=f": 0.25, "weight": 4.0}
    plain = load_features(table, columns=Columns(**COLUMNS))
    found = load_features(table, columns=Columns(**COLUMNS, centres=centres))
    np.testing.assert_allclose(found, plain - np.array([0.25, 0.25, 0, 4]), rtol=1e-6)
    assert found[:, 0].tolist() == [0.25, 0.75, 0, 0.5]  # 150 is beyond the range


def test_a_spread_makes_the_typical_value_zero_and_clips_beyond_three_spreads(table: Path) -> None:
    declared: dict[str, Any] = {**COLUMNS, "scaled": {}, "spreads": {"age": (60.0, 20.0)}}
    found = load_features(table, columns=Columns(**declared))
    assert found[:, 0].tolist() == [0, 3, -1.5, 1.5]  # 150 is 4.5 spreads above
    assert found[:, 1:3].tolist() == [[0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [-0.5, 0.5]]
    filled = Columns(**declared, filled={"age": 40.0}, centres={"sex=f": 0.25})
    table.write_text(TABLE.replace("60,", ",").replace("150,", "1e38,"))
    found = load_features(table, columns=filled)
    assert found[:2, :2].tolist() == [[-1, 1], [3, 0]]  # the second feature marks a missing value
    assert found[:2, 2].tolist() == [0.75, -0.25]


def test_a_folded_column_is_half_its_distance_from_the_typical_value(table: Path) -> None:
    declared: dict[str, Any] = {**COLUMNS, "scaled": {}, "spreads": {"age": (60.0, 20.0)}}
    columns = Columns(**declared, folded=("age",), filled={"age": 100.0})
    assert columns.made("age") == ["age", "age=missing", "age=folded"]
    table.write_text(TABLE.replace("90,", ","))
    found = load_features(table, columns=columns)
    np.testing.assert_allclose(found[:, 0], [0, 3, -1.5, 2])
    assert found[:, 1].tolist() == [0, 0, 0, 1]
    np.testing.assert_allclose(found[:, 2], [-0.4, 1.1, 0.35, 0.6], rtol=1e-6)
    plain = load_features(table, columns=Columns(**declared, filled={"age": 100.0}))
    np.testing.assert_array_equal(np.delete(found, 2, axis=1), plain)


def test_an_undeclared_text_counts_as_the_declared_other(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = Columns(scaled={"age": (0, 120)}, categories={"sex": ("f", "x")}, others={"sex": "x"})
    found = load_features(table, columns=columns)
    assert found[:, 1:3].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert "column 'sex': 2 cells are none of its categories, and count as 'x'" in caplog.text
    table.write_text(TABLE.replace("m,", ","))  # missing is not other
    with pytest.raises(DataError, match="column 'sex' holds '', a missing value"):
        load_features(table, columns=columns)
    gaps = Columns(
        scaled={"age": (0, 120)}, categories={"sex": ("f", "x", "u")}, others={"sex": "x"},
        filled={"sex": "u"},
    )  # fmt: skip
    table.write_text(TABLE.replace("150,m,", "150,,"))
    found = load_features(table, columns=gaps)
    assert found[:, 1:4].argmax(1).tolist() == [0, 2, 0, 1]


def test_a_row_has_norm_one_and_none_is_refused() -> None:
    rows = np.array([[3, 4], [0, 0], [np.nan, 1], [3e38, 3e38]], np.float32)
    found = unit_norm((2,))(rows)
    np.testing.assert_allclose(found[0], [0.6, 0.8, 0.3], rtol=1e-6)
    assert found[1:3].tolist() == [[0, 0, np.float32(0.3)]] * 2
    np.testing.assert_allclose(np.linalg.norm(found[3, :2]), 1, rtol=1e-6)


def test_a_row_in_a_batch_has_the_norm_it_has_alone() -> None:
    drawn = numbered_generator(5, 0).standard_normal((20, 300)).astype(np.float32)
    rows = drawn[:, ::-1].T.copy().T  # column by column in memory, as selected columns are
    found = unit(finite_rows(rows))
    for index in range(20):
        alone = unit(finite_rows(rows[index : index + 1]))
        assert alone.tobytes() == found[index : index + 1].tobytes()


def test_a_run_accepts_centres_and_its_lines_say_that_none_was_measured(table: Path) -> None:
    made = fedldp.recipe(
        "quickstart",
        dataset=str(table),
        model="logistic",
        features="unit-norm",
        standardise=False,
        num_clients=2,
        rounds=1,
        scale_columns={"age": [0, 120]},
        categories={"sex": ["f", "m"]},
        classes=["0", "1"],
    )
    centred = made.changed(centre_columns={"age": 45, "sex=f": 0.5})
    problem = problem_of(centred, None)
    assert centred.algorithm(problem).input_shape == (5,)
    assert centred.for_client(0).model_dump()["centre_columns"] == {"age": 45, "sex=f": 0.5}
    names = ("scale_columns", "categories", "classes")
    known_said, said, filled_said = (
        DECLARED_PUBLIC(of=(*more, *names)) for more in ((), ("centre_columns",), ("fill_columns",))
    )
    found, known = (plan(each, problem).privacy for each in (centred, made))
    assert RESTS_ON(assumption=said, of="facts") in found.warnings
    for line, before in zip(found.guarantees, known.guarantees, strict=True):
        if line.kind != "none":
            assert said in line.assumptions
            assert known_said in before.assumptions
            assert line.assumptions - {said} == before.assumptions - {known_said}
        assert line.epsilon == before.epsilon
    filled = plan(made.changed(fill_columns={"sex": "m"}), problem).privacy.warnings
    assert RESTS_ON(assumption=filled_said, of="facts") in filled


def test_a_public_number_replaces_a_missing_value_and_a_feature_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "rows.csv").write_text("age,pressure,label\n60,,0\n30,NA,1\n90,180,1\n")
    columns = Columns(
        scaled={"pressure": (60, 220)},
        filled={"pressure": 140.0},
        centres={"pressure=missing": 0.25},
    )
    found = load_features(tmp_path / "rows.csv", columns=columns)
    assert found.tolist() == [[60, 0.5, 0.75], [30, 0.5, 0.75], [90, 0.75, -0.25]]
    names = ["pressure=missing", "age", "pressure"]
    again = load_features(tmp_path / "rows.csv", columns=columns, names=names)
    assert again.tolist() == [[each[2], each[0], each[1]] for each in found.tolist()]


def test_a_category_replaces_a_missing_text(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("ward,label\nA,0\n,1\nNA,1\nunknown,1\n")
    columns = Columns(
        categories={"ward": ("A", "unknown")}, filled={"ward": "unknown"}, centres={"ward=A": 0.5}
    )
    assert columns.made("ward") == ["ward=A", "ward=unknown"]
    assert load_features(rows, columns=columns).tolist() == [[0.5, 0], *[[-0.5, 1]] * 3]
    # A text that is a declared category is not a missing value.
    named = Columns(categories={"ward": ("A", "NA", "unknown")}, filled={"ward": "unknown"})
    assert load_features(rows, columns=named).argmax(1).tolist() == [0, 2, 1, 2]
