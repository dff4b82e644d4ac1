"""A user's own tables: clients, test files, public ranges and categories."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unlabelled import load_features

from fedldp.core.errors import ConfigError, DataError, DataMissing, SeveralErrors
from fedldp.data import Columns, load_dataset, load_examples

HEADER = "id,hospital,age,sex,outcome\n"
ROWS = "".join(
    f"p{i},{'north' if i % 3 else 'south'},{20 + i},{'fm'[i % 2]},{'ill' if i % 4 else 'well'}\n"
    for i in range(30)
)
COLUMNS: dict[str, Any] = {
    "label": "outcome",
    "client": "hospital",
    "ignored": ("id",),
    "scaled": {"age": (20.0, 40.0)},
    "categories": {"sex": ("f", "m")},
}


def table(folder: Path, text: str = HEADER + ROWS, name: str = "mine.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def columns(**changes: Any) -> Columns:
    return Columns(**{**COLUMNS, **changes})


def test_each_value_of_the_client_column_is_a_client(tmp_path: Path) -> None:
    data = load_dataset(str(table(tmp_path)), columns=columns())
    assert data.features == ("age", "sex=f", "sex=m")
    assert data.classes == ("ill", "well")
    assert data.clients is not None
    # 20 rows belong to the north and 10 to the south; a fifth of each is held out.
    assert data.clients.sizes.tolist() == [16, 8]
    assert len(data.test) == 6
    rows = np.concatenate([data.clients[0], data.clients[1]])
    assert sorted(rows.tolist()) == list(range(24))
    south = data.train.features[data.clients[1]]
    ages = np.where(south[:, 0] < 1, 20 + 20 * south[:, 0], 0)
    assert all(round(age - 20) % 3 == 0 for age in ages if age)


def test_a_range_scales_and_bounds_any_data(tmp_path: Path) -> None:
    examples = load_examples(
        table(tmp_path, "age,outcome\n10,0\n30,1\n40,1\n99,0\n"),
        columns=Columns(label="outcome", scaled={"age": (20.0, 40.0)}),
    )
    assert examples.features[:, 0].tolist() == [0.0, 0.5, 1.0, 1.0]


def test_only_the_test_file_is_tested_on(tmp_path: Path) -> None:
    header, rows = "outcome,sex,age,id\n", "well,f,30,a\nill,m,40,b\n"
    other = table(tmp_path, "id,age,sex,outcome\na,30,f,well\nb,40,m,ill\n", "test.csv")
    data = load_dataset(str(table(tmp_path)), columns=columns(), test_file=str(other))
    assert (len(data.train), len(data.test)) == (30, 2)
    assert data.test.features.tolist() == [[0.5, 1.0, 0.0], [1.0, 0.0, 1.0]]
    assert data.test.labels.tolist() == [1, 0]
    table(tmp_path, header + rows, "test.csv")
    with pytest.raises(DataError, match="make the names and their order equal"):
        load_dataset(str(table(tmp_path)), columns=columns(), test_file=str(other))
    with pytest.raises(DataMissing, match=r"gone\.csv"):
        load_dataset(str(table(tmp_path)), test_file=str(tmp_path / "gone.csv"))


BAD = [
    ("p,north,NA,f,ill", "column 'age' holds 'NA', a missing value"),
    ("p,north,old,f,ill", "column 'age' holds 'old', which is not a number"),
    ("p,north,30,,ill", "column 'sex' holds '', a missing value"),
    ("p,north,30,x,ill", r"column 'sex' holds 'x', .*\(f, m\), add it to categories"),
    ("p,,30,f,ill", "column 'hospital' holds '', a missing value"),
    ("p,north,30,f,", "column 'outcome' holds '', which is missing"),
]


@given(st.lists(st.sampled_from(range(len(BAD))), min_size=1, unique=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_all_bad_cells_are_named_at_once(tmp_path: Path, chosen: list[int]) -> None:
    rows = "".join(f"{BAD[each][0]}\n" for each in chosen)
    path = table(tmp_path, HEADER + ROWS + rows)
    changes: dict[str, Any] = {"filled": {"sx": 1.0}, "centres": {"sex=x": 0.5}}
    with pytest.raises(SeveralErrors) as found:
        load_dataset(str(path), columns=columns(**changes), test_file=str(path))
    lines = str(found.value).splitlines()
    for line, each in enumerate(chosen, start=32):
        # A string in a column of numbers comes first: whoever declares categories declares more.
        if each == 0 and 1 in chosen:
            continue
        assert any(re.search(f"line {line}: {BAD[each][1]}", told) for told in lines), (each, lines)
    assert any("fill_columns names 'sx'" in told for told in lines)
    assert any("centre_columns names 'sex=x'" in told for told in lines)
    assert len(lines) == len(set(lines)) == len(chosen) + 2 - ({0, 1} <= set(chosen))


def test_what_does_not_depend_on_bad_cells_is_refused_with_them(tmp_path: Path) -> None:
    rows = "".join(f"p{row % 5},{'ns'[row % 2]},old,{row},{row % 2 * 2}\n" for row in range(40))
    text = "who,hospital,age,number,outcome\n" + rows
    whole = Columns(label="outcome", client="hospital", person="who")
    with pytest.raises(SeveralErrors) as found:
        load_dataset(str(table(tmp_path, text)), columns=whole)
    for told in (
        "column 'age' holds 'old', which is not a number",
        "5 persons have rows at more than persons_at_sites = 1 client",
        "the labels are integers from 0 to 2, but no row has 1",
        "column 'number' may only number the rows",
    ):
        assert sum(told in line for line in found.value.lines) == 1, told
    assert len(found.value.lines) == 4


def test_columns_are_found_by_name_and_not_by_position(tmp_path: Path) -> None:
    other = table(tmp_path, "outcome,sex,id,age\nill,m,p1,30\n", "other.csv")
    names = ("age", "sex=f", "sex=m")
    found = load_features(other, columns=columns(), names=names)
    assert found.tolist() == [[0.5, 0, 1]]
    assert load_examples(
        other, columns=columns(classes=("well", "ill")), names=names
    ).features.tolist() == [[0.5, 0, 1]]
    with pytest.raises(ConfigError, match="the model needs the column 'pressure'"):
        load_features(other, columns=columns(), names=("pressure", *names))
    more = table(tmp_path, "sex,age,weight\nm,30,70\n", "more.csv")
    with pytest.raises(ConfigError, match="the model does not take: weight; remove"):
        load_features(more, columns=columns(ignored=()), names=names)


def test_the_remedies_for_a_string_in_a_column_of_numbers_work(tmp_path: Path) -> None:
    text = re.sub(r"(north|south),\d+", r"\1,<0.5", ROWS, count=1)
    path = table(tmp_path, HEADER + text)
    with pytest.raises(
        DataError, match=r"column 'age' holds '<0\.5', which is not a number"
    ) as found:
        load_dataset(str(path), columns=columns())
    for remedy in ("fill_columns.age = 0", 'categories = {age = ["<0.5", ...]}', "ignore_columns"):
        assert remedy in str(found.value)
    path.write_text(HEADER + text.replace("<0.5", ""))
    data = load_dataset(str(path), columns=columns(filled={"age": 30.0}))
    assert data.features == ("age", "age=missing", "sex=f", "sex=m")
