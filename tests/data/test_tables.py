"""A user's own tables: clients, test files, public ranges and categories, Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedldp.core.errors import ConfigError, DataError, DataMissing, FedldpError
from fedldp.data import Columns, Dataset, load_dataset, load_examples, load_features
from fedldp.data.custom import encode_examples
from fedldp.data.tables import read_table

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


def refused(error: type[FedldpError], path: Path, says: str, **changes: Any) -> None:
    with pytest.raises(error, match=says) as found:
        load_dataset(str(path), columns=columns(**changes))
    assert "\n" not in str(found.value)


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


def test_declared_classes_keep_their_order(tmp_path: Path) -> None:
    data = load_dataset(str(table(tmp_path)), columns=columns(classes=("well", "ill", "dead")))
    assert (data.num_classes, data.classes) == (3, ("well", "ill", "dead"))
    assert np.bincount(np.concatenate([data.train.labels, data.test.labels])).tolist() == [8, 22]
    refused(
        DataError,
        table(tmp_path),
        "line 2: .*'well', which is not one of classes",
        classes=("a", "b"),
    )


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ("p,north,NA,f,ill", "line 32: column 'age' holds 'NA', a missing value"),
        ("p,north,old,f,ill", "line 32: column 'age' holds 'old', which is not a number"),
        ("p,north,30,,ill", "line 32: column 'sex' holds '', a missing value"),
        ("p,north,30,x,ill", r"line 32: column 'sex' holds 'x', .*\(f, m\); add it to categories"),
        ("p,,30,f,ill", "line 32: column 'hospital' holds '', a missing value"),
        ("p,north,30,f,", "line 32: column 'outcome' holds '', an empty label"),
    ],
)
def test_a_bad_cell_is_named(tmp_path: Path, cells: str, says: str) -> None:
    refused(DataError, table(tmp_path, HEADER + ROWS + cells + "\n"), says)


def test_an_undeclared_text_column_says_how_to_declare_it(tmp_path: Path) -> None:
    refused(
        DataError,
        table(tmp_path),
        r"line 2: column 'sex' holds 'f'.*categories = \{sex = \[\"f\", \.\.\.\]\}.*ignore_columns",
        categories={},
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"client": "clinic"}, "client_column names 'clinic'"),
        ({"scaled": {"weight": (0.0, 1.0)}}, "scale_columns names 'weight'"),
        ({"categories": {"colour": ("r",)}}, "categories names 'colour'"),
        ({"label": "result"}, "label_column is 'result'"),
    ],
)
def test_a_missing_column_is_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    refused(ConfigError, table(tmp_path), says, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"client": "outcome"},
        {"ignored": ("id", "id")},
        {"scaled": {"sex": (0.0, 1.0)}},
        {"scaled": {"age": (1.0, 1.0)}},
        {"scaled": {"age": (0.0, float("inf"))}},
        {"categories": {"sex": ()}},
        {"categories": {"sex": ("f", "f")}},
        {"classes": ("ill",)},
    ],
)
def test_declarations_that_contradict_themselves_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as found:
        columns(**changes)
    assert "\n" not in str(found.value)


def test_a_category_may_have_the_name_of_a_missing_value(tmp_path: Path) -> None:
    path = table(tmp_path, "smoker,outcome\nNA,0\nyes,1\n")
    found = load_examples(
        path, columns=Columns(label="outcome", categories={"smoker": ("NA", "yes")})
    )
    assert found.features.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_a_party_may_leave_out_rows_that_do_not_fit(tmp_path: Path) -> None:
    text = "age,sex,outcome\n30,f,1\n,f,1\nold,m,0\n35,x,1\n20,m,\n20,m,2\n20,m,-1\n20,m,two\n"
    agreed = Columns(label="outcome", scaled={"age": (20.0, 40.0)}, categories={"sex": ("f", "m")})
    found = encode_examples(read_table(table(tmp_path, text)), agreed, leave_out=True)
    assert found.labels.tolist() == [1, 2]
    assert found.features.tolist() == [[0.5, 1, 0], [0, 0, 1]]
    nothing = encode_examples(
        read_table(table(tmp_path, "age,sex,outcome\n,f,1\n")), agreed, leave_out=True
    )
    assert nothing.features.shape == (0, 3)


# Parquet


def parquet(folder: Path, **cells: Any) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    path = folder / "mine.parquet"
    write_table(arrow.table(cells), path)
    return path


def test_a_damaged_parquet_file_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"cannot be read as \.parquet"):
        load_dataset(str(table(tmp_path, name="mine.parquet")))


# From Python


def test_clients_from_python_are_those_of_the_run(tmp_path: Path) -> None:
    import fedldp

    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(n, 3)), np.arange(n) % 2) for n in (12, 30, 5)]
    data = Dataset.from_clients(parts, test=(rng.normal(size=(8, 3)), np.arange(8) % 2))
    assert data.clients is not None
    assert data.clients.sizes.tolist() == [12, 30, 5]
    config = fedldp.recipe("fedavg-quickstart", rounds=1, model="logistic", standardise=False)
    result = fedldp.run(config, dataset=data)
    assert result.config.num_clients == 3
    assert result.rounds[0].clients == 3
    assert not any("fewer than 10 examples" in doubt for doubt in result.doubts)
    with pytest.raises(ConfigError, match="partition = shards:2: the data set custom names"):
        fedldp.run(config.changed(partition="shards:2"), dataset=data)


def test_clients_from_python_are_checked() -> None:
    one = ([[0.0], [1.0]], [0, 1])
    with pytest.raises(DataError, match="client 1: there are 1 rows"):
        Dataset.from_clients([one, ([[0.0]], [0, 1])])
    with pytest.raises(DataError, match=r"client 1: an example has shape \(2,\)"):
        Dataset.from_clients([one, ([[0.0, 1.0]], [0])])
    with pytest.raises(DataError, match="no client"):
        Dataset.from_clients([])
    with pytest.raises(DataError, match="too few examples to split"):
        Dataset.from_clients([one])
    with pytest.raises(ConfigError, match="test_share"):
        Dataset.from_clients([one], test_share=1.0)


def test_columns_are_found_by_name_and_not_by_position(tmp_path: Path) -> None:
    other = table(tmp_path, "outcome,sex,id,age\nill,m,p1,30\n", "other.csv")
    names = ("age", "sex=f", "sex=m")
    found = load_features(other, columns=columns(), names=names)
    assert found.tolist() == [[0.5, 0, 1]]
    assert load_examples(
        other, columns=columns(classes=("well", "ill")), names=names
    ).features.tolist() == [[0.5, 0, 1]]
    with pytest.raises(ConfigError, match="no column for the feature 'pressure'"):
        load_features(other, columns=columns(), names=("pressure", *names))
    more = table(tmp_path, "sex,age,weight\nm,30,70\n", "more.csv")
    with pytest.raises(ConfigError, match="column 'weight', which the model does not take"):
        load_features(more, columns=columns(ignored=()), names=names)
